"""Counts of a run: for how many things an order was seen that only a queue allows.

For example: of ten results, how many were not there when their calls had returned. A witness,
mostly the framework's own profiler, records when each call began and returned, and when each
operation began and ended, in a few repetitions of a case. Other work on the machine lengthens every
time, but hardly changes the order, so a count needs no quiet moment.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parallel_core.experiments.runner.metrics import LOWEST, Band
from parallel_core.experiments.runner.tallies import Repetition, Tallying
from parallel_core.measurement.result import Counted, Note, Result
from parallel_core.system.formatting import percent

IN_PART, MOSTLY = 0.2, 2 / 3
"""The shares of things from which on an order was seen in part, and mostly.

An engine without a queue shows it for nothing, and an engine with queues for nearly everything, or
for up to a quarter less if other programs take the cores.
"""
RUNNING = 0.8
"""The share of their operations' time that threads run, or have no core, at the least if they do
not wait for each other: it is 1 beside other programs too, and 0.5 to 0.7 with a lock.
"""
ONE_CORE = Band(
    LOWEST, "one-core", "On a core that they share, operations can only be in progress together"
)
WAITED_INSIDE = Band(LOWEST, "waited-inside", "No, operations waited for each other inside")
IN_PROGRESS = Band(
    LOWEST,
    "in-progress",
    "Operations were in progress together, and this run cannot tell whether they ran together",
)
OF_OPERATIONS_IN_PROGRESS = (ONE_CORE, WAITED_INSIDE, IN_PROGRESS)
"""The meanings that replace others if operations were in progress, and may not have run."""


def bands_at_once(
    none: str, part: str, most: str, code_of_most: str = "parallel"
) -> tuple[Band, ...]:
    """Return the bands of a count of what went on at the same time as something else, which say so
    of none of it, of a part or of most.
    """
    return (
        Band(LOWEST, "serial", none, overlap="none"),
        Band(IN_PART, "partly", part, overlap="part"),
        Band(MOSTLY, code_of_most, most, overlap="all"),
    )


@dataclass(frozen=True)
class Count:
    """A question of order that a case answers: the count, and the meanings of its shares."""

    name: str
    """Its key in a result's JSON."""
    counted: str
    """The words after the numbers: `results were not there when their calls had returned`."""
    bands: tuple[Band, ...]
    """The meanings of shares, in ascending order; `Band.start` is a share of all things."""
    case: str = ""
    """The case that is repeated, or else the last one that differs from it in numbers only."""
    tally: Tallying | None = None
    """The function that counts in a repetition; None if the program counts (`Trial.count`)."""
    runs: int = 1
    """The runs of the case in a repetition: several if a run is as short as a scheduler's slice.

    All counts of a case have the same number.
    """
    alongside: Callable[[Repetition], float] | None = None
    """For copies, the function that returns the share of their time beside the computation."""
    at_once: bool = False
    """Whether it compares operations that are in progress, which may wait for each other or for a
    core: work at the same time is said only if threads ran meanwhile, or the clock shows it.
    """
    awaits_one: bool = False
    """Whether its case waits for one result of those that it launches, so that one is done then."""
    metric: str = ""
    """The name of the metric that answers the same question by the clock."""
    title: str = ""
    """The heading in a table of all experiments."""
    error: str = ""
    """What the engine did wrong if the count is above 0: the result is invalid then; or empty."""

    def band(self, count: int, of: int) -> Band:
        """Return the band in which the share `count / of` lies."""
        reached = [band for band in self.bands if band.start <= count / of]
        return reached[-1]

    def band_of(self, result: Result) -> Band:
        """Return what a result's count means, as the result says; the result must have it."""
        code = result.bands.get(self.name)
        for band in (*self.bands, *OF_OPERATIONS_IN_PROGRESS):
            if band.code == code:
                return band
        # The first results had no codes.
        counted = result.counts[self.name]
        return self.band(counted.count, counted.of)

    def meaning(self, result: Result, answers: Mapping[str, Sequence[Band]]) -> Band:
        """Return what the count of a result means, whose metrics have these answers."""
        counted = result.counts[self.name]
        band = self.band(counted.count, counted.of)
        cpus = [device for device in result.backend["devices"] if device.startswith("cpu")]
        if not self.at_once or not cpus or band == self.bands[0]:
            return band
        environment = result.environment
        cores = environment.get("usable_cores", environment.get("cores", math.inf))
        if cores < max(2, len(cpus)):
            return ONE_CORE
        if counted.running is not None:
            return band if counted.running >= RUNNING else WAITED_INSIDE
        by_clock = answers.get(self.metric, ())
        has_gained = bool(by_clock) and all(answer.start > 0 for answer in by_clock)
        # Beside other work a device alone may be slow by chance, and then two seem to gain.
        return band if has_gained and result.is_undisturbed else IN_PROGRESS

    def problem(self, counted: Counted) -> Note | None:
        """Say what the engine did wrong, by the repetition with the highest count; or None."""
        most = max(counted.repetitions)
        if not self.error or most == 0:
            return None
        return Note("order-broken", f"{most} of {counted.of} {self.error}")

    def written(self, counted: Counted) -> str:
        """Write a count in words: `24 of 25 multiplications ran while a result was copied`."""
        written = f"{write(counted)} {self.counted}"
        if counted.alongside:
            written += f" ({percent(counted.alongside)} of the copies' time)"
        return written


def sentences_of(counts: Sequence[Count], result: Result) -> list[str]:
    """Return a sentence for each meaning of a result's counts, with the counts that mean it."""
    counts_by_meaning: dict[str, list[str]] = {}
    for count in counts:
        if count.name in result.counts:
            meaning = count.band_of(result).says
            written = count.written(result.counts[count.name])
            counts_by_meaning.setdefault(meaning, []).append(written)
    sentences = []
    for meaning, written_counts in counts_by_meaning.items():
        all_counts = "; ".join(written_counts)
        sentences.append(f"{meaning}: {all_counts}.")
    return sentences


def write(counted: Counted) -> str:
    """Write a count: `24 of 25`."""
    return f"{counted.count} of {counted.of}"
