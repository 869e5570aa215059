"""What each queue of a device waited for between its operations, as Holistic Trace Analysis tells the kinds apart.

Of two operations that follow each other on a queue, with a gap between them (get_idle_time_breakdown):

- host wait: the second was launched after the first had ended, so the host did not launch fast enough;
- kernel wait: it was launched before, and the gap is shorter than a threshold: what a device itself takes;
- other wait: it was launched before, and the gap is longer: it waited for an event, of another queue say.

The threshold is 30 µs unless told: HTA calls its 30 nanoseconds, but its times are whole microseconds. There a gap is
reckoned from the operation before, even if that one ended before an earlier one, and may be negative; here it is
reckoned from when the queue's operations so far had all ended. An operation without a known launch cannot have waited
for the host, there and here.
"""

from dataclasses import dataclass

import numpy as np

from backends.profiling import HOST_DEVICE, in_seconds, queue_order
from parallel_core.trace_analysis.case_spans import CaseSpans

__all__ = ["KERNEL_DELAY", "QueueIdleness", "queue_idleness"]

KERNEL_DELAY = 30_000
"""Nanoseconds: a shorter gap between two operations is a kernel wait; HTA's `consecutive_kernel_delay`."""


@dataclass(frozen=True)
class QueueIdleness:
    """The gaps of one queue of a device by what it waited for: their seconds, which add up, and their numbers."""

    device: str
    queue: str
    idle_seconds: float
    host_wait_seconds: float
    kernel_wait_seconds: float
    other_wait_seconds: float
    host_waits: int
    kernel_waits: int
    other_waits: int


def queue_idleness(case: CaseSpans, kernel_delay: int = KERNEL_DELAY) -> tuple[QueueIdleness, ...]:
    """Divide the gaps of every device's queue of a case, by name; `kernel_delay` is in nanoseconds."""
    rows = [
        _idleness(case, place, device, queue, kernel_delay)
        for place, (device, queue) in enumerate(case.queues)
        if device != HOST_DEVICE
    ]
    return tuple(sorted(rows, key=lambda row: queue_order(row.device, row.queue)))


def _idleness(case: CaseSpans, place: int, device: str, queue: str, kernel_delay: int) -> QueueIdleness:
    own = np.flatnonzero(case.queue_of == place)
    ended = np.maximum.accumulate(case.ends[own])[:-1]
    idle = case.starts[own][1:] - ended
    gap = idle > 0
    # What was never seen to be launched has the smallest number there is.
    host = gap & (case.launched[own][1:] > ended)
    kernel = gap & ~host & (idle < kernel_delay)
    other = gap & ~host & ~kernel
    idle_seconds, host_seconds, kernel_seconds, other_seconds = (
        in_seconds(idle[kind].sum()) for kind in (gap, host, kernel, other)
    )
    host_waits, kernel_waits, other_waits = (int(kind.sum()) for kind in (host, kernel, other))
    return QueueIdleness(
        device,
        queue,
        idle_seconds,
        host_seconds,
        kernel_seconds,
        other_seconds,
        host_waits,
        kernel_waits,
        other_waits,
    )
