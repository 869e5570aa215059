"""Each queue: its busy time, what it waited for, and how many operations stood in it.

What a queue waited for, of two operations that follow each other on it with a gap between them
(get_idle_time_breakdown):

- host wait: the second was launched after the first had ended, so the host did not launch fast
  enough;
- kernel wait: it was launched before, and the gap is shorter than a threshold: what a device itself
  takes;
- other wait: it was launched before, and the gap is longer: it waited for an event, of another
  queue say.

The threshold is 30 µs unless given: HTA calls its 30 nanoseconds, but its times are whole
microseconds. HTA reckons a gap from the operation before, even if an earlier one ended later; here
it begins when all before it had ended. An operation without a known launch cannot have waited for
the host, there and here.

How many stood in it, launched and not yet begun: a launch makes a queue longer by one, a start
shorter, and of changes at the same time launches come first. Holistic Trace Analysis
(get_queue_length_summary) describes the lengths after each change, whatever time they lasted; the
mean over time stands beside that one here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import HOST_DEVICE, ROLES, Queue, in_seconds, queue_order
from parallel_core.traces.case_spans import (
    NO_INTERVALS,
    CaseSpans,
    clip,
    groups_of,
    intersection,
    total_length,
    union,
)
from parallel_core.traces.figures import Count, Ratio, Seconds, Share

KERNEL_DELAY = 30_000
"""Nanoseconds: a shorter gap between two operations is a kernel wait; HTA's
`consecutive_kernel_delay`.
"""


WAITED_FOR = (
    "waiting for the host to launch",
    "from kernel to kernel",
    "waiting for other queues",
)
HOST, KERNEL, OTHER = range(3)
"""What a queue waits for in a gap."""


@dataclass(frozen=True)
class QueueFigures:
    """One queue: its busy time, without the host's waits, and the gaps between its first and last
    span.
    """

    device: str
    queue: str
    spans: Count
    busy_seconds: Seconds
    busy_share: Share
    waiting_seconds: Seconds
    """How long the host waited for a device; 0 on a device's own queue."""
    gaps: Count
    gap_seconds: Seconds
    longest_gap_seconds: Seconds


@dataclass(frozen=True)
class QueueIdleness:
    """The gaps of one queue of a device by what it waited for: their seconds, which add up, and
    their numbers.
    """

    device: str
    queue: str
    idle_seconds: Seconds
    host_wait_seconds: Seconds
    kernel_wait_seconds: Seconds
    other_wait_seconds: Seconds
    host_waits: Count
    kernel_waits: Count
    other_waits: Count


@dataclass(frozen=True)
class QueueLength:
    """One queue of a device, from its first launch to the start of its last operation."""

    device: str
    queue: str
    operations: Count
    """Those whose launch is known; each is two changes of the length."""
    mean_length: Ratio
    """Over time; 0 if no time passed."""
    mean_length_at_changes: Ratio
    longest: Count


def queue_figures(case: CaseSpans) -> tuple[QueueFigures, ...]:
    """Compute the figures of every queue, those of devices by name, then the host's."""
    rows = []
    waits_of_threads = _waits_in_calls(case)
    places_of_queues = groups_of(case.spans.queue_of)
    for (device, queue), places in zip(case.spans.queues, places_of_queues, strict=True):
        working = case.covered(places[~case.waits[places]])
        waiting = waits_of_threads.get((device, queue), NO_INTERVALS)
        covered = union(case.intervals(places), waiting)
        gap_lengths = covered[1:, 0] - covered[:-1, 1]
        busy = total_length(working) - total_length(intersection(working, waiting))
        rows.append(
            QueueFigures(
                device=device,
                queue=queue,
                spans=len(places),
                busy_seconds=in_seconds(busy),
                busy_share=busy / case.nanoseconds if case.nanoseconds else 0.0,
                waiting_seconds=in_seconds(total_length(covered) - busy),
                gaps=len(gap_lengths),
                gap_seconds=in_seconds(gap_lengths.sum()),
                longest_gap_seconds=in_seconds(gap_lengths.max(initial=0)),
            )
        )

    def order(row: QueueFigures) -> tuple[object, ...]:
        return row.device == HOST_DEVICE, queue_order(row.device, row.queue)

    return tuple(sorted(rows, key=order))


