"""Sums of vectors of one size: are they NumPy's, how long do they and their parts take, and how
fast is that?

Algorithms are timed alternately, with the plain copies that bound them. The vectors are zeros, and
one algorithm's sums are the next one's vectors: zeros stay zeros however often they are summed,
while other numbers would overflow, and adding zeros takes as long. Whether sums are right is
checked apart, on fresh numbers, as nccl-tests does; bandwidths are its too (PERFORMANCE.md): GB are
decimal, and no figure is clamped.

The bare time of a sum is that of its additions: each device adds up a part of all vectors, as one
unit and in separate memory. Every algorithm needs as many additions; that it may share them out
worse, and all copies, is its schedule.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import ceil
from operator import itemgetter
from time import perf_counter
from typing import TypeAlias

import numpy as np

from backends import Array, Backend
from backends.arrays import row_ranges
from parallel_core.experiments.runner.formulas import ratio
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.experiments.training_on_multiple_gpus.allreduce import algorithms as ways
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.progress import part, tell
from parallel_core.measurement.timing import Timing
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import parse_sizes, write_size
from parallel_core.system.machine import describe_machine

ALL_SIZES = "4KiB..256MiB"
"""Those that are timed by default, as far as memory and budget last."""
ITEM = 4
"""Bytes of a float32."""
BLOCK = 2**18
"""Elements that are compared at once."""
HELD_AT_ONCE = 6
"""Vectors per device that exist at the same time, at most: drawn ones, loaded ones, their parts and
sums.
"""
MIN_SECONDS = 0.002
"""The least that a timing takes, so that the timer and a single disturbance weigh little in it."""
LONG_SECONDS = 0.02
"""What takes as long in its first run needs no others to show that it need not be repeated."""
MAX_REPEATS = 1000
UNIT_BYTES, MAX_ADDITIONS = 2**24, 100
"""A unit adds as often as its vectors fit into so many bytes, and so often at most."""
LARGEST = 2**24
"""Bytes of a vector whose parts are timed, at most: larger ones show the same."""
ALGBW, BUSBW = "algbw_gb_per_s", "busbw_gb_per_s"
PLAIN_COPY, ONE_STREAM = "plain copy", "one TCP stream"
SHARES = {PLAIN_COPY: "share_of_copy_bound", ONE_STREAM: "share_of_stream_bound"}
"""By what bounds a sum, the figure that says how near it comes."""
SPREAD_ROOTS, ONE_ROOT = "parts on spread roots", "parts on one root"
SUMS = {
    SPREAD_ROOTS: ways.sharded,
    ONE_ROOT: ways.on_one_root,
    "the native sum of the same": ways.native,
}
CHECKED = {**ways.ALGORITHMS, ONE_ROOT: ways.on_one_root}

Operation: TypeAlias = Callable[[], Sequence[Array]]
"""A function that launches something, and returns what is to be waited for."""


def algorithm_bandwidth(size: float, seconds: float) -> float:
    """Return the GB/s at which vectors of `size` bytes, one per device, are summed: size / time."""
    return size / seconds / 1e9


def _named(name: str, size: int) -> str:
    """Name the case of something that is done with vectors of `size` bytes."""
    return f"{name}, {write_size(size)}"


COUNTED_CASE = "adding alone, counted"
"""The case in which it is counted whether devices add up their parts at the same time."""
COUNTED_SUMS = 10
"""How often each device adds up its part in a repetition of that case."""
COUNTED_BYTES = 2**26
"""The bytes of a vector in that case.

