"""Each device and its queues: its time, divided, its collectives under its computation, and its
operations by name.

The definitions are those of Holistic Trace Analysis
(github.com/facebookresearch/HolisticTraceAnalysis, get_temporal_breakdown and
get_comm_comp_overlap). It counts kernels of NCCL and RCCL as communication, copies and fills of
memory as neither communication nor computation, and every other kernel as computation. The
intervals of each class are united per device. It rounds times to microseconds and leaves out the
last ProfilerStep as it comes; here all operations count, in nanoseconds. `CaseFigures.hidden_share`
differs: copies are communication there, and all devices are one.

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

from backends.profiling.timeline import HOST_DEVICE, KINDS, SpanKind, in_seconds, queue_order
from parallel_core.traces.case_spans import (
    CaseSpans,
    groups_of,
    intersection,
    total_length,
    union,
)

FILLS = ("Memset", "hipMemset", "__amd_rocclr_fill")
"""How the names of operations begin that fill memory, in traces of CUDA and of HIP."""
WITHIN_A_DEVICE = ("Memcpy DtoD", "Memcpy D2D", "MemcpyD2D")
"""How the names of copies begin that stay in one device's memory."""
KERNEL_DELAY = 30_000
"""Nanoseconds: a shorter gap between two operations is a kernel wait; HTA's
`consecutive_kernel_delay`.
"""


class Work(NamedTuple):
    """What some operations did together, in nanoseconds."""

    whole: int
    """From the first one's start to the last one's end; 0 without operations, as all that
    follows.
    """
    busy: int
    """How long at least one of them ran."""
    compute: int
    """How long at least one kernel ran that computes."""
    collective: int
    """How long at least one collective ran."""
    hidden: int
    """How long a collective and such a kernel ran at the same time."""


@dataclass(frozen=True)
class DeviceFigures:
    """One device: its time from its first operation to the end of its last one, divided, and its
    collectives.
    """

    device: str
    operations: int
    seconds: float
    """The sum of the idle, compute and non-compute seconds."""
    idle_seconds: float
    """How long no operation ran."""
    compute_seconds: float
    """How long at least one kernel ran that is no collective, no copy and no fill of memory."""
    non_compute_seconds: float
    """How long only other devices ran."""
    collective_seconds: float
    """How long at least one kernel of a communication library ran."""
    hidden_collective_seconds: float
    """How much of that lay under the compute seconds."""
    hidden_collective_share: float | None
    """The same as a share of the collective seconds; None without collectives."""


@dataclass(frozen=True)
class OperationFigures:
    """All operations of one name and kind, on all devices."""

    name: str
    kind: SpanKind
    operations: int
    seconds: float
    """The sum of their durations, also where they ran at the same time."""
    mean_seconds: float
    longest_seconds: float
    share: float
    """Of the sum over all names."""


@dataclass(frozen=True)
class QueueIdleness:
    """The gaps of one queue of a device by what it waited for: their seconds, which add up, and
    their numbers.
    """

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


def device_figures(case: CaseSpans) -> tuple[DeviceFigures, ...]:
    """Compute the figures of every device of a case, by name; the host is none."""
    operations, device_of = np.flatnonzero(case.operations), case.device_of
    compute, collective = kernels(case)
    rows = []
    for same_device in groups_of(device_of[operations]):
        on_device = operations[same_device]
        device, _ = case.spans.queues[device_of[on_device[0]]]
        if device != HOST_DEVICE:
            work = work_of(case, on_device, compute, collective)
            rows.append(_figures(device, len(on_device), work))
    return tuple(sorted(rows, key=lambda figures: queue_order(figures.device, "")))


def kernels(case: CaseSpans) -> tuple[np.ndarray, np.ndarray]:
    """Return the masks of a case's spans that compute, not those that fill memory with a value, and
    of collectives.
    """
    return case.of_kind("compute") & ~named(case, FILLS), case.of_kind("exchange")


