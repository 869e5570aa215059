"""Sums of vectors of one size: are they NumPy's, and how long do they take?

Algorithms are timed alternately, with the plain copies that bound them. The vectors are zeros, and
one algorithm's sums are the next one's vectors: zeros stay zeros however often they are summed,
while other numbers would overflow, and adding zeros takes as long. Whether sums are right is
checked apart, on fresh numbers, as nccl-tests does.

The bare time of a sum is that of its additions: each device adds up a part of all vectors, as one
unit and in separate memory. Every algorithm needs as many additions; that it may share them out
worse, and all copies, is its schedule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import ceil
from time import perf_counter

import numpy as np

from backends import Array, Backend
from backends.arrays import row_ranges
from parallel_core.experiments.runner.formulas import ratio
from parallel_core.experiments.runner.trial import Trial, budget_ended
from parallel_core.experiments.runner.work import Work
from parallel_core.experiments.training_on_multiple_gpus.allreduce import algorithms as ways
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidths import (
    PLAIN_COPY,
    case_of_size,
)
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.progress import part, tell
from parallel_core.measurement.timing import Timing
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import parse_sizes, write_size
from parallel_core.system.machine import describe_machine

ALL_SIZES = "4KiB..256MiB"
"""The sizes that are timed by default, as far as memory and budget last."""
ITEM = 4
"""The bytes of a float32."""
BLOCK = 2**18
"""The number of elements that are compared at once."""
HELD_AT_ONCE = 6
"""The most vectors per device that exist at the same time: drawn, loaded, divided and summed."""
MIN_SECONDS = 0.002
"""The shortest timing in which the timer and a single disturbance matter little."""
LONG_SECONDS = 0.02
"""The seconds of a first run that is surely long enough not to be repeated."""
MAX_REPEATS = 1000
UNIT_BYTES, MAX_ADDITIONS = 2**24, 100
"""The bytes that a unit adds in all, by repeating its additions, and the most repetitions."""
LARGEST = 2**24
"""The most bytes of a vector whose sum is timed on spread roots: larger ones show the same."""
SPREAD_ROOTS, ONE_ROOT = "parts on spread roots", "parts on one root"
CHECKED = {**ways.ALGORITHMS, ONE_ROOT: ways.on_one_root}

Operation = Callable[[], Sequence[Array]]
"""A function that launches something, and returns the arrays to wait for."""


COUNTED_CASE = "adding alone, counted"
"""The case whose additions are counted if another device adds at the same time."""
COUNTED_SUMS = 10
"""The number of times that each device adds up its part in a repetition of that case."""
COUNTED_BYTES = 2**26
"""The bytes of a vector in that case: with short additions, other work on the machine would decide
which of them run at the same time.
"""


def sizes_to_time(sizes: Sequence[int] | None, devices: int) -> tuple[int, ...]:
    """Return sizes in bytes, rounded down to whole elements, at least one, in ascending order.

    By default they are those of `ALL_SIZES` that fit this machine's memory on `devices` devices.
    Raises RequestError for one that does not fit.
    """
    memory = describe_machine()["memory_bytes"]
    if sizes is None:
        return tuple(
            size for size in parse_sizes(ALL_SIZES) if HELD_AT_ONCE * devices * size <= memory
        )
    rounded = sorted({max(1, size // ITEM) * ITEM for size in sizes})
    largest = rounded[-1]
    needed = HELD_AT_ONCE * devices * largest
    if needed > memory:
        raise RequestError(
            f"vectors of {write_size(largest)} on {devices} devices take about {needed / 1e9:.3g} "
            f"GB of memory, and this machine has {memory / 1e9:.3g} GB: choose smaller --sizes"
        )
    return tuple(rounded)


def swept_sizes(
    trial: Trial, sizes: Sequence[int], in_full: bool, seconds_left: Callable[[], float]
) -> Iterator[tuple[int, float]]:
    """Yield sizes in ascending order, each with the seconds that it may take.

    A size may take half of the seconds that are left, so that larger sizes are reached. Unless
    `in_full`, the sweep ends before a size that would take more than is left, judging by the size
    before it; a note says so.
    """
    available = seconds_left()
    seconds_by_byte = 0.0
    for number, size in enumerate(sizes):
        if number and not in_full and seconds_by_byte * size > available:
            done = f"{write_size(sizes[number - 1])} of {write_size(sizes[-1])}"
            trial.notes.append(budget_ended("the sweep", done))
            return
        with part(number / len(sizes), (number + 1) / len(sizes)):
            yield size, available / 2
        remaining = seconds_left()
        seconds_by_byte = (available - remaining) / size
        available = remaining


def check_sums(
    trial: Trial,
    algorithms: Sequence[str],
    length: int,
    rank: int = 0,
    counts: Sequence[int] | None = None,
) -> None:
    """Sum uniform float32 vectors by each algorithm, and compare the sums with NumPy's.

    `counts` are the numbers of devices of several ranks. A vector depends only on its length, rank
    and device, so that each rank can draw the vectors of all ranks.
    """

    def drawn(of_rank: int, device: int) -> np.ndarray:
        generator = np.random.default_rng([length, of_rank, device])
        return generator.random(length, dtype=np.float32)

    expected = np.zeros(length)
    for of_rank, devices in enumerate(counts or [len(trial.devices)]):
        for device in range(devices):
            expected += drawn(of_rank, device)
    of_this_rank = [drawn(rank, device) for device in range(len(trial.devices))]
    # Blocks stay in the cache while they are compared, and need little memory.
    blocks = 1 + length // BLOCK
    for name in algorithms:
        tell(f"check of {name}, {write_size(ITEM * length)}", 0.0)
        vectors = [
            trial.backend.asarray(x, device)
            for x, device in zip(of_this_rank, trial.devices, strict=True)
        ]
        for total in CHECKED[name](trial.backend, vectors):
            on_host = trial.backend.to_numpy(total)
            trial.check("sums", np.array_split(on_host, blocks), np.array_split(expected, blocks))


def time_size(trial: Trial, algorithms: Sequence[str], size: int, seconds: float) -> None:
    """Time every algorithm, and copies of all vectors at once, for about `seconds` in all."""
    backend = trial.backend
    vectors, buffers = zeros(backend, size), zeros(backend, size)

    def copy() -> Sequence[Array]:
        for number, device in enumerate(backend.devices):
            buffers[number] = backend.copy_to(vectors[number], device, out=buffers[number])
        return buffers

    operations: dict[str, Operation] = {PLAIN_COPY: copy}
    for name in algorithms:
        operations[name] = summing(backend, ways.ALGORITHMS[name], vectors)
    times = max(1, min(MAX_ADDITIONS, UNIT_BYTES // size))
    bare = additions(backend, size // ITEM, times)
    takes = _takes_of(backend, operations)
    time_repeated(trial, takes, size, seconds, dict.fromkeys(algorithms, bare))


def time_roots(trial: Trial, sizes: Sequence[int], seconds: float) -> None:
    """Time the sharded sum, and the same with all parts added up on one device.

    The vectors have the largest of the sizes up to `LARGEST`.
    """
    backend = trial.backend
    size = max((size for size in sizes if size <= LARGEST), default=min(sizes))
    check_sums(trial, (ONE_ROOT,), size // ITEM)
    operations = {
        SPREAD_ROOTS: summing(backend, ways.sharded, zeros(backend, size)),
        ONE_ROOT: summing(backend, ways.on_one_root, zeros(backend, size)),
    }
    time_repeated(trial, _takes_of(backend, operations), size, seconds)
    on_one_root, on_spread_roots = case_of_size(ONE_ROOT, size), case_of_size(SPREAD_ROOTS, size)
    trial.found_by("spread_roots_speedup", ratio(on_one_root, on_spread_roots))


def prepare_count(trial: Trial) -> None:
    """Register the case whose additions are counted, with as long vectors as fit the memory."""
    backend = trial.backend
    fitting = sizes_to_time(None, len(backend.devices))
    size = max(size for size in fitting if size <= COUNTED_BYTES)
    trial.takes[COUNTED_CASE] = partial(measure_each, backend, adding(backend, size), COUNTED_SUMS)


def adding(backend: Backend, size: int) -> Operation:
    """Return the operation that adds up, on each device, its part of all vectors."""
    devices = backend.devices
    parts = [ways.parts_of(backend, vector, len(devices)) for vector in zeros(backend, size)]
    terms_by_device = []
    for number, device in enumerate(devices):
        own_parts = [parts_of_vector[number] for parts_of_vector in parts]
        terms_by_device.append([backend.copy_to(part, device) for part in own_parts])
    add = partial(ways.added, backend)
    return lambda: [reduce(add, terms) for terms in terms_by_device]


def zeros(backend: Backend, size: int) -> list[Array]:
    """Load a vector of `size` bytes on every device."""
    values = np.zeros(size // ITEM, dtype=np.float32)
    return [backend.asarray(values, device) for device in backend.devices]


def summing(backend: Backend, algorithm: ways.Allreduce, vectors: list[Array]) -> Operation:
    """Return the operation that sums a vector of each device, and puts the sums in their place."""

    def sum_up() -> Sequence[Array]:
        vectors[:] = algorithm(backend, vectors)
        return vectors

    return sum_up


def additions(backend: Backend, length: int, times: int) -> list[Work]:
    """Make a work for each device: to add up its part of all vectors, `times` times in one unit."""

    def add_up(total: Array, *terms: Array) -> Array:
        for _ in range(times):
            for term in terms:
                total = backend.ops.add(total, term)
        return total

    works = []
    devices = backend.devices
    for device, rows in zip(devices, row_ranges(length, len(devices)), strict=True):
        zeros_of_part = np.zeros(rows.stop - rows.start, dtype=np.float32)
        parts = [backend.asarray(zeros_of_part, device) for _ in devices]
        unit = partial(backend.launch, backend.ops.as_unit(add_up), *parts)
        works.append(Work(unit, unit, times=1 / times))
    return works


def time_repeated(
    trial: Trial,
    takes: Mapping[str, Callable[[int], Timing]],
    size: int,
    seconds: float,
    bare: Mapping[str, Sequence[Work]] | None = None,
) -> None:
    """Time cases in turn; a timing repeats its case often enough to take `MIN_SECONDS`.

    Each function in `takes` returns the timing of a given number of repeats; a case's seconds are
    those of one repeat. A few runs show how long a repeat takes. If all rounds would exceed
    `seconds`, there are fewer of them, but at least three.
    """
    seconds_of_round = 0.0
    for name, take in takes.items():
        seconds_of_one = _seconds_of_one(take)
        repeats = min(MAX_REPEATS, ceil(MIN_SECONDS / seconds_of_one))
        seconds_of_round += repeats * seconds_of_one
        bare_works = bare.get(name, ()) if bare else ()
        works = [replace(work, times=repeats * work.times) for work in bare_works]
        trial.time(
            case_of_size(name, size), take=partial(take, repeats), bare=works, repeats=repeats
        )
    # The warm-up takes as long as a round.
    fitting = seconds / seconds_of_round - 1
    rounds = min(trial.rounds, max(FEWEST_FOR_A_VERDICT, fitting))
    trial.run(rounds=int(rounds))


def _seconds_of_one(take: Callable[[int], Timing]) -> float:
    """Return the seconds of one repeat: of the fastest of four runs, or of one if that is long."""
    _, seconds = take(1)
    if seconds > LONG_SECONDS:
        return seconds
    for _ in range(3):
        _, seconds_of_run = take(1)
        seconds = min(seconds, seconds_of_run)
    return seconds


def _takes_of(
    backend: Backend, operations: Mapping[str, Operation]
) -> dict[str, Callable[[int], Timing]]:
    """Return, for each operation, the function that times a number of repeats."""
    return {
        name: partial(measure_each, backend, operation) for name, operation in operations.items()
    }


def measure_each(backend: Backend, operation: Operation, repeats: int) -> Timing:
    """Repeat an operation, and wait for its results each time; return the timing of all repeats."""
    backend.waitall()
    dispatch = 0.0
    start = perf_counter()
    for _ in range(repeats):
        launched = perf_counter()
        results = operation()
        dispatch += perf_counter() - launched
        backend.wait(results)
    return dispatch, perf_counter() - start
