"""Tallies of a recorded repetition: how many things came in an order that only a queue allows.

The spans of calls, from begin to return, and those of operations, from begin to end, have one
clock.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from backends.profiling import Span, Window
from parallel_core.measurement.result import Timing
from parallel_core.traces.case_spans import covered_twice, lengths_within, union

WAITS = ("wait", "waitall")
HALF = 0.5
"""The share of an operation's time from which on it counts as beside another one."""


@dataclass(frozen=True)
class Repetition:
    """The spans of one repetition of a case, in the order in which they began."""

    launches: tuple[Span, ...]
    """The program's calls that launch something; a call ends when it returns."""
    waits: tuple[Span, ...]
    """The program's calls that wait; a call ends when it returns."""
    operations: tuple[Span, ...]
    """The operations on the devices."""
    devices: int
    """The number of the backend's logical devices."""
    timing: Timing = (0.0, 0.0)
    """The seconds until control returned, and until all was done."""
    threads_seconds: float | None = None
    """The seconds that threads other than the launching one ran, or were ready to run."""

    @property
    def operation_seconds(self) -> float:
        """The seconds of all operations, one after the other."""
        return sum(span.end - span.start for span in self.operations) / 1e9

    def of_kind(self, kind: str) -> tuple[Span, ...]:
        """Return the operations of a kind: `compute` or `copy`."""
        return tuple(span for span in self.operations if span.kind == kind)


class Tally(NamedTuple):
    """The number of things that were `seen` in an order, `of` all things of their kind."""

    seen: int
    of: int


class _Launched(NamedTuple):
    """A computation: the times when its call began and returned, and when it was done."""

    launched: int
    returned: int
    done: int


Tallying = Callable[[Repetition], Tally]


def repetition_of(spans: Sequence[Span], devices: int = 2) -> Repetition:
    """Return the repetition that spans belong to: launches, waits and operations."""
    launches: list[Span] = []
    waits: list[Span] = []
    operations: list[Span] = []
    for span in spans:
        if span.kind != "host":
            operations.append(span)
        elif span.queue == "Python":
            verb, _, _ = span.name.partition(" ")
            calls = waits if verb in WAITS else launches
            calls.append(span)
    # Before the first launch is a wait until the devices are idle, which is not the program's.
    first_launch = launches[0].start if launches else 0
    waits = [wait for wait in waits if wait.start > first_launch]
    return Repetition(tuple(launches), tuple(waits), tuple(operations), devices)


def unfinished_at_return(repetition: Repetition) -> Tally:
    """Count the computations that were not done when the call that launched them had returned."""
    computations = _in_order_of_launch(repetition)
    unfinished = [span for span in computations if span.done > span.returned]
    return Tally(len(unfinished), len(computations))


def most_unfinished_at_return(repetition: Repetition) -> Tally:
    """Count the most computations that were launched and not done at one return of a call."""
    computations = _in_order_of_launch(repetition)
    ends = sorted(computation.done for computation in computations)
    most = 0
    for launched, computation in enumerate(computations, 1):
        done = bisect_right(ends, computation.returned)
        most = max(most, launched - done)
    return Tally(most, len(computations))


def launched_behind_unfinished(repetition: Repetition) -> Tally:
    """Count the computations that were launched before the computation before them was done.

    The first computation does not count.
    """
    pairs = list(pairwise(_in_order_of_launch(repetition)))
    behind_unfinished = [later for earlier, later in pairs if earlier.done > later.launched]
    return Tally(len(behind_unfinished), len(pairs))


def _in_order_of_launch(repetition: Repetition) -> list[_Launched]:
    """Return the computations whose call is known, in the order of their calls."""
    return_by_start = {call.start: call.end for call in repetition.launches}
    computations = []
    for span in repetition.of_kind("compute"):
        if span.launched in return_by_start:
            returned = return_by_start[span.launched]
            computations.append(_Launched(span.launched, returned, span.end))
    return sorted(computations)


def unfinished_after_wait_for_one(repetition: Repetition) -> Tally:
    """Count the computations behind the first one that were not done when the wait for it returned.

    Only computations with the name of the first one count. The wait may be a verb or a conversion:
    in either case it has returned when the program waits for everything.
    """
    computations = repetition.of_kind("compute")
    waits_for_all = [wait for wait in repetition.waits if wait.name.startswith("waitall")]
    if not waits_for_all or not computations:
        return Tally(0, 0)
    returned = waits_for_all[-1].start
    in_order = sorted(computations, key=lambda span: span.launched or span.start)
    awaited = in_order[0]
    behind = [span for span in in_order[1:] if span.name == awaited.name]
    unfinished = [span for span in behind if span.end > returned]
    return Tally(len(unfinished), len(behind))


