"""Each device: its time, divided, its collectives under its computation, and its operations by
name.

The definitions are those of Holistic Trace Analysis
(github.com/facebookresearch/HolisticTraceAnalysis, get_temporal_breakdown and
get_comm_comp_overlap). It counts kernels of NCCL and RCCL as communication, copies and fills of
memory as neither communication nor computation, and every other kernel as computation. The
intervals of each class are united per device. It rounds times to microseconds and leaves out the
last ProfilerStep as it comes; here all operations count, in nanoseconds. `CaseFigures.hidden_share`
differs: copies are communication there, and all devices are one.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from backends.profiling.timeline import HOST_DEVICE, KINDS, SpanKind, in_seconds, queue_order
from parallel_core.traces.case_spans import (
    CaseSpans,
    groups_of,
    intersection,
    total_length,
    union,
)
from parallel_core.traces.figures import Count, Lacking, Seconds, Share

FILLS = r"^(Memset|hipMemset|__amd_rocclr_fill)"
"""How the names of operations begin that fill memory, in traces of CUDA and of HIP."""
WITHIN_A_DEVICE = r"^(Memcpy DtoD|Memcpy D2D|MemcpyD2D)"
"""How the names of copies begin that stay in one device's memory."""


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
    operations: Count
    seconds: Seconds
    """The sum of the idle, compute and non-compute seconds."""
    idle_seconds: Seconds
    """How long no operation ran."""
    compute_seconds: Seconds
    """How long at least one kernel ran that is no collective, no copy and no fill of memory."""
    non_compute_seconds: Seconds
    """How long only other devices ran."""
    collective_seconds: Seconds
    """How long at least one kernel of a communication library ran."""
    hidden_collective_seconds: Seconds
    """How much of that lay under the compute seconds."""
    hidden_collective_share: Annotated[Share | None, Lacking("no-exchange")]
    """The same as a share of the collective seconds; None without collectives."""


@dataclass(frozen=True)
class OperationFigures:
    """All operations of one name and kind, on all devices."""

    name: str
    kind: SpanKind
    operations: Count
    seconds: Seconds
    """The sum of their durations, also where they ran at the same time."""
    mean_seconds: Seconds
    longest_seconds: Seconds
    share: Share
    """Of the sum over all names."""


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
    return case.of_kind("compute") & ~case.named(FILLS), case.of_kind("exchange")


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
