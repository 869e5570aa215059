"""Counts of a run: for how many things an order was seen that only a queue allows.

For example: of ten results, how many were not there when their calls had returned. A witness,
mostly the framework's own profiler, records when each call began and returned, and when each
operation began and ended, in a few repetitions of a case. Other work on the machine lengthens every
time, but hardly changes the order, so a count needs no quiet moment.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from backends import Backend
from backends.profiling import Timeline, case_text
from backends.profiling.marks import Mark
from parallel_core.experiments.runner.metrics import Band
from parallel_core.experiments.runner.tallies import Repetition, Tally, Tallying, repetition_of
from parallel_core.experiments.runner.witnesses import Witness, witness_for
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Counted, Result
from parallel_core.measurement.timing import Timing, without_garbage_collection
from parallel_core.system.formatting import percent

IN_PART, MOSTLY = 0.2, 2 / 3
"""The shares of things from which on an order was seen in part, and mostly.

An engine without a queue shows it for nothing, and an engine with queues for nearly everything, or
for up to a quarter less if other programs take the cores.
"""
REPETITIONS, MOST_REPETITIONS = 2, 6
"""The usual number of recorded repetitions, and their number as long as they disagree on the
answer.
"""
AT_ONCE = 10
"""The most repetitions in one recording."""


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
        """Return the band in which a result's count lies; the result must have it."""
        counted = result.counts[self.name]
        return self.band(counted.count, counted.of)

    def problem(self, counted: Counted) -> str:
        """Say what the engine did wrong, by the repetition with the highest count; or empty."""
        most = max(counted.repetitions)
        if not self.error or most == 0:
            return ""
        return f"{most} of {counted.of} {self.error}"

    def written(self, counted: Counted) -> str:
        """Write a count in words: `24 of 25 multiplications ran while a result was copied`."""
        written = f"{write(counted)} {self.counted}"
        if counted.alongside:
            written += f" (alongside: ~{percent(counted.alongside)} of the copies' time)"
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


def record_counts(
    counts: Sequence[Count],
    takes: Mapping[str, Callable[[], Timing]],
    backend: Backend,
    fewest: int = REPETITIONS,
) -> dict[str, Counted]:
    """Record repetitions of cases before a witness, count in each, and return the middle counts.

    `takes` are functions that run a case, by its name; a count without its case is left out. At
    least `fewest` repetitions are recorded, and more while their counts lie in different bands.
    Nothing is counted if there is no witness for the backend.

    Raises BackendError, OSError or ValueError if the profiler fails or leaves no trace that can be
    read.
    """
    witness = witness_for(backend)
    if witness is None:
        return {}
    countings = []
    for count in counts:
        case = _case_among(takes, count.case)
        if count.tally is not None and case:
            countings.append(_Counting(count, count.tally, case))
    undecided = countings
    while undecided:
        cases = {
            counting.case: partial(_run_often, takes[counting.case], counting.count.runs)
            for counting in undecided
        }
        repetitions = recorded(cases, witness, backend, min(fewest, AT_ONCE))
        for counting in undecided:
            for repetition in repetitions[counting.case]:
                counting.add(repetition)
        undecided = [
            counting
            for counting in undecided
            if needs_more(counting.count, counting.tallies, fewest)
        ]
    return {
        counting.count.name: middle(counting.tallies, witness.name, counting.shares)
        for counting in countings
        if counting.tallies
    }


@dataclass
class _Counting:
    """A count in progress: its case, and the tallies of the repetitions so far."""

    count: Count
    tally: Tallying
    case: str
    tallies: list[Tally] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """The shares of the copies' time that lay beside the computation."""

    def add(self, repetition: Repetition) -> None:
        """Add the tally of a repetition, unless its recording lacks the things to count."""
        tally = self.tally(repetition)
        if not tally.of:
            return
        self.tallies.append(tally)
        if self.count.alongside is not None:
            self.shares.append(self.count.alongside(repetition))


def _run_often(take: Callable[[], object], runs: int) -> None:
    """Run a case `runs` times, one after the other."""
    for _ in range(runs):
        take()


def _case_among(names: Iterable[str], case: str) -> str:
    """Return a case's name if it is among the names.

    Otherwise return the last name that differs from it in numbers only; empty if there is none.
    """
    names = list(names)
    if case in names:
        return case
    similar = [name for name in names if without_numbers(name) == without_numbers(case)]
    return similar[-1] if similar else ""


def without_numbers(case: str) -> str:
    """Return a case's name without sizes and numbers: `native, ` for `native, 4 MiB`."""
    return re.sub(r"\d+(?: [KMG]iB)?", "", case)


def needs_more(count: Count, tallies: Sequence[Tally], fewest: int = REPETITIONS) -> bool:
    """Return whether more tallies are needed: there are too few, or they lie in different bands.

    If there are none, the repetitions cannot be tallied, and more would not help.
    """
    codes = {count.band(tally.seen, tally.of).code for tally in tallies}
    needed = max(fewest, MOST_REPETITIONS) if len(codes) > 1 else fewest
    return 0 < len(tallies) < needed


def middle(tallies: Sequence[Tally], witness: str, shares: Sequence[float] = ()) -> Counted:
    """Return the count of the tally with the middle share, with the counts of all repetitions.

    `shares` are the shares of the copies' time beside the computation, of which the median is kept.
    """
    by_share = sorted(tallies, key=lambda tally: tally.seen / tally.of)
    chosen = by_share[(len(by_share) - 1) // 2]
    of_each = tuple(tally.of for tally in tallies)
    return Counted(
        chosen.seen,
        chosen.of,
        witness,
        tuple(tally.seen for tally in tallies),
        of_each=of_each if len(set(of_each)) > 1 else (),
        alongside=median(shares) if shares else None,
    )


def recorded(
    cases: Mapping[str, Callable[[], object]], witness: Witness, backend: Backend, repetitions: int
) -> dict[str, list[Repetition]]:
    """Repeat each case before a witness, and return its `repetitions` by its name."""
    # This is the verb before it is marked: waits between repetitions are not the program's.
    wait_unmarked = backend.waitall

    def repeat(mark: Mark) -> None:
        for name, take in cases.items():
            tell(f"counting: {name}", 0.9)
            # The first run is not recorded: a thread's first events cost a profiler more.
            take()
            for _ in range(repetitions):
                wait_unmarked()
                with mark(case_text(name)):
                    take()
                    wait_unmarked()

    with without_garbage_collection():
        timeline = witness.watch(repeat)
    devices = len(backend.devices)
    return {name: list(repetitions_of(timeline, name, devices)) for name in cases}


def repetitions_of(timeline: Timeline, case: str, devices: int) -> Iterator[Repetition]:
    """Yield the repetitions of a case in a timeline."""
    for name, start, end in timeline.cases:
        if name == case:
            spans = [span for span in timeline.columns if start <= span.start <= end]
            yield repetition_of(spans, devices)
