"""What the allreduces of peers are timed on: sizes, repetitions, and how each is checked."""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import without_garbage_collection

__all__ = ["drawn", "problem", "repetitions", "time_calls"]

LEAST, MOST = 5, 300
BYTES = 50e6


def drawn(size: int, device: int) -> np.ndarray:
    """Draw a device's vector of `size` bytes, float32."""
    return np.random.default_rng(device).standard_normal(size // 4, dtype=np.float32)


def problem(name: str, found: Sequence[np.ndarray]) -> list[str]:
    """Say where the vectors that every device got are not the sum of those that were drawn."""
    expected = sum(drawn(found[0].nbytes, device) for device in range(len(found)))
    error = max(relative_error(one, np.asarray(expected)) for one in found)
    return [] if error < 1e-5 else [f"{name} differs from NumPy's sum by {error:.1e}"]


def repetitions(size: int) -> int:
    """Choose how often an allreduce of `size` bytes is timed: the same for all peers, within a second or two."""
    return int(min(MOST, max(LEAST, BYTES / size)))


def time_calls(size: int, name: str, call: Callable[[], object]) -> Case:
    """Time a call that returns when all is done; a tenth of the calls before them, two at least, warm up."""
    count = repetitions(size)
    with without_garbage_collection():
        for _ in range(max(2, count // 10)):
            call()
        seconds = []
        for _ in range(count):
            start = perf_counter()
            call()
            seconds.append(perf_counter() - start)
    return Case(f"{name}, {size} B", tuple(seconds), ())
