"""What the allreduces of peers on two devices are timed on: vectors, repetitions, and how each is checked."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import without_garbage_collection

__all__ = ["drawn", "time_calls", "time_sizes"]

MIN_REPETITIONS, MAX_REPETITIONS = 5, 300
BYTES = 50e6


def drawn(size: int, device: int) -> np.ndarray:
    """Draw a device's vector of `size` bytes, float32."""
    return np.random.default_rng(device).standard_normal(size // 4, dtype=np.float32)


def check_sum(name: str, results: Sequence[np.ndarray]) -> list[str]:
    """Return a sentence if what a device got is not the sum of both devices' drawn vectors."""
    expected = drawn(results[0].nbytes, 0) + drawn(results[0].nbytes, 1)
    error = max(relative_error(result, expected) for result in results)
    return [] if error < 1e-5 else [f"{name} differs from NumPy's sum by {error:.1e}"]


def repetitions(size: int) -> int:
    """Return how often to time an allreduce of `size` bytes: the same for all peers, in a second or two."""
    return int(min(MAX_REPETITIONS, max(MIN_REPETITIONS, BYTES / size)))


def time_calls(size: int, name: str, call: Callable[[], object]) -> Case:
    """Time a call that returns when all is done, after a tenth as many calls to warm up, at least two."""
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


def time_sizes(
    name: str,
    sizes: Sequence[int],
    load: Callable[[int], list[Any]],
    call: Callable[[list[Any]], object],
    to_numpy: Callable[[Any], np.ndarray],
) -> tuple[list[Case], list[str]]:
    """Check a single call at each size, then time calls on zeros: sums of sums would overflow.

    `load` makes this process's vectors of a size, and `call` sums them in place. Returns the cases `NAME, SIZE B` and
    what is wrong.
    """
    cases, problems = [], []
    for size in sizes:
        data = load(size)
        call(data)
        problems += check_sum(f"{name}, {size} B", [to_numpy(x) for x in data])
        for x in data:
            x[:] = 0
        cases.append(time_calls(size, name, lambda data=data: call(data)))
    return cases, problems
