"""Small products: from which size on computing is the limit and no longer launching, and what a second stream gains.

What launching costs is the time of the smallest product, one of many in a row: computing it takes less. Two streams
gain nothing when launching is the limit, for the launches take turns. Where that is so, products are launched many at a
time, as units, which are CUDA graphs. A small operation is the largest product that leaves room for a second one: each
of its results on a thread of its own, it takes half of the GPU's threads at most.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from backends import Array, Backend, BackendError
from benchmarks.gpu.part import PartResult, Place, load_one, load_two_streams
from benchmarks.gpu.timing import by_round, seconds_of, timed
from benchmarks.harness.targets import Finding, Target
from benchmarks.plain import torch_gpu
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case, Timing
from parallel_core.measurement.timing import interleave

__all__ = ["crossing", "measure", "small_size"]

TARGET = Target("at least", 1.5)
SIZES = {
    "gpu": (32, 64, 128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048),
    "cpu": (8, 32, 96),
}
COUNT = {"gpu": 200, "cpu": 5}
"""Products on each stream in one timing. A CUDA queue takes about a thousand launches before launching has to wait."""
LIMITED_BY_COMPUTING = 1.25
UNIT = {"gpu": 25, "cpu": 5}
"""Products in a unit."""
UNTIMED = 3
"""Launches of a unit before those that are timed: with the third, it is a graph."""
WHOLE, ONE, TWO = "the whole device", "one stream", "two streams"
UNITS_ONE, UNITS_TWO = "one stream of units", "two streams of units"
PLAIN_ONE, PLAIN_TWO = "one stream, plain torch", "two streams, plain torch"


def measure(place: Place) -> PartResult:
    """Time products of each size on the whole device, on one stream of it and on two, in ours and in plain PyTorch."""
    sizes, count = SIZES[place.kind], COUNT[place.kind]
    takers = {WHOLE: partial(ours, load_one(place), 1, count)}
    skipped = []
    try:
        streams = load_two_streams(place)
        takers |= {ONE: partial(ours, streams, 1, count), TWO: partial(ours, streams, 2, count)}
        unit = UNIT[place.kind]
        takers |= {
            UNITS_ONE: partial(units, streams, 1, count, unit),
            UNITS_TWO: partial(units, streams, 2, count, unit),
        }
    except BackendError as error:
        skipped.append(f"{place.framework}: two streams of one GPU as our devices ({error})")
    if place.framework == "torch":
        takers |= {PLAIN_ONE: partial(plain, place, 1, count), PLAIN_TWO: partial(plain, place, 2, count)}
    timings = {label(way, size): take(size) for size in sizes for way, take in takers.items()}
    cases = {case.name: case for case in interleave(timings, place.rounds)}
    both_ways = ((ONE, TWO), (UNITS_ONE, UNITS_TWO), (PLAIN_ONE, PLAIN_TWO))
    pairs = [(one, two) for one, two in both_ways if two in takers]
    findings = about_crossing(place, sizes, [cases[label(WHOLE, size)] for size in sizes])
    small = small_size(sizes, torch_gpu.threads(place.kind))
    for one, two in pairs:
        gain = by_round(lambda alone, both: alone / both, cases[label(one, small)], cases[label(two, small)])
        target = TARGET if two == UNITS_TWO else None
        findings.append(Finding(f"{place.framework}: {two} / {one}, {small} × {small}", gain, target=target))
    return PartResult(
        findings=tuple(findings),
        notes=tuple(f"{two} over {one}, by size: {gains(sizes, cases, one, two)}." for one, two in pairs),
        skipped=tuple(skipped),
        parameters={"sizes": sizes, "products in a timing": 2 * count, "products in a unit": UNIT[place.kind]},
        seconds=seconds_of(list(cases.values())),
    )


def ours(backend: Backend, streams: int, count: int, size: int) -> Callable[[], Timing]:
    """Make what times a product on our devices, of twice `count` on the first one or `count` on each of two."""
    matrices = [Trial(backend, {}).normal(size, backend.devices[number % streams]) for number in range(2)]

    def launch() -> None:
        for _ in range(count):
            for x in matrices:
                product(backend, x)

    return partial(per_product, launch, backend.waitall, count)


def units(backend: Backend, streams: int, count: int, unit: int, size: int) -> Callable[[], Timing]:
    """Make what times the same products, so many at a time."""
    matrices = [Trial(backend, {}).normal(size, backend.devices[number % streams]) for number in range(2)]
    multiply = backend.ops.as_unit(partial(last_product, backend.ops.matmul, unit))

    def launch() -> None:
        for _ in range(count // unit):
            for x in matrices:
                backend.launch(multiply, x)

    for _ in range(UNTIMED):
        launch()
    return partial(per_product, launch, backend.waitall, count)


def last_product(matmul: Callable[..., Array], count: int, x: Array) -> Array:
    """Multiply a matrix with itself many times; one result is enough to copy away."""
    return [matmul(x, x) for _ in range(count)][-1]


def product(backend: Backend, x: Array) -> None:
    """Launch a product whose result is dropped: its memory serves the next one."""
    backend.launch(backend.ops.matmul, x, x)


def plain(place: Place, streams: int, count: int, size: int) -> Callable[[], Timing]:
    """Make what times the same products on PyTorch's own streams."""
    x, made = torch_gpu.matrix(size, place.kind), torch_gpu.streams(place.kind)
    chosen = [made[number % streams] for number in range(2)]
    return partial(per_product, partial(torch_gpu.products_on, x, chosen, count), torch_gpu.synchronize, count)


def per_product(launch: Callable[[], object], wait: Callable[[], object], count: int) -> Timing:
    """Time twice `count` products, and divide by their number."""
    dispatched, done = timed(launch, wait)
    return dispatched / (2 * count), done / (2 * count)


def label(way: str, size: int) -> str:
    """Name a case."""
    return f"{way}, size {size}"


def gains(sizes: Sequence[int], cases: Mapping[str, Case], one: str, two: str) -> str:
    """Write for each size how many times faster two streams did the work of one."""
    medians = ((size, cases[label(one, size)].median, cases[label(two, size)].median) for size in sizes)
    return ", ".join(f"{size}: {alone / both:.2f}" for size, alone, both in medians)


def about_crossing(place: Place, sizes: Sequence[int], cases: Sequence[Case]) -> list[Finding]:
    """List what launching costs, and the size from which on computing is the limit, if there is one."""
    launching = by_round(lambda seconds: 1e6 * seconds, cases[0])
    findings = [Finding(f"{place.framework}: a product of {sizes[0]} × {sizes[0]}, one of many", launching, "μs")]
    size = crossing(sizes, [case.median for case in cases])
    if size is not None:
        name = f"{place.framework}: products are limited by computing, no longer by launching, from a size of"
        findings.append(Finding(name, Interval(size, -math.inf, math.inf), ""))
    return findings


def crossing(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Return the size from which on products take 1.25 times as long as the smallest; None if the largest does not.

    Interpolated between the logarithms of sizes and times.
    """
    bound = LIMITED_BY_COMPUTING * seconds[0]
    last = max(index for index, each in enumerate(seconds) if each < bound)
    if last == len(sizes) - 1:
        return None
    low, high = math.log(seconds[last]), math.log(seconds[last + 1])
    share = (math.log(bound) - low) / (high - low)
    return math.exp((1 - share) * math.log(sizes[last]) + share * math.log(sizes[last + 1]))


def small_size(sizes: Sequence[int], threads: int) -> int:
    """Return the largest size whose results are at most half as many as the threads; the smallest if none are."""
    return max((size for size in sizes if 2 * size**2 <= threads), default=sizes[0])
