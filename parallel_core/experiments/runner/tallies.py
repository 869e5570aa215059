"""What is counted of a recorded repetition: how many of how many came in an order that only a queue
allows.

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
    """What one repetition of a case did. Spans are in the order in which they began."""

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
    """How many of how many."""

    seen: int
    of: int


class _Launched(NamedTuple):
    """When the call that launched a computation began and returned, and when that was done."""

    launched: int
    returned: int
    done: int


Tallying: TypeAlias = Callable[[Repetition], Tally]


def repetition_of(spans: Sequence[Span], devices: int = 2) -> Repetition:
    """Sort the spans of a repetition by what they are."""
    calls = [span for span in spans if span.kind == "host" and span.queue == "Python"]
    launches = tuple(call for call in calls if call.name.partition(" ")[0] not in WAITS)
    # Each repetition begins with a wait until the devices are idle, which is no part of it.
    began = launches[0].start if launches else 0
    waits = tuple(
        call for call in calls if call.name.partition(" ")[0] in WAITS and call.start > began
    )
    operations = tuple(span for span in spans if span.kind != "host")
    return Repetition(launches, waits, operations, devices)


def unfinished_at_return(repetition: Repetition) -> Tally:
    """Count the computations that were not done when the call that launched them had returned."""
    launched = _in_order_of_launch(repetition)
    return Tally(sum(one.done > one.returned for one in launched), len(launched))


def most_unfinished_at_return(repetition: Repetition) -> Tally:
    """Count the computations that were launched and not done when a call returned, where they were
    most.
    """
    launched = _in_order_of_launch(repetition)
    done = sorted(one.done for one in launched)
    most = 0
    for number, one in enumerate(launched, 1):
        most = max(most, number - bisect_right(done, one.returned))
    return Tally(most, len(launched))


def launched_behind_unfinished(repetition: Repetition) -> Tally:
    """Count the computations that were launched when the one that was launched before was not done.

    The first has none before it.
    """
    pairs = list(pairwise(_in_order_of_launch(repetition)))
    return Tally(sum(before.done > behind.launched for before, behind in pairs), len(pairs))


def _in_order_of_launch(repetition: Repetition) -> list[_Launched]:
    """Return the computations whose call is known, in the order of their calls."""
    returned = {call.start: call.end for call in repetition.launches}
    return sorted(
        _Launched(span.launched, returned[span.launched], span.end)
        for span in repetition.of_kind("compute")
        if span.launched in returned
    )


def unfinished_after_wait_for_one(repetition: Repetition) -> Tally:
    """Count the computations behind the first, and of its kind, that were not done when the wait
    for the first had returned.

    However the program waits for one result, by a verb or by converting it, it begins to wait for
    all of them next.
    """
    if not repetition.waits:
        return Tally(0, 0)
    had_returned = repetition.waits[-1].start
    first, *others = sorted(
        repetition.of_kind("compute"), key=lambda span: span.launched or span.start
    )
    behind = [span for span in others if span.name == first.name]
    return Tally(sum(span.end > had_returned for span in behind), len(behind))


def begun_beside_another_device(repetition: Repetition) -> Tally:
    """Count the computations of a device that began while another device was in the middle of one.

    Of the devices the one counts that had most beside it: which one is done first, other work on
    the machine decides.
    """
    computations = repetition.of_kind("compute")
    devices = {span.device for span in computations}
    if len(devices) < 2:
        # All ran on the calling thread, one after the other.
        return Tally(0, len(computations) // repetition.devices)
    tallies = []
    for device in devices:
        own = [span for span in computations if span.device == device]
        others = [span for span in computations if span.device != device]
        tallies.append(Tally(sum(_is_inside(span.start, others) for span in own), len(own)))
    return max(tallies)


def computed_beside_another_device(repetition: Repetition, named: str = "") -> Tally:
    """Count the computations of a device that ran while another device computed.

    Only those count whose names begin with `named`. Of the devices the one counts that had most of
    them beside others: those of the first stand at forks and joins too, where nothing else can run.
    """
    computations = repetition.of_kind("compute")
    counted = [span for span in computations if span.name.startswith(named)]
    devices = {span.device for span in counted}
    if len({span.device for span in computations}) == 1:
        # All ran on the calling thread, one after the other.
        return Tally(0, len(counted) // repetition.devices)
    tallies = []
    for device in devices:
        own = [span for span in counted if span.device == device]
        others = [span for span in computations if span.device != device]
        tallies.append(Tally(_count_beside(own, others), len(own)))
    return max(tallies, key=lambda tally: tally.seen / tally.of, default=Tally(0, 0))


def _count_beside(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """Count the spans that overlap one of some others, which are in the order of their start."""
    starts = [other.start for other in others]
    # When all that had begun up to each of them was over.
    ends = list(accumulate((other.end for other in others), max))
    beside = 0
    for span in spans:
        begun = bisect_left(starts, span.end)
        beside += begun > 0 and ends[begun - 1] > span.start
    return beside


def computed_beside_its_own_device(repetition: Repetition) -> Tally:
    """Count the computations a part of which ran beside another one of the same device."""
    computations = repetition.of_kind("compute")
    beside = sum(
        any(
            _overlap(span, other)
            for other in computations
            if other is not span and other.device == span.device
        )
        for span in computations
    )
    return Tally(beside, len(computations))


def copied_beside_computation(repetition: Repetition) -> Tally:
    """Count the computations during which a result was copied.

    Not the results that were copied meanwhile: other work on the machine may delay the copies until
    all is computed, and nothing is left that the last ones could run beside. Each computation has
    one result, and each result is copied equally often: a profile that lacks copies is no witness.
    """
    computations, copies = repetition.of_kind("compute"), repetition.of_kind("copy")
    if not computations or not copies or len(copies) % len(computations):
        return Tally(0, 0)
    beside = sum(any(_overlap(copy, span) for copy in copies) for span in computations)
    return Tally(beside, len(computations))


def alongside(repetition: Repetition) -> float:
    """Return the share of the copies' time during which something was computed, and 0 of none.

    Load stretches copies and computations alike, so it says less than a count.
    """
    copies, computations = repetition.of_kind("copy"), repetition.of_kind("compute")
    copying = sum(copy.end - copy.start for copy in copies)
    beside = 0
    for copy in copies:
        # Computations are in the order of their start; what several of them cover counts once.
        counted_until = copy.start
        for span in computations:
            start, end = max(span.start, counted_until), min(span.end, copy.end)
            if start < end:
                beside += end - start
                counted_until = end
    return beside / copying if copying else 0.0


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _is_inside(time: int, spans: Sequence[Span]) -> bool:
    return any(span.start < time < span.end for span in spans)
