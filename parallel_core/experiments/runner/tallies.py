"""Tallies of a recorded repetition: how many things came in an order that only a queue allows.

The spans of calls, from begin to return, and those of operations, from begin to end, have one
clock.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from backends.profiling import Span

WAITS = ("wait", "waitall")


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


Tallying: TypeAlias = Callable[[Repetition], Tally]


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
    in either case it has returned when the program begins its last wait, for everything.
    """
    computations = repetition.of_kind("compute")
    if not repetition.waits or not computations:
        return Tally(0, 0)
    returned = repetition.waits[-1].start
    in_order = sorted(computations, key=lambda span: span.launched or span.start)
    awaited = in_order[0]
    behind = [span for span in in_order[1:] if span.name == awaited.name]
    unfinished = [span for span in behind if span.end > returned]
    return Tally(len(unfinished), len(behind))


def begun_beside_another_device(repetition: Repetition) -> Tally:
    """Count the computations of a device that began while another device computed.

    The device with the highest count is taken: another one may have been alone at the end, because
    of other work on the machine.
    """
    computations = repetition.of_kind("compute")
    devices = {span.device for span in computations}
    if len(devices) < 2:
        # All computations ran on the calling thread, one after the other.
        return Tally(0, len(computations) // repetition.devices)
    tallies = []
    for device in devices:
        on_device = [span for span in computations if span.device == device]
        elsewhere = [span for span in computations if span.device != device]
        beside = [span for span in on_device if _is_inside_one(span.start, elsewhere)]
        tallies.append(Tally(len(beside), len(on_device)))
    return max(tallies)


def computed_beside_another_device(repetition: Repetition, named: str = "") -> Tally:
    """Count the computations of a device that ran while another device computed.

    Only computations whose names begin with `named` count. The device with the highest share is
    taken: another one may compute at forks and joins, where nothing else can run.
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
        beside = _count_beside(on_device, elsewhere)
        tallies.append(Tally(beside, len(on_device)))
    return max(tallies, key=lambda tally: tally.seen / tally.of, default=Tally(0, 0))


def _count_beside(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """Count the spans that overlap one of the others, which are in the order of their start."""
    starts = [other.start for other in others]
    # For each of the others, the latest end among it and those before it.
    latest_ends = list(accumulate((other.end for other in others), max))
    beside = 0
    for span in spans:
        # The first others began before the span ended; one of them overlaps if it ended later than
        # the span began.
        began_before_end = bisect_left(starts, span.end)
        if began_before_end and latest_ends[began_before_end - 1] > span.start:
            beside += 1
    return beside


def computed_beside_its_own_device(repetition: Repetition) -> Tally:
    """Count the computations that ran at the same time as another one of the same device."""
    computations = repetition.of_kind("compute")
    beside = 0
    for span in computations:
        on_device = [other for other in computations if other.device == span.device]
        if any(_overlap(span, other) for other in on_device if other is not span):
            beside += 1
    return Tally(beside, len(computations))


def copied_beside_computation(repetition: Repetition) -> Tally:
    """Count the computations during which a result was copied.

    Copies are not counted: other work on the machine may delay the last ones until nothing is left
    to compute. Every computation's result is copied equally often, so a recording with another
    number of copies lacks some, and nothing is counted.
    """
    computations = repetition.of_kind("compute")
    copies = repetition.of_kind("copy")
    if not computations or not copies:
        return Tally(0, 0)
    lacks_copies = len(copies) % len(computations) > 0
    if lacks_copies:
        return Tally(0, 0)
    beside = [span for span in computations if any(_overlap(copy, span) for copy in copies)]
    return Tally(len(beside), len(computations))


def alongside(repetition: Repetition) -> float:
    """Return the share of the copies' time during which something was computed; 0 without copies.

    Other work on the machine lengthens copies and computations, so the share says less than a
    count.
    """
    copies = repetition.of_kind("copy")
    computations = repetition.of_kind("compute")
    copying_time = sum(copy.end - copy.start for copy in copies)
    time_beside = 0
    for copy in copies:
        # Computations are in the order of their start. A time at which several of them run counts
        # once.
        counted_until = copy.start
        for computation in computations:
            start = max(computation.start, counted_until)
            end = min(computation.end, copy.end)
            if start < end:
                time_beside += end - start
                counted_until = end
    return time_beside / copying_time if copying_time else 0.0


def _overlap(span: Span, other: Span) -> bool:
    """Return whether two spans have a time in common."""
    return span.start < other.end and other.start < span.end


def _is_inside_one(time: int, spans: Sequence[Span]) -> bool:
    """Return whether a time lies within one of the spans."""
    return any(span.start < time < span.end for span in spans)