Smaller additions are as short as launching them, or as a scheduler's slice, and load decides what
they run beside.
"""


def sizes_to_time(sizes: Sequence[int] | None, devices: int) -> tuple[int, ...]:
    """Round sizes down to whole elements, one at least; return them once each, in ascending order.

    By default they are all whose vectors this machine can hold on so many devices. Raises
    RequestError if there is none, and for vectors that it cannot hold.
    """
    memory = describe_machine()["memory_bytes"]
    if sizes is None:
        return tuple(
            size for size in parse_sizes(ALL_SIZES) if HELD_AT_ONCE * devices * size <= memory
        )
    if not sizes:
        raise RequestError("no size is given")
    rounded = sorted({max(1, size // ITEM) * ITEM for size in sizes})
    largest = rounded[-1]
    needed = HELD_AT_ONCE * devices * largest
    if needed > memory:
        raise RequestError(
            f"vectors of {write_size(largest)} on {devices} devices take about "
            f"{needed / 1e9:.3g} GB of memory, "
            f"and this machine has {memory / 1e9:.3g} GB: choose smaller --sizes"
        )
    return tuple(rounded)


def swept_sizes(
    trial: Trial, sizes: Sequence[int], in_full: bool, seconds_left: Callable[[], float]
) -> Iterator[tuple[int, float]]:
    """Iterate over sizes in ascending order, each with the seconds that it may take.

    Unless all are wanted, `in_full`, the sweep ends before a size that would take more than is
    left, judging by the size before it; a note says so. A size may take half of what is left, so
    that larger ones are reached.
    """
    available = seconds_left()
    seconds_by_byte = 0.0
    for number, size in enumerate(sizes):
        if number and not in_full and seconds_by_byte * size > available:
            ended = (
                f"The budget of {trial.budget:g} s ended the sweep at "
                f"{write_size(sizes[number - 1])} of {write_size(sizes[-1])}"
            )
            trial.notes.append(f"{ended} (--budget gives more, --sizes chooses others).")
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

    The sums on all devices are compared. The numbers are drawn by rank and device, so that each of
    several ranks, which have `counts` devices, can draw the others' too.
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
    """Time copies of all vectors at once, each on its own device, and every algorithm.

    That takes about `seconds`.
    """
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


def time_parts(trial: Trial, sizes: Sequence[int], seconds: float) -> None:
    """Time what sums of parts are made of.

    That is done at the largest size that does not take most of a budget. Timed are the sums of
    parts on spread roots and on one, which divide, copy and join alike, and the native one; and
    alternately with them dividing, copying, adding and joining in isolation.
    """
    backend = trial.backend
    size = max((size for size in sizes if size <= LARGEST), default=min(sizes))
    check_sums(trial, (ONE_ROOT,), size // ITEM)
    devices = backend.devices
    numbers = range(len(devices))
    vectors = zeros(backend, size)
    parts = [ways.parts_of(backend, vector, len(devices)) for vector in zeros(backend, size)]
    # What was copied before, so that joining copies nothing.
    copied = [
        [backend.copy_to(part, device) for part in of_device]
        for of_device, device in zip(parts, devices, strict=True)
    ]
    crossing = [(device, root) for root in numbers for device in numbers if device != root]

    def divide() -> list[Array]:
        divided = []
        for vector in vectors:
            divided += ways.parts_of(backend, vector, len(devices))
        return divided

    def copy() -> list[Array]:
        to_roots = [
            backend.copy_to(parts[number][root], devices[root]) for number, root in crossing
        ]
        back = [backend.copy_to(parts[root][root], devices[number]) for number, root in crossing]
        return to_roots + back

    def join() -> list[Array]:
        return [ways.joined(backend, of_device) for of_device in copied]

    operations: dict[str, Operation] = {}
    for name, algorithm in SUMS.items():
        operations[name] = summing(backend, algorithm, zeros(backend, size))
    operations["dividing alone"] = divide
    operations["copying alone"] = copy
    operations["adding alone"] = adding(backend, size)
    operations["joining alone"] = join
    time_repeated(trial, _takes_of(backend, operations), size, seconds)
    for name in operations:
        trial.found_by(f"{name.replace(' ', '_')}_seconds", itemgetter(_named(name, size)))
    on_one_root, on_spread_roots = _named(ONE_ROOT, size), _named(SPREAD_ROOTS, size)
    trial.found_by("spread_roots_speedup", ratio(on_one_root, on_spread_roots))


def prepare_count(trial: Trial) -> None:
    """Register the case in which additions are counted, which is not timed.

    Its vectors are as long whatever the sizes that are timed, as far as memory lasts.
    """
    backend = trial.backend
    fitting = sizes_to_time(None, len(backend.devices))
    size = max(size for size in fitting if size <= COUNTED_BYTES)
    trial.takes[COUNTED_CASE] = partial(measure_each, backend, adding(backend, size), COUNTED_SUMS)


def adding(backend: Backend, size: int) -> Operation:
    """Return the operation that adds up on each device its part of all vectors."""
    devices = backend.devices
    parts = [ways.parts_of(backend, vector, len(devices)) for vector in zeros(backend, size)]
    terms_by_device = [
        [backend.copy_to(parts_of_vector[number], device) for parts_of_vector in parts]
        for number, device in enumerate(devices)
    ]
    add = partial(ways.added, backend)
    return lambda: [reduce(add, terms) for terms in terms_by_device]


def zeros(backend: Backend, size: int) -> list[Array]:
    """Load a vector of `size` bytes on every device."""
    values = np.zeros(size // ITEM, dtype=np.float32)
    return [backend.asarray(values, device) for device in backend.devices]


def summing(backend: Backend, algorithm: ways.Allreduce, vectors: list[Array]) -> Operation:
    """Return the operation that sums a vector of each device again and again.

    One time's sums are the next one's vectors.
    """

    def sum_up() -> Sequence[Array]:
        vectors[:] = algorithm(backend, vectors)
        return vectors

    return sum_up


def additions(backend: Backend, length: int, times: int) -> list[Work]:
    """Make the units in which each device adds up its part of all vectors, `times` times."""

    def add_up(total: Array, *terms: Array) -> Array:
        for _ in range(times):
            for term in terms:
                total = backend.ops.add(total, term)
        return total

    works = []
    for device, rows in zip(backend.devices, row_ranges(length, len(backend.devices)), strict=True):
        part = np.zeros(rows.stop - rows.start, dtype=np.float32)
        parts = [backend.asarray(part, device) for _ in backend.devices]
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
    """Time cases alternately, each repeated as often as the fastest of a few runs decides.

    A function of `takes` takes the number of repeats. Cases are of once. There are fewer rounds,
    but three at least, if more would exceed `seconds` by these runs' times.
    """
    seconds_of_round = 0.0
    for name, take in takes.items():
        _, once = take(1)
        if once <= LONG_SECONDS:
            once = min(once, *(take(1)[1] for _ in range(3)))
        repeats = min(MAX_REPEATS, ceil(MIN_SECONDS / once))
        seconds_of_round += repeats * once
        works = [replace(work, times=repeats * work.times) for work in (bare or {}).get(name, ())]
        trial.time(_named(name, size), take=partial(take, repeats), bare=works, repeats=repeats)
    # The warm-up is a round, too.
    fitting = seconds / seconds_of_round - 1
    trial.run(rounds=int(min(trial.rounds, max(FEWEST_FOR_A_VERDICT, fitting))))


def _takes_of(
    backend: Backend, operations: Mapping[str, Operation]
) -> dict[str, Callable[[int], Timing]]:
    """Return the functions that time repeats of operations."""
    return {
        name: partial(measure_each, backend, operation) for name, operation in operations.items()
    }


def measure_each(backend: Backend, operation: Operation, repeats: int) -> Timing:
    """Repeat an operation on idle devices, waiting for its results each time.

    The timing that is returned is of all repeats.
    """
    backend.waitall()
    dispatch = 0.0
    start = perf_counter()
    for _ in range(repeats):
        launched = perf_counter()
        results = operation()
        dispatch += perf_counter() - launched
        backend.wait(results)
    return dispatch, perf_counter() - start


def find_bandwidths(
    trial: Trial, sizes: Sequence[int], names: Sequence[str], bound: str, devices: int
) -> None:
    """Keep the series of algorithms over the sizes, and the metrics of one at the largest size.

    It is `native`, or the last algorithm. Series are `FIGURE ALGORITHM`, and the sizes themselves
    `bytes`. busbw is what each device's link carries if no bytes are sent in vain; if links are the
    limit, the number of devices does not matter to it.
    """
    of_link = 2 * (devices - 1) / devices
    series = {"bytes": tuple(map(float, sizes))}
    medians = {
        name: [trial.cases[_named(name, size)].median for size in sizes] for name in (bound, *names)
    }
    for name, seconds in medians.items():
        bandwidths = tuple(map(algorithm_bandwidth, sizes, seconds))
        series[f"{ALGBW} {name}"] = bandwidths
        if name != bound:
            shares = [
                least / measured for least, measured in zip(medians[bound], seconds, strict=True)
            ]
            series[f"{BUSBW} {name}"] = tuple(of_link * bandwidth for bandwidth in bandwidths)
            series[f"{SHARES[bound]} {name}"] = tuple(shares)
    trial.described["series"] = series
    trial.parameters["algorithms"] = ",".join(names)
    trial.parameters["sizes"] = ",".join(write_size(size).replace(" ", "") for size in sizes)

    largest = sizes[-1]
    judged = _named("native" if "native" in names else names[-1], largest)
    trial.found_by(ALGBW, lambda times: algorithm_bandwidth(largest, times[judged]))
    trial.found_by(BUSBW, lambda times: of_link * algorithm_bandwidth(largest, times[judged]))
    trial.found_by(SHARES[bound], ratio(_named(bound, largest), judged))
    for name in ("native", "sharded"):
        speedup = ratio(_named("star", largest), _named(name, largest))
        trial.found_by(f"{name}_speedup_over_star", speedup)