def _waits_in_calls(case: CaseSpans) -> dict[Queue, np.ndarray]:
    """Return by the host's threads when they waited in the runtime's calls, in operators or not."""
    calls = case.host_calls
    if calls is None:
        return {}
    waits = np.flatnonzero(calls.roles == ROLES.index("wait"))
    waits_of_threads = {}
    for same_thread in groups_of(calls.queue_of[waits]):
        on_thread = waits[same_thread]
        waited = union(np.stack((calls.starts[on_thread], calls.ends[on_thread]), axis=1))
        thread = calls.queues[calls.queue_of[on_thread[0]]]
        waits_of_threads[HOST_DEVICE, thread] = clip(waited, case.start, case.end)
    return waits_of_threads


def queue_idleness(case: CaseSpans, kernel_delay: int = KERNEL_DELAY) -> tuple[QueueIdleness, ...]:
    """Divide the gaps of every device's queue of a case, by name; `kernel_delay` is in
    nanoseconds.
    """
    return tuple(
        _idleness(case, device, queue, places, kernel_delay)
        for device, queue, places in _queues_by_name(case)
    )


def queue_lengths(case: CaseSpans) -> tuple[QueueLength, ...]:
    """Compute the length of every device's queue of a case, by name; queues without known launches
    are left out.
    """
    has_launch = case.operations & case.linked
    rows = []
    for device, queue, places in _queues_by_name(case):
        launched = places[has_launch[places]]
        if len(launched):
            launches, starts = case.spans.launched[launched], case.spans.starts[launched]
            rows.append(_length(device, queue, launches, starts))
    return tuple(rows)


def _queues_by_name(case: CaseSpans) -> Iterator[tuple[str, str, np.ndarray]]:
    """Give the devices' queues by name, and the places of their spans."""
    places_of = dict(zip(case.spans.queues, groups_of(case.spans.queue_of), strict=True))
    for device, queue in sorted(places_of, key=lambda queue: queue_order(*queue)):
        if device != HOST_DEVICE:
            yield device, queue, places_of[device, queue]


class Gaps(NamedTuple):
    """The gaps of one queue, an entry for each in all arrays: from when to when, and by whom."""

    starts: np.ndarray
    ends: np.ndarray
    waited_for: np.ndarray
    """Places in WAITED_FOR."""


def gaps_of_queue(case: CaseSpans, places: np.ndarray, kernel_delay: int) -> Gaps:
    """Return the gaps of a queue, whose spans stand at some places."""
    starts, ends = case.intervals(places).T
    # Each operation but the first, and when all before it had ended.
    launched, next_starts = case.spans.launched[places][1:], starts[1:]
    ended = np.maximum.accumulate(ends)[:-1]
    # What was never seen to be launched has the smallest number there is.
    kernel_or_other = np.where(next_starts - ended < kernel_delay, KERNEL, OTHER)
    waited_for = np.where(launched > ended, HOST, kernel_or_other)
    is_gap = next_starts > ended
    return Gaps(ended[is_gap], next_starts[is_gap], waited_for[is_gap])


def _idleness(
    case: CaseSpans, device: str, queue: str, places: np.ndarray, kernel_delay: int
) -> QueueIdleness:
    """Divide the gaps of one queue, whose spans stand at some places."""
    gaps = gaps_of_queue(case, places, kernel_delay)
    lengths = gaps.ends - gaps.starts
    counts = np.bincount(gaps.waited_for, minlength=len(WAITED_FOR)).tolist()
    times = [int(lengths[gaps.waited_for == waited].sum()) for waited in range(len(WAITED_FOR))]
    return QueueIdleness(
        device=device,
        queue=queue,
        idle_seconds=in_seconds(sum(times)),
        host_wait_seconds=in_seconds(times[HOST]),
        kernel_wait_seconds=in_seconds(times[KERNEL]),
        other_wait_seconds=in_seconds(times[OTHER]),
        host_waits=counts[HOST],
        kernel_waits=counts[KERNEL],
        other_waits=counts[OTHER],
    )


def _length(device: str, queue: str, launched: np.ndarray, starts: np.ndarray) -> QueueLength:
    """Return how long one queue was, whose operations were launched and started at some times."""
    times = np.concatenate((launched, starts))
    changes = np.repeat(np.array([1, -1]), len(starts))
    # Stable: of changes at the same time launches come first.
    order = np.argsort(times, kind="stable")
    lengths = np.cumsum(changes[order])
    lasted = np.diff(times[order])
    time = int(lasted.sum())
    # Times of a day in nanoseconds, times lengths of thousands, still fit in 64 bits.
    length_times_time = int((lasted * lengths[:-1]).sum())
    return QueueLength(
        device=device,
        queue=queue,
        operations=len(starts),
        mean_length=length_times_time / time if time else 0.0,
        mean_length_at_changes=int(lengths.sum()) / len(lengths),
        longest=int(lengths.max()),
    )
