"""Tallies of a recorded repetition: how many things came in an order that only a queue allows.

Spans have one clock: when each call began and returned, and when each operation began and ended.
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
    """The program's calls that launch something, until they returned."""
    waits: tuple[Span, ...]
    """The program's calls that wait, until they returned."""
    operations: tuple[Span, ...]
    """What ran on the devices."""
    devices: int
    """The backend's logical devices; without queues all may run on the calling thread."""

    def of_kind(self, kind: str) -> tuple[Span, ...]:
        """Return the operations that compute, or those that copy."""
        return tuple(span for span in self.operations if span.kind == kind)


class Tally(NamedTuple):
    """A tally: the number of things that were seen in an order, and of all."""

    seen: int
    of: int


class _Launched(NamedTuple):
    """The times when a computation's call began and returned, and when it was done."""

    launched: int
    returned: int
    done: int


Tallying: TypeAlias = Callable[[Repetition], Tally]


def repetition_of(spans: Sequence[Span], devices: int = 2) -> Repetition:
    """Sort the spans of a repetition by what they are."""
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
    # Each repetition begins with a wait until the devices are idle, which is no part of it.
    began = launches[0].start if launches else 0
    waits = [wait for wait in waits if wait.start > began]
    return Repetition(tuple(launches), tuple(waits), tuple(operations), devices)


def unfinished_at_return(repetition: Repetition) -> Tally:
    """Count the computations that were not done when the call that launched them had returned."""
    computations = _in_order_of_launch(repetition)
    unfinished = [span for span in computations if span.done > span.returned]
    return Tally(len(unfinished), len(computations))


def most_unfinished_at_return(repetition: Repetition) -> Tally:
    """Count the launched computations that were not done when a call returned, at the most."""
    computations = _in_order_of_launch(repetition)
    ends = sorted(computation.done for computation in computations)
    most = 0
    for launched, computation in enumerate(computations, 1):
        done = bisect_right(ends, computation.returned)
        most = max(most, launched - done)
    return Tally(most, len(computations))


def launched_behind_unfinished(repetition: Repetition) -> Tally:
    """Count the computations that were launched while the one before them was not done.

    The first has none before it.
    """
    neighbours = list(pairwise(_in_order_of_launch(repetition)))
    unfinished = [earlier for earlier, later in neighbours if earlier.done > later.launched]
    return Tally(len(unfinished), len(neighbours))


def _in_order_of_launch(repetition: Repetition) -> list[_Launched]:
    """Return the computations whose call is known, in the order of their calls."""
    returned = {call.start: call.end for call in repetition.launches}
    return sorted(
        _Launched(span.launched, returned[span.launched], span.end)
        for span in repetition.of_kind("compute")
        if span.launched in returned
    )


def unfinished_after_wait_for_one(repetition: Repetition) -> Tally:
    """Count the computations behind the first that were not done when the wait for it returned.

    They are of its kind. However the program waits for one result, by a verb or by converting it,
    it begins to wait for all of them next.
    """
    if not repetition.waits or not repetition.of_kind("compute"):
        return Tally(0, 0)
    had_returned = repetition.waits[-1].start
    computations = sorted(
        repetition.of_kind("compute"), key=lambda span: span.launched or span.start
    )
    awaited = computations[0]
    behind = [span for span in computations[1:] if span.name == awaited.name]
    unfinished = [span for span in behind if span.end > had_returned]
    return Tally(len(unfinished), len(behind))


def begun_beside_another_device(repetition: Repetition) -> Tally:
    """Count the computations of a device that began while another device was in the middle of one.

    The device counts that had most beside it: which one is done first, other work on the machine
    decides.
    """
    computations = repetition.of_kind("compute")
    devices = {span.device for span in computations}
    if len(devices) < 2:
        # All ran on the calling thread, one after the other.
        return Tally(0, len(computations) // repetition.devices)
    tallies = []
    for device in devices:
        on_device = [span for span in computations if span.device == device]
        elsewhere = [span for span in computations if span.device != device]
        beside = [span for span in on_device if _is_inside(span.start, elsewhere)]
        tallies.append(Tally(len(beside), len(on_device)))
    return max(tallies)


def computed_beside_another_device(repetition: Repetition, named: str = "") -> Tally:
    """Count the computations of a device that ran while another device computed.

    Only those count whose names begin with `named`. The device counts that had most of them beside
    others: those of the first stand at forks and joins too, where nothing else can run.
    """
    computations = repetition.of_kind("compute")
    counted = [span for span in computations if span.name.startswith(named)]
    if len({span.device for span in computations}) == 1:
        # All ran on the calling thread, one after the other.
        return Tally(0, len(counted) // repetition.devices)
    tallies = []
    for device in {span.device for span in counted}:
        on_device = [span for span in counted if span.device == device]
        elsewhere = [span for span in computations if span.device != device]
        tallies.append(Tally(_count_beside(on_device, elsewhere), len(on_device)))
    return max(tallies, key=lambda tally: tally.seen / tally.of, default=Tally(0, 0))


def _count_beside(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """Count the spans that overlap one of the others, which are in the order of their start."""
    starts = [other.start for other in others]
    # For each of the others: when it and all before it are over.
    all_over = list(accumulate((other.end for other in others), max))
    beside = 0
    for span in spans:
        begun = bisect_left(starts, span.end)
        if begun and all_over[begun - 1] > span.start:
            beside += 1
    return beside


def computed_beside_its_own_device(repetition: Repetition) -> Tally:
    """Count the computations a part of which ran beside another one of the same device."""
    computations = repetition.of_kind("compute")
    beside = 0
    for span in computations:
        on_device = [other for other in computations if other.device == span.device]
        if any(_overlap(span, other) for other in on_device if other is not span):
            beside += 1
    return Tally(beside, len(computations))


def copied_beside_computation(repetition: Repetition) -> Tally:
    """Count the computations during which a result was copied.

    Not the results that were copied meanwhile: other work on the machine may delay the copies until
    all is computed, and nothing is left that the last ones could run beside. Each computation has
    one result, and each result is copied equally often: a profile that lacks copies is no witness.
    """
    computations = repetition.of_kind("compute")
    copies = repetition.of_kind("copy")
    if not computations or not copies or len(copies) % len(computations):
        return Tally(0, 0)
    beside = [span for span in computations if any(_overlap(copy, span) for copy in copies)]
    return Tally(len(beside), len(computations))


def alongside(repetition: Repetition) -> float:
    """Return the share of the copies' time during which something was computed; 0 without copies.

    Load stretches copies and computations alike, so it says less than a count.
    """
    copies = repetition.of_kind("copy")
    computations = repetition.of_kind("compute")
    copying = sum(copy.end - copy.start for copy in copies)
    beside = 0
    for copy in copies:
        # Computations are in the order of their start; what several of them cover counts once.
        counted_until = copy.start
        for span in computations:
            start = max(span.start, counted_until)
            end = min(span.end, copy.end)
            if start < end:
                beside += end - start
                counted_until = end
    return beside / copying if copying else 0.0


def _overlap(span: Span, other: Span) -> bool:
    return span.start < other.end and other.start < span.end


def _is_inside(time: int, spans: Sequence[Span]) -> bool:
    return any(span.start < time < span.end for span in spans)
