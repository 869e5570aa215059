"""Small products: from which size on computing is the limit and no longer launching, and what a second stream gains.

What launching costs is the time of the smallest product, one of many in a row: computing it takes less. Two streams
gain nothing when launching is the limit, for the launches take turns. Where that is so, products are launched many at a
time, as units, which are CUDA graphs. A small operation is the largest product that leaves room for a second one: each
of its results on a thread of its own, it takes half of the GPU's threads at most.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from backends import Array, Backend, BackendError
from benchmarks.gpu.parts import PartResult, Place, timed, times_as_fast
from benchmarks.harness.targets import Finding, Target, by_round
from benchmarks.plain import torch_gpu
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Timing
from parallel_core.measurement.timing import interleave

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
WHOLE = "the whole device"
OF_UNITS, PLAIN = " of units", ", plain torch"


def measure(place: Place) -> PartResult:
    """Time products of each size on the whole device, on one stream of it and on two, in ours and in plain PyTorch."""
    sizes, count, unit = SIZES[place.kind], COUNT[place.kind], UNIT[place.kind]
    takers = {WHOLE: partial(ours, place.load(), 1, count, 1)}
    skipped = []
    try:
        own = place.load_two_streams()
        for end, size in (("", 1), (OF_UNITS, unit)):
            takers |= {f"{words}{end}": partial(ours, own, n, count, size) for n, words in STREAMS.items()}
    except BackendError as error:
        skipped.append(f"{place.framework}: two streams of one GPU as our devices ({error})")
    if place.framework == "torch":
        takers |= {f"{words}{PLAIN}": partial(plain, place, n, count) for n, words in STREAMS.items()}
    timings = {f"{way}, size {size}": take(size) for size in sizes for way, take in takers.items()}
    cases = {case.name: case for case in interleave(timings, place.rounds)}
    smallest = by_round(lambda seconds: 1e6 * seconds, cases[f"{WHOLE}, size {sizes[0]}"].seconds)
    findings = [Finding(f"{place.framework}: a product of {sizes[0]} × {sizes[0]}, one of many", smallest, "μs")]
    crossed = crossing(sizes, [cases[f"{WHOLE}, size {size}"].median for size in sizes])
    if crossed is not None:
        name = f"{place.framework}: products are limited by computing, no longer by launching, from a size of"
        findings.append(Finding(name, Interval(crossed, -math.inf, math.inf), ""))
    notes = []
    small = small_size(sizes, torch_gpu.threads(place.kind))
    for end in ("", OF_UNITS, PLAIN):
        one, two = (f"{words}{end}" for words in STREAMS.values())
        if two in takers:
            gain = times_as_fast(cases[f"{two}, size {small}"], cases[f"{one}, size {small}"])
            target = TARGET if end == OF_UNITS else None
            findings.append(Finding(f"{place.framework}: {two} / {one}, {small} × {small}", gain, target=target))
            medians = {size: [cases[f"{way}, size {size}"].median for way in (one, two)] for size in sizes}
            gains = ", ".join(f"{size}: {alone / both:.2f}" for size, (alone, both) in medians.items())
            notes.append(f"{two} over {one}, by size: {gains}.")
    return PartResult(
        findings=tuple(findings),
        notes=tuple(notes),
        skipped=tuple(skipped),
        parameters={"sizes": sizes, "products in a timing": 2 * count, "products in a unit": unit},
        cases=[*cases.values()],
    )


STREAMS = {1: "one stream", 2: "two streams"}


def ours(backend: Backend, streams: int, count: int, unit: int, size: int) -> Callable[[], Timing]:
    """Make what times a product on our devices, of twice `count` on the first one or `count` on each of two.

    They are launched so many at a time, as a unit. Results are dropped: their memory serves the next ones.
    """
    matrices = [Trial(backend, {}).normal(size, backend.devices[number % streams]) for number in range(2)]
    matmul = backend.ops.matmul

    def last_product(x: Array) -> Array:
        # One result is enough to copy away.
        return [matmul(x, x) for _ in range(unit)][-1]

    multiply = backend.ops.as_unit(last_product) if unit > 1 else None

    def launch() -> None:
        for _ in range(count // unit):
            for x in matrices:
                if multiply is None:
                    backend.launch(matmul, x, x)
                else:
                    backend.launch(multiply, x)

    for _ in range(UNTIMED if unit > 1 else 0):
        launch()
    return partial(timed, launch, backend.waitall, 2 * count)


def plain(place: Place, streams: int, count: int, size: int) -> Callable[[], Timing]:
    """Make what times the same products on PyTorch's own streams."""
    x, made = torch_gpu.matrix(size, place.kind), torch_gpu.streams(place.kind)
    chosen = [made[number % streams] for number in range(2)]
    return partial(timed, partial(torch_gpu.products_on, x, chosen, count), torch_gpu.synchronize, 2 * count)


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
