"""Probes from which a run chooses sizes, and the bounds of these, whatever an engine lets it
measure.

An engine that computes nothing, or that says too early that it is done, would otherwise get
matrices that no machine can hold, or multiply within the budget.
"""

from collections.abc import Callable
from statistics import median

from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.timing import Timing, measure
from parallel_core.system.machine import free_memory, usable_cores

PROBES, FEW_PROBES, MANY_SECONDS = 8, 3, 0.1
"""The number of timings of a probe, their number if they take long, and the seconds of the few from
which on they do.
"""

MOST_OPERATIONS_OF_CORE = 5e11
"""The floating-point operations a second that no core of a CPU reaches in float32.

Two multiply-adds of 16 numbers a cycle, at 5 GHz, are 3.2e11.
"""
MOST_OPERATIONS_OF_GPU = 1e16
"""The floating-point operations a second that no GPU reaches in float32, nor in TF32."""
SHARE_OF_MEMORY = 0.1
"""The share of the free memory that chosen matrices may take."""
MATRICES_ON_DEVICE, MATRICES_ON_HOST = 60, 4
"""The most matrices of a chosen size on a device, which is memory of the host if it is a CPU; and
on the host alone, where products are compared with NumPy's.
"""
BYTES_OF_ELEMENT = 4


def median_timing(trial: Trial, launch: Callable[[], object]) -> Timing:
    """Time a launch a few times; return the median seconds until it was issued, and until done.

    The caller has warmed up the devices.
    """
    trial.settle()
    timings = [measure(trial.backend, launch) for _ in range(FEW_PROBES)]
    if sum(done for _, done in timings) < MANY_SECONDS:
        timings += [measure(trial.backend, launch) for _ in range(PROBES - FEW_PROBES)]
    median_issued = median(issued for issued, _ in timings)
    median_done = median(done for _, done in timings)
    left_over = trial.settle() / len(timings)
    if left_over > median_done:
        # The engine had said too early that all was done.
        median_done += left_over
    return median_issued, median_done


def least_seconds(trial: Trial, size: int) -> float:
    """Return the seconds that a multiplication of square matrices takes on any device, at least."""
    on_gpu = trial.devices[0].kind == "gpu"
    # A CPU device may have several threads, and a library more than it was told.
    fastest = MOST_OPERATIONS_OF_GPU if on_gpu else MOST_OPERATIONS_OF_CORE * usable_cores()
    return 2 * size**3 / fastest


def largest_size(trial: Trial) -> int:
    """Return the largest side of matrices that may be chosen, a multiple of 8.

    With it, all that a run keeps on the host takes a tenth of the free memory.
    """
    matrices = MATRICES_ON_HOST
    if trial.devices[0].kind == "cpu":
        matrices += MATRICES_ON_DEVICE * len(trial.devices)
    elements = SHARE_OF_MEMORY * free_memory() / BYTES_OF_ELEMENT / matrices
    return max(8, int(elements**0.5) // 8 * 8)
