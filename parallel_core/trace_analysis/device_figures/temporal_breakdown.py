"""The time of each device, divided, and its collectives under its computation, as Holistic Trace Analysis defines them.

Holistic Trace Analysis (github.com/facebookresearch/HolisticTraceAnalysis, get_temporal_breakdown and
get_comm_comp_overlap) counts kernels of NCCL and RCCL as communication, copies and fills of memory as neither
communication nor computation, and every other kernel as computation. The intervals of each class are united per device.
It rounds times to microseconds and leaves out the last ProfilerStep as it comes; here all operations count, in
nanoseconds. `CaseFigures.hidden_share` differs: copies are communication there, and all devices are one.
"""

from dataclasses import dataclass

import numpy as np

from backends.profiling import HOST_DEVICE, in_seconds, queue_order
from parallel_core.trace_analysis.case_spans import KINDS, CaseSpans
from parallel_core.trace_analysis.interval_sets import intersection, total_length, union

__all__ = ["DeviceFigures", "device_figures", "fills_memory"]

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
    """How long only others ran."""
    collective_seconds: float
    """How long at least one kernel of a communication library ran."""
    hidden_collective_seconds: float
    """How much of that lay under the compute seconds."""
    hidden_collective_share: float | None
    """The same as a share of the collective seconds; None without collectives."""


def device_figures(case: CaseSpans) -> tuple[DeviceFigures, ...]:
    """Compute the figures of every device of a case, by name; the host is none."""
    devices = [device for device, _ in case.queues]
    names = sorted({*devices} - {HOST_DEVICE}, key=lambda device: queue_order(device, ""))
    number_of = np.array([names.index(device) if device in names else -1 for device in devices], dtype=np.intp)
    device_of = number_of[case.queue_of]
    operations, fills = case.operations, fills_memory(case)
    compute = (case.kinds == KINDS.index("compute")) & ~fills
    collective = case.kinds == KINDS.index("exchange")
    return tuple(
        _figures(case, device, own, own & compute, own & collective)
        for place, device in enumerate(names)
        if np.any(own := operations & (device_of == place))
    )


def fills_memory(case: CaseSpans) -> np.ndarray:
    """Return whether each span of a case fills memory with a value, by the framework's own name of it."""
    fills = np.array([name.startswith(FILLS) for name in case.spans.operators], bool)
    return fills[case.spans.operator_of] if len(fills) else np.zeros(0, bool)


def _figures(
    case: CaseSpans, device: str, own: np.ndarray, compute: np.ndarray, collective: np.ndarray
) -> DeviceFigures:
    whole = int(case.ends[own].max() - case.starts[own].min())
    working, computing = total_length(union(case.intervals(own))), union(case.intervals(compute))
    exchanging = union(case.intervals(collective))
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