def computed_beside_another_device(repetition: Repetition, named: str = "") -> Tally:
    """Count the computations of a device that were in progress beside another device's.

    Only computations whose names begin with `named` count. The device with the highest share is
    taken: another one may compute at forks and joins, where nothing else can run, or be alone at
    the end, because of other work on the machine.
    """
    computations = repetition.of_kind("compute")
    counted = [span for span in computations if span.name.startswith(named)]
    if len({span.device for span in computations}) == 1:
        # All computations ran on the calling thread, one after the other.
        return Tally(0, len(counted) // repetition.devices)
    tallies = []
    for device in {span.device for span in counted}:
        on_device = [span for span in counted if span.device == device]
        elsewhere = [span for span in computations if span.device != device]
        tallies.append(Tally(count_beside(on_device, elsewhere), len(on_device)))
    return max(tallies, key=lambda tally: tally.seen / tally.of, default=Tally(0, 0))


def computed_beside_its_own_device(repetition: Repetition) -> Tally:
    """Count the computations that were in progress beside another one of the same device."""
    computations = repetition.of_kind("compute")
    beside = 0
    for device in {span.device for span in computations}:
        times = _times([span for span in computations if span.device == device])
        beside += _count_within(times, covered_twice(times))
    return Tally(beside, len(computations))


def copied_beside_computation(repetition: Repetition) -> Tally:
    """Count the results of which half of the copying, or more, lay beside computations.

    Each computation has a result, and all results are copied equally often, in the order of the
    program. The last result does not count: nothing is left to compute while it is copied. Nothing
    is counted if copies are missing.
    """
    computations = repetition.of_kind("compute")
    copies = sorted(repetition.of_kind("copy"), key=lambda copy: copy.launched or copy.start)
    if not computations or not copies or len(copies) % len(computations):
        return Tally(0, 0)
    of_each = len(copies) // len(computations)
    beside = 0
    for first_copy in range(0, len(copies) - of_each, of_each):
        copies_of_result = copies[first_copy : first_copy + of_each]
        beside += share_beside(copies_of_result, computations) >= HALF
    return Tally(beside, len(computations) - 1)


def computed_beside_copying(repetition: Repetition) -> Tally:
    """Count the computations for half of whose time, or longer, something was copied."""
    computations = repetition.of_kind("compute")
    return Tally(count_beside(computations, repetition.of_kind("copy")), len(computations))


def alongside(repetition: Repetition) -> float:
    """Return the share of the copies' time during which something was computed; 0 without copies.

    Other work on the machine lengthens copies and computations, so the share says less than a
    count.
    """
    return share_beside(repetition.of_kind("copy"), repetition.of_kind("compute"))


def count_beside(spans: Sequence[Span], others: Sequence[Span | Window]) -> int:
    """Count the spans for half of whose time, or longer, one of the others was in progress.

    One moment in common is not enough: devices that hand work over would touch at every operation.
    """
    return _count_within(_times(spans), union(_times(others)))


def share_beside(spans: Sequence[Span], others: Sequence[Span | Window]) -> float:
    """Return the share of the spans' time during which one of the others was in progress.

    span    |---------|
    others     |--|
                 |----|        a moment at which several of them run counts once
    """
    times = _times(spans)
    length = np.diff(times).sum()
    beside = lengths_within(union(_times(others)), times).sum()
    return float(beside / length) if length else 0.0


def _times(spans: Sequence[Span | Window]) -> np.ndarray:
    """Return the starts and ends of spans, (n, 2): of thousands, every pair takes minutes."""
    return np.array([(span.start, span.end) for span in spans], np.int64).reshape(-1, 2)


def _count_within(times: np.ndarray, intervals: np.ndarray) -> int:
    """Count the times, (n, 2), half of which or more an interval set covers."""
    lengths = np.diff(times)[:, 0]
    covered = lengths_within(intervals, times)
    return int(np.sum((covered >= HALF * lengths) & (lengths > 0)))
