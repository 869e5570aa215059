"""Counting: recorded repetitions of a run's cases, their tallies, and the middle ones.

More repetitions are recorded while those of a count disagree, or while threads were watched for too
short a time to tell whether they ran.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from backends import Backend
from parallel_core.experiments.runner.counts import RUNNING, Count
from parallel_core.experiments.runner.metrics import Band
from parallel_core.experiments.runner.recordings import (
    Recorded,
    Take,
    behaves_otherwise,
    early_wait,
    missing,
    record,
)
from parallel_core.experiments.runner.tallies import Repetition, Tally, Tallying
from parallel_core.experiments.runner.witnesses import witness_for
from parallel_core.measurement.result import Case, Counted, Note, Timing

REPETITIONS, MOST_REPETITIONS = 2, 6
"""The usual number of recorded repetitions, and their number as long as they disagree on the
answer.
"""
AT_ONCE = 10
"""The most repetitions in one recording."""
RUNNING_BESIDE_OTHERS = 0.98
"""The share that shows the same beside other programs: a thread that was woken for a lock, and has
no core yet, seems to work. Devices that share a lock reach 0.57 to 0.93 there, and free ones 1.
"""
WATCHED_SECONDS, MOST_WATCHED, MOST_OPERATIONS = 1.0, 40, 30_000
"""The seconds of operations, and the most repetitions and operations, from which that share is
found: the system counts a running thread's time in ticks of milliseconds, and a profiler takes a
second for a few thousand operations.
"""


class CountsOfRun(NamedTuple):
    """What was counted in the recorded repetitions of a run."""

    counts: dict[str, Counted]
    uncounted: list[Note]
    """What was not counted, and why."""
    problems: list[Note]
    """What the engine did wrong, as far as the order shows it."""
    faster: frozenset[str]
    """The counts of cases that were much faster in each recorded repetition than in another one."""


def record_counts(
    counts: Sequence[Count],
    takes: Mapping[str, Take],
    backend: Backend,
    timed: Mapping[str, Case],
    fewest: int = REPETITIONS,
) -> CountsOfRun:
    """Record repetitions of cases before a witness, and return the middle counts.

    `takes` are functions that run a case, by its name; a count without its case is left out, and
    `timed` are the cases that were timed. At least `fewest` repetitions are recorded, and more
    while their counts lie in different bands, or while threads were watched for too short a time.
    Nothing is counted if there is no witness for the backend.

    Raises BackendError, OSError or ValueError if the profiler fails or leaves no trace that can be
    read.
    """
    countings = []
    for count in counts:
        case = _case_among(takes, count.case)
        if count.tally is not None and case:
            countings.append(_Counting(count, count.tally, case))
    witness = witness_for(backend)
    if witness is None:
        return CountsOfRun({}, [], [], frozenset())
    undecided = countings
    repetitions = min(fewest, AT_ONCE)
    while undecided:
        cases = {
            counting.case: partial(_run_often, takes[counting.case], counting.count.runs)
            for counting in undecided
        }
        recorded = record(cases, witness, backend, repetitions)
        for counting in undecided:
            counting.add(recorded[counting.case], witness.ends_are_exact)
        more_of_each = {
            counting.case: counting.repetitions_to_watch(backend.threads_per_device)
            for counting in undecided
        }
        undecided = [
            counting
            for counting in undecided
            if needs_more(counting.count, counting.tallies, fewest) or more_of_each[counting.case]
        ]
        repetitions = min(max(repetitions, *more_of_each.values()), AT_ONCE)
    counted = {
        counting.count.name: counting.counted(witness.name, backend.threads_per_device)
        for counting in countings
        if counting.tallies
    }
    uncounted, problems = [], []
    for counting in countings:
        if not counting.tallies:
            uncounted.append(nothing_counted(counting.lacking, counting.case))
        problems += counting.problems(timed.get(counting.case))
    faster = {counting.count.name for counting in countings if counting.is_faster}
    # A note that several counts give is said once.
    uncounted, problems = list(dict.fromkeys(uncounted)), list(dict.fromkeys(problems))
    return CountsOfRun(counted, uncounted, problems, frozenset(faster))


def nothing_counted(reason: str, case: str = "") -> Note:
    """Say why nothing was counted, of a case or at all."""
    of_case = f" of “{case}”" if case else ""
    return Note("uncounted", f"Nothing was counted{of_case}: {reason}.")


@dataclass
class _Counting:
    """A count in progress: its case, and the repetitions so far."""

    count: Count
    tally: Tallying
    case: str
    tallies: list[Tally] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """The shares of the copies' time that lay beside the computation."""
    recorded: list[Recorded] = field(default_factory=list)
    lacking: str = "the recording lacks what was to be counted"
    """What a repetition lacks that was not counted."""
    early: Note | None = None
    """The wait that returned before the work was done, if one did."""

    def add(self, recorded: Recorded, ends_are_exact: bool) -> None:
        """Add the tallies of repetitions, unless a recording lacks the things to count."""
        self.recorded.append(recorded)
        for repetition in recorded.repetitions:
            early = early_wait(repetition, ends_are_exact, self.count.awaits_one)
            self.early = self.early or early
            lacking = missing(repetition)
            tally = self.tally(repetition)
            if lacking or not tally.of:
                self.lacking = lacking or self.lacking
                continue
            self.tallies.append(tally)
            if self.count.alongside is not None:
                self.shares.append(self.count.alongside(repetition))

    @property
    def repetitions(self) -> list[Repetition]:
        """All recorded repetitions."""
        return [repetition for part in self.recorded for repetition in part.repetitions]

    @property
    def is_faster(self) -> bool:
        """Whether each recorded repetition was much faster than those that were not recorded."""
        return bool(self.recorded) and all(part.is_faster for part in self.recorded)

    @property
    def band(self) -> Band:
        """The meaning of the middle count."""
        middle_tally = middle(self.tallies, "")
        return self.count.band(middle_tally.count, middle_tally.of)

    def repetitions_to_watch(self, threads_per_device: int) -> int:
        """Return how many more repetitions tell whether threads ran.

        There are none if that needs too many, if it is known, or if it cannot be.
        """
        seconds = _operation_seconds(self.repetitions)
        asks = self.count.at_once and self.tallies and self.band != self.count.bands[0]
        is_known = all(one.threads_seconds is not None for one in self.repetitions)
        if not asks or not is_known or threads_per_device > 1 or not seconds:
            return 0
        done = len(self.repetitions)
        operations = sum(len(one.operations) for one in self.repetitions)
        factor = WATCHED_SECONDS / seconds
        needed = math.ceil(factor * done)
        if needed > MOST_WATCHED or factor * operations > MOST_OPERATIONS:
            return 0
        return max(0, needed - done)

    def running(self, threads_per_device: int) -> float | None:
        """Return the share of the operations' time in which threads ran or had no core.

        None if it is not known: threads of a team spin, and the launching thread is not watched.
        """
        seconds = _operation_seconds(self.repetitions)
        queues = {span.queue for one in self.repetitions for span in one.operations}
        if threads_per_device > 1 or "calling" in queues or seconds < WATCHED_SECONDS:
            return None
        worked = [one.threads_seconds for one in self.repetitions]
        known = [seconds for seconds in worked if seconds is not None]
        if len(known) < len(worked):
            return None
        share = sum(known) / seconds
        is_disturbed = any(part.is_disturbed for part in self.recorded)
        return None if is_disturbed and RUNNING <= share < RUNNING_BESIDE_OTHERS else share

    def counted(self, witness: str, threads_per_device: int) -> Counted:
        """Return the middle count."""
        running = self.running(threads_per_device) if self.count.at_once else None
        return replace(middle(self.tallies, witness, self.shares), running=running)

    def problems(self, timed: Case | None) -> list[Note]:
        """Say what is wrong with the engine: an early wait, or other work while it is watched."""
        problems = [self.early]
        if self.tallies:
            queues = self.band != self.count.bands[0]
            shares = []
            if timed is not None:
                pairs = zip(timed.dispatch_seconds, timed.seconds, strict=True)
                shares = [returned / done for returned, done in pairs]
            problems += [behaves_otherwise(part, shares, queues) for part in self.recorded]
        return [problem for problem in problems if problem]


def _operation_seconds(repetitions: Sequence[Repetition]) -> float:
    """Return the seconds of all operations of repetitions, one after the other."""
    return sum(repetition.operation_seconds for repetition in repetitions)


def _run_often(take: Take, runs: int) -> Timing:
    """Run a case `runs` times, one after the other, and return the sum of the timings."""
    timings = [take() for _ in range(runs)]
    returned, done = np.sum(timings, axis=0)
    return float(returned), float(done)


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
