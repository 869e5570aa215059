"""Each queue of a device: what it waited for between its operations, and how many operations stood in it.

Of two operations that follow each other on a queue, with a gap between them (get_idle_time_breakdown):

- host wait: the second was launched after the first had ended, so the host did not launch fast enough;
- kernel wait: it was launched before, and the gap is shorter than a threshold: what a device itself takes;
- other wait: it was launched before, and the gap is longer: it waited for an event, of another queue say.

The threshold is 30 µs unless given: HTA calls its 30 nanoseconds, but its times are whole microseconds. HTA reckons a
gap from the operation before, even if an earlier one ended later; here it begins when all before it had ended. An
operation without a known launch cannot have waited for the host, there and here.

How many stood in it, launched and not yet begun: a launch makes a queue longer by one, a start shorter, and of changes
at the same time launches come first. Holistic Trace Analysis (get_queue_length_summary) describes the lengths after
each change, whatever time they lasted; the mean over time stands beside that one here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from backends.profiling import HOST_DEVICE, in_seconds, queue_order
from parallel_core.trace_analysis.case_spans import CaseSpans

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


@dataclass(frozen=True)
class QueueLength:
    """One queue of a device, from its first launch to the start of its last operation."""

    device: str
    queue: str
    operations: int
    """Those whose launch is known; each is two changes of the length."""
    mean_length: float
    """Over time; 0 if no time passed."""
    mean_length_at_changes: float
    longest: int


def queue_idleness(case: CaseSpans, kernel_delay: int = KERNEL_DELAY) -> tuple[QueueIdleness, ...]:
    """Divide the gaps of every device's queue of a case, by name; `kernel_delay` is in nanoseconds."""
    return tuple(_idleness(case, device, queue, own, kernel_delay) for device, queue, own in _by_name(case))


def queue_lengths(case: CaseSpans) -> tuple[QueueLength, ...]:
    """Compute the length of every device's queue of a case, by name; queues without known launches are left out."""
    known = case.operations & case.linked
    return tuple(
        _length(device, queue, case.spans.launched[linked], case.spans.starts[linked])
        for device, queue, own in _by_name(case)
        if np.any(linked := own & known)
    )


def _by_name(case: CaseSpans) -> Iterator[tuple[str, str, np.ndarray]]:
    """Give the devices' queues by name, and which spans are theirs."""
    queues = case.spans.queues
    for device, queue in sorted(queues, key=lambda queue: queue_order(*queue)):
        if device != HOST_DEVICE:
            yield device, queue, case.spans.queue_of == queues.index((device, queue))


def _idleness(case: CaseSpans, device: str, queue: str, own: np.ndarray, kernel_delay: int) -> QueueIdleness:
    starts, ends = case.intervals(own).T
    launched, ended = case.spans.launched[own][1:], np.maximum.accumulate(ends)[:-1]
    idle = starts[1:] - ended
    gap = idle > 0
    # What was never seen to be launched has the smallest number there is.
    host = gap & (launched > ended)
    kernel = gap & ~host & (idle < kernel_delay)
    kinds = (gap, host, kernel, gap & ~host & ~kernel)
    whole, *seconds = (in_seconds(idle[kind].sum()) for kind in kinds)
    _, *counts = (int(kind.sum()) for kind in kinds)
    return QueueIdleness(device, queue, whole, seconds[0], seconds[1], seconds[2], counts[0], counts[1], counts[2])


def _length(device: str, queue: str, launched: np.ndarray, starts: np.ndarray) -> QueueLength:
    times = np.concatenate((launched, starts))
    changes = np.repeat(np.array([1, -1]), len(starts))
    order = np.argsort(times, kind="stable")
    times, lengths = times[order], np.cumsum(changes[order])
    lasted = np.diff(times)
    whole = int(lasted.sum())
    return QueueLength(
        device=device,
        queue=queue,
        operations=len(starts),
        # Times of a day in nanoseconds, times lengths of thousands, still fit in 64 bits.
        mean_length=int((lasted * lengths[:-1]).sum()) / whole if whole else 0.0,
        mean_length_at_changes=int(lengths.sum()) / len(lengths),
        longest=int(lengths.max()),
    )