def named(case: CaseSpans, beginnings: tuple[str, ...]) -> np.ndarray:
    """Return the mask of a case's spans whose operators' names begin in one of some ways."""
    is_named = [name.startswith(beginnings) for name in case.spans.operators]
    return np.array(is_named, bool)[case.spans.operator_of]


def work_of(
    case: CaseSpans, places: np.ndarray, compute: np.ndarray, collective: np.ndarray
) -> Work:
    """Add up what the operations at some places did, by the masks that `kernels` returns."""
    intervals = case.intervals(places)
    computing = union(intervals[compute[places]])
    exchanging = union(intervals[collective[places]])
    return Work(
        whole=int(np.ptp(intervals)) if len(places) else 0,
        busy=total_length(union(intervals)),
        compute=total_length(computing),
        collective=total_length(exchanging),
        hidden=total_length(intersection(exchanging, computing)),
    )


def operations_by_name(case: CaseSpans) -> tuple[OperationFigures, ...]:
    """Add up the operations of a case by name, those that took the most time first; by name where
    they took as long.
    """
    spans, lengths = case.spans.select(case.operations), case.lengths[case.operations]
    time_of_all = int(lengths.sum())
    # A number for each name and kind.
    name_and_kind = spans.name_of.astype(np.int64) * len(KINDS) + spans.kinds
    rows = []
    for operations in groups_of(name_and_kind):
        first = spans[int(operations[0])]
        time = int(lengths[operations].sum())
        if time == 0:
            continue
        rows.append(
            OperationFigures(
                name=first.name,
                kind=first.kind,
                operations=len(operations),
                seconds=in_seconds(time),
                mean_seconds=in_seconds(time) / len(operations),
                longest_seconds=in_seconds(lengths[operations].max()),
                share=time / time_of_all,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))


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


def _figures(device: str, operations: int, work: Work) -> DeviceFigures:
    """Write the work of a device's operations, of which there is a number, in seconds."""
    return DeviceFigures(
        device=device,
        operations=operations,
        seconds=in_seconds(work.whole),
        idle_seconds=in_seconds(work.whole - work.busy),
        compute_seconds=in_seconds(work.compute),
        non_compute_seconds=in_seconds(work.busy - work.compute),
        collective_seconds=in_seconds(work.collective),
        hidden_collective_seconds=in_seconds(work.hidden),
        hidden_collective_share=work.hidden / work.collective if work.collective else None,
    )


def _queues_by_name(case: CaseSpans) -> Iterator[tuple[str, str, np.ndarray]]:
    """Give the devices' queues by name, and the places of their spans."""
    places_of = dict(zip(case.spans.queues, groups_of(case.spans.queue_of), strict=True))
    for device, queue in sorted(places_of, key=lambda queue: queue_order(*queue)):
        if device != HOST_DEVICE:
            yield device, queue, places_of[device, queue]


def _idleness(
    case: CaseSpans, device: str, queue: str, places: np.ndarray, kernel_delay: int
) -> QueueIdleness:
    """Divide the gaps of one queue, whose spans stand at some places."""
    starts, ends = case.intervals(places).T
    # Each operation but the first, and when all before it had ended.
    launched = case.spans.launched[places][1:]
    ended = np.maximum.accumulate(ends)[:-1]
    idle = starts[1:] - ended
    is_gap = idle > 0
    # What was never seen to be launched has the smallest number there is.
    is_host_wait = is_gap & (launched > ended)
    is_kernel_wait = is_gap & ~is_host_wait & (idle < kernel_delay)
    is_other_wait = is_gap & ~is_host_wait & ~is_kernel_wait
    return QueueIdleness(
        device=device,
        queue=queue,
        idle_seconds=in_seconds(idle[is_gap].sum()),
        host_wait_seconds=in_seconds(idle[is_host_wait].sum()),
        kernel_wait_seconds=in_seconds(idle[is_kernel_wait].sum()),
        other_wait_seconds=in_seconds(idle[is_other_wait].sum()),
        host_waits=int(is_host_wait.sum()),
        kernel_waits=int(is_kernel_wait.sum()),
        other_waits=int(is_other_wait.sum()),
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
