"""Each device: its time, divided, its collectives under its computation, and its operations by name.

The definitions are those of Holistic Trace Analysis (github.com/facebookresearch/HolisticTraceAnalysis,
get_temporal_breakdown and get_comm_comp_overlap). It counts kernels of NCCL and RCCL as communication, copies and fills
of memory as neither communication nor computation, and every other kernel as computation. The intervals of each class
are united per device. It rounds times to microseconds and leaves out the last ProfilerStep as it comes; here all
operations count, in nanoseconds. `CaseFigures.hidden_share` differs: copies are communication there, and all devices
are one.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backends.profiling import HOST_DEVICE, SpanKind, in_seconds, queue_order
from backends.profiling.timeline import KINDS
from parallel_core.trace_analysis.case_spans import CaseSpans, intersection, total_length

FILLS = ("Memset", "hipMemset")
"""How the names of operations begin that fill memory, in traces of CUDA and of HIP."""


class Work(NamedTuple):
    """What some operations did together, in nanoseconds."""

    whole: int
    """From the first one's start to the last one's end; 0 without operations, as all that follows."""
    busy: int
    """How long at least one of them ran; `compute` and `collective` likewise, of kernels and of collectives."""
    compute: int
    collective: int
    hidden: int
    """How long both ran."""


@dataclass(frozen=True)
class DeviceFigures:
    """One device: its time from its first operation to the end of its last one, divided, and its collectives."""

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


def device_figures(case: CaseSpans) -> tuple[DeviceFigures, ...]:
    """Compute the figures of every device of a case, by name; the host is none."""
    devices = [device for device, _ in case.spans.queues]
    masks = kernels(case)
    return tuple(
        _figures(device, len(own), work_of(case, own, *masks))
        for device in sorted({*devices} - {HOST_DEVICE}, key=lambda device: queue_order(device, ""))
        if len(own := np.flatnonzero(case.operations & (case.device_of == devices.index(device))))
    )


def kernels(case: CaseSpans) -> tuple[np.ndarray, np.ndarray]:
    """Return the masks of a case's spans that compute, not those that fill memory with a value, and of collectives."""
    fills = np.array([name.startswith(FILLS) for name in case.spans.operators], bool)[case.spans.operator_of]
    return case.of_kind("compute") & ~fills, case.of_kind("exchange")


def work_of(case: CaseSpans, own: np.ndarray, compute: np.ndarray, collective: np.ndarray) -> Work:
    """Add up what the operations at some places did, by the masks that `kernels` returns."""
    computing, exchanging = case.covered(own[compute[own]]), case.covered(own[collective[own]])
    return Work(
        int(np.ptp(case.intervals(own))) if len(own) else 0,
        total_length(case.covered(own)),
        total_length(computing),
        total_length(exchanging),
        total_length(intersection(exchanging, computing)),
    )


def operations_by_name(case: CaseSpans) -> tuple[OperationFigures, ...]:
    """Add up the operations of a case by name, those that took the most time first; by name where they took as long."""
    own = case.operations
    lengths = case.lengths[own]
    named = case.spans.name_of[own].astype(np.int64) * len(KINDS) + case.spans.kinds[own]
    groups, group_of, counts = np.unique(named, return_inverse=True, return_counts=True)
    sums, longest = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    # Sums of integers are exact, those of weights in `bincount` are not.
    np.add.at(sums, group_of, lengths)
    np.maximum.at(longest, group_of, lengths)
    whole = int(sums.sum())
    names = [case.spans.names[group // len(KINDS)] for group in groups.tolist()]
    kinds = [KINDS[group % len(KINDS)] for group in groups.tolist()]
    rows = zip(names, kinds, counts.tolist(), sums.tolist(), longest.tolist(), strict=True)
    ordered = sorted(rows, key=lambda row: (-row[3], row[0]))
    return tuple(
        OperationFigures(
            name, kind, count, in_seconds(taken), in_seconds(taken) / count, in_seconds(most), taken / whole
        )
        for name, kind, count, taken, most in ordered
        if taken
    )


def _figures(device: str, operations: int, work: Work) -> DeviceFigures:
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
