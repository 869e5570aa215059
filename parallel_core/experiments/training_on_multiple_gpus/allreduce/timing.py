"""Time algorithms on vectors of one size, in turn, and the plain copies that bound them.

The vectors are zeros, and one algorithm's sums are the next one's vectors: zeros stay zeros however often they are
summed, while other numbers would overflow, and adding zeros takes as long as adding other numbers. That the sums are
right is checked apart, on numbers that show it.

The bare time of a sum is that of its additions: each device adds up a part of all vectors, as one unit and in memory of
its own. Every algorithm needs as many additions; that it may share them out worse, and all copies, is its schedule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from time import perf_counter
from typing import TypeAlias

import numpy as np

from backends import Array, Backend, Device
from backends.arrays import row_ranges
from parallel_core.experiments.measuring import NO_UNITS, Units, take_in_turn
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS, Allreduce
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing
from parallel_core.system.formatting import write_size

__all__ = ["NATIVE", "ONE_STREAM", "PLAIN_COPY", "Operation", "measure_each", "time_repeated", "time_size"]

NATIVE = "native"
PLAIN_COPY = "plain copy"
ONE_STREAM = "one TCP stream"
MIN_SECONDS = 0.002
"""The least that a timing takes, so that the timer and a single disturbance weigh little in it."""
LONG_SECONDS = 0.02
"""What takes as long in its first run needs no others to show that it need not be repeated."""
MAX_REPEATS = 1000
UNIT_BYTES, MAX_ADDITIONS = 2**24, 100
"""A unit adds as often as its vectors fit into so many bytes, and so often at most."""

Operation: TypeAlias = Callable[[], tuple[Array, ...]]
"""Launches something, and returns what is to be waited for."""


def time_size(backend: Backend, algorithms: Sequence[str], size: int, rounds: int, budget: float) -> dict[str, Case]:
    """Time copies of all vectors at once, each on its own device, and every algorithm; return the cases by name.

    `size` is that of a vector of float32, in bytes. For rounds that fit the budget of seconds see `time_repeated`.
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
    additions = max(1, min(MAX_ADDITIONS, UNIT_BYTES // size))
    launches = _additions_as_units(backend, len(zeros), additions)
    units = Units(launches, {_case_name(name, size): list(launches) for name in algorithms})
    cases = time_repeated(backend, takes, size, rounds, budget, units)
    return {
        name: replace(case, bare_seconds=tuple(seconds / additions for seconds in case.bare_seconds))
        for name, case in cases.items()
    }


def _additions_as_units(backend: Backend, length: int, times: int) -> dict[str, Callable[[], Array]]:
    """Make the units in which each device adds up its part of all vectors, so many times."""
    add = backend.ops.add

    def add_up(total: Array, *others: Array) -> Array:
        for _ in range(times):
            for other in others:
                total = add(total, other)
        return total

    def on(device: Device, rows: slice) -> Callable[[], Array]:
        zeros = np.zeros(rows.stop - rows.start, dtype=np.float32)
        parts = [backend.asarray(zeros, device) for _ in backend.devices]
        return partial(backend.launch, backend.ops.as_unit(add_up), *parts)

    each = zip(backend.devices, row_ranges(length, len(backend.devices)), strict=True)
    return {f"additions on {device}": on(device, rows) for device, rows in each}


def time_repeated(
    backend: Backend,
    takes: Mapping[str, Callable[[int], Timing]],
    size: int,
    rounds: int,
    budget: float,
    units: Units = NO_UNITS,
) -> dict[str, Case]:
    """Time in turn what takes a number of repeats, which the fastest of a few runs decides; return cases by name.

    There are fewer rounds, but three at least, if more would exceed the budget of seconds by these runs' times.
    """
    once = {name: _fastest(take) for name, take in takes.items()}
    repeats = {name: min(MAX_REPEATS, ceil(MIN_SECONDS / seconds)) for name, seconds in once.items()}
    a_round = sum(repeats[name] * seconds for name, seconds in once.items())
    # The warm-up is a round, too.
    fitting = max(FEWEST_FOR_A_VERDICT, int(budget / a_round) - 1)
    named = {_case_name(name, size): partial(take, repeats[name]) for name, take in takes.items()}
    cases = take_in_turn(backend, named, min(rounds, fitting), units=units)
    return {name: replace(cases[_case_name(name, size)], repeats=repeats[name]) for name in takes}


def _fastest(take: Callable[[int], Timing]) -> float:
    first = take(1)[1]
    return first if first > LONG_SECONDS else min(first, *(take(1)[1] for _ in range(3)))


def _case_name(name: str, size: int) -> str:
    return f"{name}, {write_size(size)}"


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
