"""Counts of a run: order, which other work on the machine hardly changes.

It stretches every time. A count says of how many things an order was seen that only a queue allows:
of ten results, how many were not there when their calls had returned. It comes from repetitions of
one case before a witness, mostly the framework's own profiler, whose spans have one clock: when
each call began and returned, and when each operation began and ended. No time enters it, so it
needs no quiet moment.
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
"""The shares from which on an order was kept in part, and mostly.

An engine without a queue shows it in none of what is counted, one with queues in nearly all; where
other programs take the cores, in up to a quarter less.
"""
REPETITIONS, MOST_REPETITIONS = 2, 6
"""How many repetitions are recorded, and at most if they disagree on the answer and no more were
asked for.
"""
AT_ONCE = 10
"""How many repetitions one recording holds at most."""


@dataclass(frozen=True)
class Count:
    """A question of order that a case answers: what is counted, and what each share of it means."""

    name: str
    """Its key in a result's JSON."""
    counted: str
    """What stands behind the numbers: `results were not there when their calls had returned`."""
    bands: tuple[Band, ...]
    """The meanings of shares, in ascending order; `Band.start` is a share of all."""
    case: str = ""
    """The case that is repeated, or the last that differs from it in numbers only."""
    tally: Tallying | None = None
    """How it is counted in a repetition of the case; None: the program counts (`Trial.count`)."""
    runs: int = 1
    """How often the case runs in a repetition: more often if it is about as short as a scheduler's
    slice. Counts of one case run it equally often.
    """
    alongside: Callable[[Repetition], float] | None = None
    """What share of the copies' time lay beside the computation, if it is about copies."""
    metric: str = ""
    """The figure that says how much it brings, by the clock."""
    title: str = ""
    """The question that it answers in a table of all experiments."""
    error: str = ""
    """What an engine did wrong if a repetition counts any, which makes the result invalid; empty
    if nothing.
    """

    def band(self, count: int, of: int) -> Band:
        """Return the band in which a count lies."""
        reached = [band for band in self.bands if count / of >= band.start]
        return reached[-1]

    def band_of(self, result: Result) -> Band:
        """Return the band in which a result's count lies; the result must have it."""
        counted = result.counts[self.name]
        return self.band(counted.count, counted.of)

    def problem(self, counted: Counted) -> str:
        """Say what the engine did wrong, by the repetition that counted most; empty if nothing."""
        most = max(counted.repetitions)
        if not self.error or most == 0:
            return ""
        return f"{most} of {counted.of} {self.error}"

    def written(self, counted: Counted) -> str:
        """Write a count with what was counted, and the copies' time alongside as a share."""
        written = f"{write(counted)} {self.counted}"
        if counted.alongside:
            written += f" (alongside: ~{percent(counted.alongside)} of the copies' time)"
        return written


def sentences_of(counts: Sequence[Count], result: Result) -> list[str]:
    """Say what a result's counts mean, and the counts: a sentence for each meaning."""
    counts_by_meaning: dict[str, list[str]] = {}
    for count in counts:
        if count.name in result.counts:
            written = count.written(result.counts[count.name])
            counts_by_meaning.setdefault(count.band_of(result).says, []).append(written)
    return [f"{says}: {'; '.join(written)}." for says, written in counts_by_meaning.items()]


def write(counted: Counted) -> str:
    """Write a count: `24 of 25`."""
    return f"{counted.count} of {counted.of}"


def record_counts(
    counts: Sequence[Count],
    takes: Mapping[str, Callable[[], Timing]],
    backend: Backend,
    fewest: int = REPETITIONS,
) -> dict[str, Counted]:
    """Record repetitions of the counts' cases before a witness, and count in each.

    `takes` repeat a case. The `fewest` repetitions are recorded, and more while their counts mean
    different things; the middle one counts. Nothing is counted if nothing sees the order on this
    backend, or of a case that was not timed. Raises BackendError, OSError or ValueError if the
    profiler fails or leaves no trace that can be read.
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
    """A count that is taken: its case, and what was counted in repetitions so far."""

    count: Count
    tally: Tallying
    case: str
    tallies: list[Tally] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """The shares of the copies' time that lay beside the computation."""

    def add(self, repetition: Repetition) -> None:
        """Count in a repetition, unless its trace lacks what is counted: then it says nothing."""
        tally = self.tally(repetition)
        if not tally.of:
            return
        self.tallies.append(tally)
        if self.count.alongside is not None:
            self.shares.append(self.count.alongside(repetition))


def _run_often(take: Callable[[], object], runs: int) -> None:
    """Run a case several times, one after the other."""
    for _ in range(runs):
        take()


def _case_among(names: Iterable[str], case: str) -> str:
    """Return the name of a case, or of the last that differs from it in numbers only.

    It is empty if there is none.
    """
    names = list(names)
    if case in names:
        return case
    of_other_numbers = [name for name in names if without_numbers(name) == without_numbers(case)]
    return of_other_numbers[-1] if of_other_numbers else ""


def without_numbers(case: str) -> str:
    """Return a case's name without sizes and counts: `native, 4 MiB` is like `native, 64 KiB`."""
    return re.sub(r"\d+(?: [KMG]iB)?", "", case)


def needs_more(count: Count, tallies: Sequence[Tally], fewest: int = REPETITIONS) -> bool:
    """Return whether more tallies are needed: there are fewer than asked for, or they disagree.

    What cannot be tallied needs no more.
    """
    codes = {count.band(tally.seen, tally.of).code for tally in tallies}
    most = MOST_REPETITIONS if len(codes) > 1 else 0
    return 0 < len(tallies) < max(fewest, most)


def middle(tallies: Sequence[Tally], witness: str, shares: Sequence[float] = ()) -> Counted:
    """Return the tally with the middle share, and what each repetition gave.

    `shares` are those of the copies' time that lay beside the computation; their median counts.
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
    """Repeat cases before a witness, and return what each of their `repetitions` did."""
    # Bound before the verbs are marked: these waits are no part of a case.
    wait_unmarked = backend.waitall

    def repeat(mark: Mark) -> None:
        for name, take in cases.items():
            tell(f"counting: {name}", 0.9)
            # A thread's first events cost a profiler more than the rest.
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
    """Iterate over the repetitions of a case in a timeline."""
    for name, start, end in timeline.cases:
        if name == case:
            spans = [span for span in timeline.columns if start <= span.start <= end]
            yield repetition_of(spans, devices)
