"""Each device: its time, divided, its collectives under its computation, and its operations by name.

The definitions are those of Holistic Trace Analysis (github.com/facebookresearch/HolisticTraceAnalysis,
get_temporal_breakdown and get_comm_comp_overlap). It counts kernels of NCCL and RCCL as communication, copies and fills
of memory as neither communication nor computation, and every other kernel as computation. The intervals of each class
are united per device. It rounds times to microseconds and leaves out the last ProfilerStep as it comes; here all
operations count, in nanoseconds. `CaseFigures.hidden_share` differs: copies are communication there, and all devices
are one.
"""

from dataclasses import dataclass

import numpy as np

from backends.profiling import HOST_DEVICE, SpanKind, in_seconds, queue_order
from backends.profiling.timeline import KINDS
from parallel_core.trace_analysis.case_spans import CaseSpans, intersection, total_length

FILLS = ("Memset", "hipMemset")
"""How the names of operations begin that fill memory, in traces of CUDA and of HIP."""


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
    devices = [device for device, _ in case.queues]
    compute, collective = kernels(case)
    return tuple(
        _figures(case, device, own, own & compute, own & collective)
        for device in sorted({*devices} - {HOST_DEVICE}, key=lambda device: queue_order(device, ""))
        if np.any(own := case.operations & (case.device_of == devices.index(device)))
    )


def kernels(case: CaseSpans) -> tuple[np.ndarray, np.ndarray]:
    """Return the masks of a case's spans that compute, not those that fill memory with a value, and of collectives."""
    fills = np.array([name.startswith(FILLS) for name in case.spans.operators], bool)
    compute = np.flatnonzero(case.kinds == KINDS.index("compute"))
    computes = np.zeros(len(case.kinds), bool)
    computes[compute] = ~fills[case.spans.operator_of[compute]]
    return computes, case.kinds == KINDS.index("exchange")


def operations_by_name(case: CaseSpans) -> tuple[OperationFigures, ...]:
    """Add up the operations of a case by name, those that took the most time first; by name where they took as long."""
    own = case.operations
    lengths = (case.ends - case.starts)[own]
    named = case.spans.name_of[own].astype(np.int64) * len(KINDS) + case.kinds[own]
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


def _figures(
    case: CaseSpans, device: str, own: np.ndarray, compute: np.ndarray, collective: np.ndarray
) -> DeviceFigures:
    whole = int(case.ends[own].max() - case.starts[own].min())
    working, computing = total_length(case.covered(own)), case.covered(compute)
    exchanging = case.covered(collective)
    exchanged, hidden = total_length(exchanging), total_length(intersection(exchanging, computing))
    return DeviceFigures(
        device=device,
        operations=int(own.sum()),
        seconds=in_seconds(whole),
        idle_seconds=in_seconds(whole - working),
        compute_seconds=in_seconds(total_length(computing)),
        non_compute_seconds=in_seconds(working - total_length(computing)),
        collective_seconds=in_seconds(exchanged),
        hidden_collective_seconds=in_seconds(hidden),
        hidden_collective_share=hidden / exchanged if exchanged else None,
    )
