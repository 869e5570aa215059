"""How many operations stood in each queue of a device: launched, and not yet begun.

A launch makes a queue longer by one, a start shorter, as in Holistic Trace Analysis (get_queue_length_summary), which
describes the lengths after each change, whatever time they lasted; the mean over time stands beside that one here. Of
changes at the same time, launches come first. Operations whose launch is not known are left out.
"""

from dataclasses import dataclass

import numpy as np

from backends.profiling import HOST_DEVICE, queue_order
from parallel_core.trace_analysis.case_spans import CaseSpans

__all__ = ["QueueLength", "queue_lengths"]


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


def queue_lengths(case: CaseSpans) -> tuple[QueueLength, ...]:
    """Compute the length of every device's queue of a case, by name; queues without known launches are left out."""
    known = case.operations & case.linked
    rows = [
        _length(device, queue, case.launched[own], case.starts[own])
        for place, (device, queue) in enumerate(case.queues)
        if device != HOST_DEVICE and np.any(own := known & (case.queue_of == place))
    ]
    return tuple(sorted(rows, key=lambda row: queue_order(row.device, row.queue)))


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
