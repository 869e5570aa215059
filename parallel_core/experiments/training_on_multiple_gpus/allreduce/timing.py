"""Time algorithms on vectors of one size, alternately, and the plain copies that bound them.

The vectors are zeros, and one algorithm's sums are the next one's vectors: zeros stay zeros however often they are
summed, while other numbers would overflow, and adding zeros takes as long as adding other numbers. That the sums are
right is checked apart, on numbers that show it.

The bare time of a sum is that of its additions: each device adds up a part of all vectors, as one unit and in separate
memory. Every algorithm needs as many additions; that it may share them out worse, and all copies, is its schedule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from time import perf_counter
from typing import TypeAlias

import numpy as np

from backends import Array, Backend, Device
from backends.arrays import row_ranges
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS, Allreduce
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidth import PLAIN_COPY, case_name
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.progress import part
from parallel_core.measurement.timing import Timing
from parallel_core.system.formatting import write_size

__all__ = ["Operation", "additions", "loaded", "measure_each", "summing", "swept_sizes", "time_repeated", "time_size"]

MIN_SECONDS = 0.002
"""The least that a timing takes, so that the timer and a single disturbance weigh little in it."""
LONG_SECONDS = 0.02
"""What takes as long in its first run needs no others to show that it need not be repeated."""
MAX_REPEATS = 1000
UNIT_BYTES, MAX_ADDITIONS = 2**24, 100
"""A unit adds as often as its vectors fit into so many bytes, and so often at most."""

Operation: TypeAlias = Callable[[], tuple[Array, ...]]
"""Launches something, and returns what is to be waited for."""


def swept_sizes(
    trial: Trial, sizes: Sequence[int], in_full: bool, left: Callable[[], float]
) -> Iterator[tuple[int, float]]:
    """Iterate over sizes in ascending order, each with the seconds that it may take: half of those that are `left`.

    Unless all are wanted, `in_full`, the sweep ends before a size that would take more than is left, judging by the
    size before it; a note says so. A size may take half of what is left, so that larger ones are reached.
    """
    before, took, last = left(), 0.0, 0
    for place, size in enumerate(sizes):
        if last and not in_full and took * size / last > before:
            ended = f"The budget of {trial.budget:g} s ended the sweep at {write_size(last)} of {write_size(sizes[-1])}"
            trial.notes.append(f"{ended} (--budget gives more, --sizes chooses others).")
            return
        with part(place / len(sizes), (place + 1) / len(sizes)):
            yield size, before / 2
        now = left()
        before, took, last = now, before - now, size


def time_size(trial: Trial, algorithms: Sequence[str], size: int, seconds: float) -> None:
    """Time copies of all vectors at once, each on its own device, and every algorithm, for about so many seconds."""
    backend, zeros = trial.backend, np.zeros(size // 4, dtype=np.float32)
    vectors, buffers = loaded(backend, zeros), loaded(backend, zeros)

    def copy() -> tuple[Array, ...]:
        nonlocal buffers
        each = zip(vectors, backend.devices, buffers, strict=True)
        buffers = tuple(backend.copy_to(vector, device, out=buffer) for vector, device, buffer in each)
        return buffers

    def reduce(algorithm: Allreduce) -> tuple[Array, ...]:
        nonlocal vectors
        vectors = algorithm(backend, vectors)
        return vectors

    operations: dict[str, Operation] = {
        PLAIN_COPY: copy,
        **{name: partial(reduce, ALGORITHMS[name]) for name in algorithms},
    }
    takes = {name: partial(measure_each, backend, operation) for name, operation in operations.items()}
    bare = additions(backend, len(zeros), max(1, min(MAX_ADDITIONS, UNIT_BYTES // size)))
    time_repeated(trial, takes, size, seconds, dict.fromkeys(algorithms, bare))


def loaded(backend: Backend, values: np.ndarray) -> tuple[Array, ...]:
    """Load the same values on every device."""
    return tuple(backend.asarray(values, device) for device in backend.devices)


def summing(backend: Backend, algorithm: Allreduce, values: np.ndarray) -> Operation:
    """Return what sums a vector of each device again and again, one time's sums being the next one's vectors."""
    vectors = loaded(backend, values)

    def reduce() -> tuple[Array, ...]:
        nonlocal vectors
        vectors = algorithm(backend, vectors)
        return vectors

    return reduce


def additions(backend: Backend, length: int, times: int) -> list[Work]:
    """Make the units in which each device adds up its part of all vectors, so many times."""

    def add_up(total: Array, *others: Array) -> Array:
        for _ in range(times):
            for other in others:
                total = backend.ops.add(total, other)
        return total

    def on(device: Device, rows: slice) -> Work:
        zeros = np.zeros(rows.stop - rows.start, dtype=np.float32)
        parts = [backend.asarray(zeros, device) for _ in backend.devices]
        unit = partial(backend.launch, backend.ops.as_unit(add_up), *parts)
        return Work(unit, unit, times=1 / times)

    each = zip(backend.devices, row_ranges(length, len(backend.devices)), strict=True)
    return [on(device, rows) for device, rows in each]


def time_repeated(
    trial: Trial,
    takes: Mapping[str, Callable[[int], Timing]],
    size: int,
    seconds: float,
    bare: Mapping[str, Sequence[Work]] | None = None,
) -> None:
    """Time alternately what takes a number of repeats, which the fastest of a few runs decides, and is of once.

    There are fewer rounds, but three at least, if more would exceed so many seconds by these runs' times.
    """
    once = {name: _fastest(take) for name, take in takes.items()}
    repeats = {name: min(MAX_REPEATS, ceil(MIN_SECONDS / taken)) for name, taken in once.items()}
    a_round = sum(repeats[name] * taken for name, taken in once.items())
    for name, take in takes.items():
        trial.time(case_name(name, size), take=partial(take, repeats[name]), bare=(bare or {}).get(name))
    # The warm-up is a round, too.
    cases = trial.run(rounds=int(min(trial.rounds, max(FEWEST_FOR_A_VERDICT, seconds / a_round - 1))))
    for name in takes:
        named = case_name(name, size)
        trial.cases[named] = replace(cases[named], repeats=repeats[name])


def _fastest(take: Callable[[int], Timing]) -> float:
    first = take(1)[1]
    return first if first > LONG_SECONDS else min(first, *(take(1)[1] for _ in range(3)))


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
