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
from typing import Annotated

import numpy as np

from backends.profiling.timeline import HOST_DEVICE, KINDS, SpanKind, in_seconds, queue_order
from parallel_core.traces.case_spans import (
    CaseSpans,
    groups_of,
    intersection,
    places_by_key,
    total_length,
    union,
)
from parallel_core.traces.figures import Count, Lacking, Seconds, Share, ratio

FILLS = r"^(Memset|hipMemset|__amd_rocclr_fill)"
"""How the names of operations begin that fill memory, in traces of CUDA and of HIP."""
WITHIN_A_DEVICE = r"^(Memcpy DtoD|Memcpy D2D|MemcpyD2D)"
"""How the names of copies begin that stay in one device's memory."""


@dataclass(frozen=True)
class DeviceFigures:
    """One device: its time from its first operation to the end of its last one, and its
    collectives. The time that is neither idle nor computing only other operations took.
    """

    device: str
    seconds: Seconds
    idle_seconds: Seconds
    """How long no operation ran."""
    compute_seconds: Seconds
    """How long at least one kernel ran that is no collective, no copy and no fill of memory."""
    collective_seconds: Seconds
    """How long at least one kernel of a communication library ran."""
    hidden_collective_share: Annotated[Share | None, Lacking("no-exchange")]
    """The share of that which lay under the compute seconds."""


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
    computes = case.of_kind("compute") & ~case.named(FILLS)
    exchanges = case.of_kind("exchange")
    operations_of_device = places_by_key(case.device_of, np.flatnonzero(case.operations))
    rows = []
    for number, operations in operations_of_device.items():
        device, _ = case.spans.queues[number]
        if device == HOST_DEVICE:
            continue
        intervals = case.intervals(operations)
        lasted, busy = int(np.ptp(intervals)), total_length(union(intervals))
        computing = union(intervals[computes[operations]])
        exchanging = union(intervals[exchanges[operations]])
        hidden = total_length(intersection(exchanging, computing))
        rows.append(
            DeviceFigures(
                device=device,
                seconds=in_seconds(lasted),
                idle_seconds=in_seconds(lasted - busy),
                compute_seconds=in_seconds(total_length(computing)),
                collective_seconds=in_seconds(total_length(exchanging)),
                hidden_collective_share=ratio(hidden, total_length(exchanging)),
            )
        )
    return tuple(sorted(rows, key=lambda figures: queue_order(figures.device, "")))


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
