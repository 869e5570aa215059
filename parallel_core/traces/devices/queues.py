"""Each queue: its busy time, and what it waited for.

What a queue waited for, of two operations that follow each other on it with a gap between them
(Holistic Trace Analysis, HTA, get_idle_time_breakdown):

- host wait: the second was launched after the first had ended, so the host did not launch fast
  enough;
- kernel wait: it was launched before, and the gap is shorter than a threshold: what a device itself
  takes;
- other wait: it was launched before, and the gap is longer: it waited for an event, of another
  queue say.

The threshold is 30 µs: HTA calls its 30 nanoseconds, but its times are whole
microseconds. HTA reckons a gap from the operation before, even if an earlier one ended later; here
it begins when all before it had ended. An operation without a known launch cannot have waited for
the host, there and here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import HOST_DEVICE, Queue, in_seconds, queue_order
from parallel_core.traces.case_spans import (
    NO_INTERVALS,
    CaseSpans,
    clip,
    groups_of,
    intersection,
    places_by_key,
    total_length,
    union,
)
from parallel_core.traces.figures import Count, Seconds, Share

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
"""What a queue waits for in a gap: places in WAITED_FOR."""


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
    """The gaps of one queue of a device by what it waited for: their seconds, which add up."""

    device: str
    queue: str
    idle_seconds: Seconds
    host_wait_seconds: Seconds
    kernel_wait_seconds: Seconds
    other_wait_seconds: Seconds


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
    waits_of_threads = {}
    for thread, waits in places_by_key(calls.queue_of, calls.with_role("wait")).items():
        waited = clip(union(calls.intervals(waits)), case.start, case.end)
        waits_of_threads[HOST_DEVICE, calls.queues[thread]] = waited
    return waits_of_threads


def queue_idleness(case: CaseSpans) -> tuple[QueueIdleness, ...]:
    """Divide the gaps of every device's queue of a case, by name."""
    places_of_queues = groups_of(case.spans.queue_of)
    rows = []
    for (device, queue), places in zip(case.spans.queues, places_of_queues, strict=True):
        if device == HOST_DEVICE:
            continue
        gaps = gaps_of_queue(case, places)
        lengths = gaps.ends - gaps.starts
        host, kernel, other = (
            int(lengths[gaps.waited_for == kind].sum()) for kind in (HOST, KERNEL, OTHER)
        )
        rows.append(
            QueueIdleness(
                device=device,
                queue=queue,
                idle_seconds=in_seconds(host + kernel + other),
                host_wait_seconds=in_seconds(host),
                kernel_wait_seconds=in_seconds(kernel),
                other_wait_seconds=in_seconds(other),
            )
        )
    return tuple(sorted(rows, key=lambda row: queue_order(row.device, row.queue)))


class Gaps(NamedTuple):
    """The gaps of one queue, an entry for each in all arrays: from when to when, and by whom."""

    starts: np.ndarray
    ends: np.ndarray
    waited_for: np.ndarray
    """Places in WAITED_FOR."""


def gaps_of_queue(case: CaseSpans, places: np.ndarray) -> Gaps:
    """Return the gaps of a queue, whose spans stand at some places."""
    starts, ends = case.intervals(places).T
    # Each operation but the first, and when all before it had ended.
    launched, next_starts = case.spans.launched[places][1:], starts[1:]
    ended = np.maximum.accumulate(ends)[:-1]
    # What was never seen to be launched has the smallest number there is.
    kernel_or_other = np.where(next_starts - ended < KERNEL_DELAY, KERNEL, OTHER)
    waited_for = np.where(launched > ended, HOST, kernel_or_other)
    is_gap = next_starts > ended
    return Gaps(ended[is_gap], next_starts[is_gap], waited_for[is_gap])
