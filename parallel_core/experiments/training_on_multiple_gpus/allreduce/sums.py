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
from parallel_core.experiments.runner.metrics import ratio
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
"""Launches something, and returns what is to be waited for."""


def algorithm_bandwidth(size: float, seconds: float) -> float:
    """Return the GB/s at which vectors of `size` bytes, one per device, are summed: size / time."""
    return size / seconds / 1e9


def _named(name: str, size: int) -> str:
    """Name the case of something that is done with vectors of so many bytes."""
    return f"{name}, {write_size(size)}"


COUNTED_CASE = "adding alone, counted"
"""The case in which it is counted whether devices add up their parts at the same time."""
COUNTED_SUMS = 10
"""How often each device adds up its part in a repetition of that case."""
COUNTED_BYTES = 2**26
"""Of a vector in that case: smaller additions are as short as launching them, or as a scheduler's
slice, and load decides what they run beside.
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
    whole = tuple(sorted({max(1, size // ITEM) * ITEM for size in sizes}))
    needed = HELD_AT_ONCE * devices * whole[-1]
    if needed > memory:
        raise RequestError(
            f"vectors of {write_size(whole[-1])} on {devices} devices take about "
            f"{needed / 1e9:.3g} GB of memory, "
            f"and this machine has {memory / 1e9:.3g} GB: choose smaller --sizes"
        )
    return whole


def swept_sizes(
    trial: Trial, sizes: Sequence[int], in_full: bool, left: Callable[[], float]
) -> Iterator[tuple[int, float]]:
    """Iterate over sizes in ascending order, each with the seconds that it may take: half of those
    that are `left`.

    Unless all are wanted, `in_full`, the sweep ends before a size that would take more than is
    left, judging by the size before it; a note says so. A size may take half of what is left, so
    that larger ones are reached.
    """
    before, took, last = left(), 0.0, 0
    for place, size in enumerate(sizes):
        if last and not in_full and took * size / last > before:
            ended = (
                f"The budget of {trial.budget:g} s ended the sweep at {write_size(last)} of "
                f"{write_size(sizes[-1])}"
            )
            trial.notes.append(f"{ended} (--budget gives more, --sizes chooses others).")
            return
        with part(place / len(sizes), (place + 1) / len(sizes)):
            yield size, before / 2
        now = left()
        before, took, last = now, before - now, size


def check_sums(
    trial: Trial,
    algorithms: Sequence[str],
    length: int,
    rank: int = 0,
    counts: Sequence[int] | None = None,
) -> None:
    """Sum uniform float32 vectors by each algorithm, and compare the sums on all devices with
    NumPy's.

    The numbers are drawn by rank and device, so that each of several ranks, which have `counts`
    devices, can draw the others' too.
    """

    def drawn(rank: int, place: int) -> np.ndarray:
        return np.random.default_rng([length, rank, place]).random(length, dtype=np.float32)

    expected = np.zeros(length)
    for other, devices in enumerate(counts or [len(trial.devices)]):
        for place in range(devices):
            expected += drawn(other, place)
    own = [drawn(rank, place) for place in range(len(trial.devices))]
    # Blocks stay in the cache while they are compared, and need little memory.
    blocks = 1 + length // BLOCK
    for name in algorithms:
        tell(f"check of {name}, {write_size(ITEM * length)}", 0.0)
        vectors = [
            trial.backend.asarray(x, device) for x, device in zip(own, trial.devices, strict=True)
        ]
        for total in map(trial.backend.to_numpy, CHECKED[name](trial.backend, vectors)):
            trial.check("sums", np.array_split(total, blocks), np.array_split(expected, blocks))


def time_size(trial: Trial, algorithms: Sequence[str], size: int, seconds: float) -> None:
    """Time copies of all vectors at once, each on its own device, and every algorithm, for about so
    many seconds.
    """
    backend = trial.backend
    vectors, buffers = zeros(backend, size), zeros(backend, size)

    def copy() -> Sequence[Array]:
        each = zip(vectors, backend.devices, buffers, strict=True)
        buffers[:] = [
            backend.copy_to(vector, device, out=buffer) for vector, device, buffer in each
        ]
        return buffers

    operations = {
        PLAIN_COPY: copy,
        **{name: summing(backend, ways.ALGORITHMS[name], vectors) for name in algorithms},
    }
    bare = additions(backend, size // ITEM, max(1, min(MAX_ADDITIONS, UNIT_BYTES // size)))
    takes = {
        name: partial(measure_each, backend, operation) for name, operation in operations.items()
    }
    time_repeated(trial, takes, size, seconds, dict.fromkeys(algorithms, bare))


def time_parts(trial: Trial, sizes: Sequence[int], seconds: float) -> None:
    """Time what sums of parts are made of, at the largest of the sizes that does not take most of a
    budget.

    Timed are the sums of parts on spread roots and on one, which divide, copy and join alike, and
    the native one; and alternately with them dividing, copying, adding and joining in isolation.
    """
    size, backend = (
        max((size for size in sizes if size <= LARGEST), default=min(sizes)),
        trial.backend,
    )
    check_sums(trial, (ONE_ROOT,), size // ITEM)
    devices, places = backend.devices, range(len(backend.devices))
    vectors = zeros(backend, size)
    parts = [ways.parts_of(backend, vector, len(devices)) for vector in zeros(backend, size)]
    # What was copied before, so that joining copies nothing.
    whole = [
        [backend.copy_to(part, device) for part in own]
        for own, device in zip(parts, devices, strict=True)
    ]
    crossing = [(place, root) for root in places for place in places if place != root]

    def copy() -> list[Array]:
        there = [backend.copy_to(parts[place][root], devices[root]) for place, root in crossing]
        return there + [
            backend.copy_to(parts[root][root], devices[place]) for place, root in crossing
        ]

    operations: dict[str, Operation] = {
        **{
            name: summing(backend, algorithm, zeros(backend, size))
            for name, algorithm in SUMS.items()
        },
        "dividing alone": lambda: [
            part for vector in vectors for part in ways.parts_of(backend, vector, len(devices))
        ],
        "copying alone": copy,
        "adding alone": adding(backend, size),
        "joining alone": lambda: [ways.joined(backend, own) for own in whole],
    }
    takes = {
        name: partial(measure_each, backend, operation) for name, operation in operations.items()
    }
    time_repeated(trial, takes, size, seconds)
    for name in operations:
        trial.found_by(f"{name.replace(' ', '_')}_seconds", itemgetter(_named(name, size)))
    trial.found_by(
        "spread_roots_speedup", ratio(_named(ONE_ROOT, size), _named(SPREAD_ROOTS, size))
    )


def prepare_count(trial: Trial) -> None:
    """Register the case in which additions are counted, which is not timed.

    Its vectors are as long whatever the sizes that are timed, as far as memory lasts.
    """
    backend = trial.backend
    fitting = sizes_to_time(None, len(backend.devices))
    size = max(size for size in fitting if size <= COUNTED_BYTES)
    trial.takes[COUNTED_CASE] = partial(measure_each, backend, adding(backend, size), COUNTED_SUMS)


def adding(backend: Backend, size: int) -> Operation:
    """Return what adds up on each device its own part of all vectors, and copies nothing."""
    devices = backend.devices
    parts = [ways.parts_of(backend, vector, len(devices)) for vector in zeros(backend, size)]
    terms_by_device = [
        [backend.copy_to(parts_of_vector[place], device) for parts_of_vector in parts]
        for place, device in enumerate(devices)
    ]
    add = partial(ways.added, backend)
    return lambda: [reduce(add, terms) for terms in terms_by_device]


def zeros(backend: Backend, size: int) -> list[Array]:
    """Load a vector of so many bytes on every device."""
    values = np.zeros(size // ITEM, dtype=np.float32)
    return [backend.asarray(values, device) for device in backend.devices]


def summing(backend: Backend, algorithm: ways.Allreduce, vectors: list[Array]) -> Operation:
    """Return what sums a vector of each device again and again, one time's sums being the next
    one's vectors.
    """

    def sum_up() -> Sequence[Array]:
        vectors[:] = algorithm(backend, vectors)
        return vectors

    return sum_up


def additions(backend: Backend, length: int, times: int) -> list[Work]:
    """Make the units in which each device adds up its part of all vectors, so many times."""

    def add_up(total: Array, *others: Array) -> Array:
        for _ in range(times):
            for other in others:
                total = backend.ops.add(total, other)
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
    """Time alternately what takes a number of repeats, which the fastest of a few runs decides;
    cases are of once.

    There are fewer rounds, but three at least, if more would exceed so many seconds by these runs'
    times.
    """
    a_round = 0.0
    for name, take in takes.items():
        once = take(1)[1]
        if once <= LONG_SECONDS:
            once = min(once, *(take(1)[1] for _ in range(3)))
        repeats = min(MAX_REPEATS, ceil(MIN_SECONDS / once))
        a_round += repeats * once
        works = [replace(work, times=repeats * work.times) for work in (bare or {}).get(name, ())]
        trial.time(_named(name, size), take=partial(take, repeats), bare=works, repeats=repeats)
    # The warm-up is a round, too.
    trial.run(rounds=int(min(trial.rounds, max(FEWEST_FOR_A_VERDICT, seconds / a_round - 1))))


def measure_each(backend: Backend, operation: Operation, repeats: int) -> Timing:
    """Repeat an operation on idle devices, waiting for its results each time; return the timing of
    all.
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
    """Keep the series of some algorithms over the sizes, and the metrics of one of them at the
    largest size.

    It is `native`, or the last algorithm. Series are `FIGURE ALGORITHM`, and the sizes themselves
    `bytes`. busbw is what each device's link carries if no bytes are sent in vain; if links are the
    limit, the number of devices does not matter to it.
    """
    of_link = 2 * (devices - 1) / devices
    series = {"bytes": tuple(map(float, sizes))}
    for name in (bound, *names):
        seconds, bounds = (
            [trial.cases[_named(one, size)].median for size in sizes] for one in (name, bound)
        )
        series[f"{ALGBW} {name}"] = tuple(map(algorithm_bandwidth, sizes, seconds))
        if name != bound:
            series[f"{BUSBW} {name}"] = tuple(of_link * one for one in series[f"{ALGBW} {name}"])
            series[f"{SHARES[bound]} {name}"] = tuple(
                b / mine for b, mine in zip(bounds, seconds, strict=True)
            )
    trial.described["series"] = series
    trial.parameters["algorithms"] = ",".join(names)
    trial.parameters["sizes"] = ",".join(write_size(size).replace(" ", "") for size in sizes)

    largest = sizes[-1]
    judged = _named("native" if "native" in names else names[-1], largest)
    trial.found_by(ALGBW, lambda times: algorithm_bandwidth(largest, times[judged]))
    trial.found_by(BUSBW, lambda times: of_link * algorithm_bandwidth(largest, times[judged]))
    trial.found_by(SHARES[bound], ratio(_named(bound, largest), judged))
    for name in ("native", "sharded"):
        trial.found_by(
            f"{name}_speedup_over_star", ratio(_named("star", largest), _named(name, largest))
        )
