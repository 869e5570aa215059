"""Time algorithms on vectors of one size, in turn, and the plain copies that bound them.

The vectors are zeros, and one algorithm's sums are the next one's vectors: zeros stay zeros however often they are
summed, while other numbers would overflow, and adding zeros takes as long as adding other numbers. That the sums are
right is checked apart, on numbers that show it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from time import perf_counter

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS, Allreduce
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing, interleave
from parallel_core.system.formatting import write_size

__all__ = ["NATIVE", "ONE_STREAM", "PLAIN_COPY", "measure_each", "time_repeated", "time_size"]

NATIVE = "native"
PLAIN_COPY = "plain copy"
ONE_STREAM = "one TCP stream"
MIN_SECONDS = 0.002
"""The least that a timing takes, so that the timer and a single disturbance weigh little in it."""
MAX_REPEATS = 1000

Operation = Callable[[], tuple[Array, ...]]


def time_size(backend: Backend, algorithms: Sequence[str], size: int, rounds: int) -> dict[str, Case]:
    """Time copies of all vectors at once, each on its own device, and every algorithm; return the cases by name.

    `size` is that of a vector of float32, in bytes.
    """
    zeros = np.zeros(size // 4, dtype=np.float32)
    vectors = tuple(backend.asarray(zeros, device) for device in backend.devices)
    buffers = tuple(backend.asarray(zeros, device) for device in backend.devices)

    def copy() -> tuple[Array, ...]:
        nonlocal buffers
        each = zip(vectors, backend.devices, buffers, strict=True)
        buffers = tuple(backend.copy_to(vector, device, out=buffer) for vector, device, buffer in each)
        return buffers

    def reduce(algorithm: Allreduce) -> tuple[Array, ...]:
        nonlocal vectors
        vectors = algorithm(backend, vectors)
        return vectors

    operations: dict[str, Operation] = {PLAIN_COPY: copy}
    operations |= {name: partial(reduce, ALGORITHMS[name]) for name in algorithms}
    takes = {name: partial(measure_each, backend, operation) for name, operation in operations.items()}
    return time_repeated(takes, size, rounds)


def time_repeated(takes: Mapping[str, Callable[[int], Timing]], size: int, rounds: int) -> dict[str, Case]:
    """Time in turn what takes a number of repeats, which the fastest of a few runs decides; return cases by name."""
    repeats = {
        name: min(MAX_REPEATS, ceil(MIN_SECONDS / min(take(1)[1] for _ in range(4)))) for name, take in takes.items()
    }
    cases = interleave(
        {f"{name}, {write_size(size)}": partial(take, repeats[name]) for name, take in takes.items()}, rounds
    )
    return {name: replace(case, repeats=repeats[name]) for name, case in zip(takes, cases, strict=True)}


def measure_each(backend: Backend, operation: Operation, repeats: int) -> Timing:
    """Repeat an operation on idle devices, waiting for its results each time; return the mean timing of one."""
    backend.waitall()
    dispatch = 0.0
    start = perf_counter()
    for _ in range(repeats):
        launched = perf_counter()
        results = operation()
        dispatch += perf_counter() - launched
        backend.wait(results)
    return dispatch / repeats, (perf_counter() - start) / repeats
