"""Small products: from which size on computing is the limit and no longer launching, and what a second stream gains.

One Python thread launches everything, so two streams gain nothing where launching takes as long as computing. What is
called a small operation here is the smallest product that takes three times as long as its launch: one thread can then
keep two streams busy, while the product is too small to fill a large GPU.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from backends import Array, Backend, BackendError
from benchmarks.gpu.part import Found, Place, load_one, load_two_streams
from benchmarks.gpu.timing import by_round, seconds_of, timed
from benchmarks.targets import Finding, Target
from parallel_core.comparison.interval import Interval
from parallel_core.experiments.calibration import normal_matrix
from parallel_core.measurement import interleave
from parallel_core.result import Case, Timing

__all__ = ["crossing", "measure", "smallest_kept_waiting"]

TARGET = Target("at least", 1.5)
SIZES = {
    "gpu": (32, 64, 128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048),
    "cpu": (8, 32, 96),
}
COUNT = {"gpu": 200, "cpu": 5}
"""Products on each stream in one timing. A CUDA queue takes about a thousand launches before launching has to wait."""
LIMITED_BY_COMPUTING = 1.25
SMALL = 3.0
ONE, TWO, PLAIN_ONE, PLAIN_TWO = "one stream", "two streams", "one stream, plain torch", "two streams, plain torch"


def measure(place: Place) -> Found:
    """Time products of each size on one stream and on two, in ours and in plain PyTorch."""
    sizes, count = SIZES[place.kind], COUNT[place.kind]
    skipped = []
    try:
        backend = load_two_streams(place)
    except (BackendError, TypeError) as error:
        # Without two devices on one GPU, plain streams still tell what the GPU can do.
        skipped.append(f"{place.framework}: two streams of one GPU as our devices ({error})")
        backend = load_one(place)
    own = [ONE] if skipped else [ONE, TWO]
    takers = {way: partial(ours, backend, way, count) for way in own}
    if place.framework == "torch":
        takers |= {way: partial(plain, place, way, count) for way in (PLAIN_ONE, PLAIN_TWO)}
    timings = {label(way, size): take(size) for size in sizes for way, take in takers.items()}
    cases = {case.name: case for case in interleave(timings, place.rounds)}
    alone = [cases[label(ONE, size)] for size in sizes]
    small = smallest_kept_waiting(sizes, alone)
    return Found(
        findings=(
            *about_crossing(place, sizes, alone),
            *(
                Finding(f"{place.framework}: {two} / {one}, products of {small} × {small}", gain, "×", target)
                for one, two, target in ((ONE, TWO, TARGET), (PLAIN_ONE, PLAIN_TWO, None if TWO in takers else TARGET))
                if two in takers
                for gain in [by_round(gained, cases[label(one, small)], cases[label(two, small)])]
            ),
        ),
        notes=tuple(
            f"{two} over {one}, by size: {gains(sizes, cases, one, two)}."
            for one, two in ((ONE, TWO), (PLAIN_ONE, PLAIN_TWO))
            if two in takers
        ),
        skipped=tuple(skipped),
        parameters={"sizes": sizes, "products on each stream": count, "small": small},
        seconds=seconds_of(list(cases.values())),
    )


def ours(backend: Backend, way: str, count: int, size: int) -> Callable[[], Timing]:
    """Make what times products on our devices: per product, twice `count` on the first or `count` on each of both."""
    devices = [backend.devices[0], backend.devices[1] if way == TWO else backend.devices[0]]
    matrices = [normal_matrix(backend, size, device) for device in devices]

    def launch() -> None:
        for _ in range(count):
            for x in matrices:
                product(backend, x)

    return partial(per_product, launch, backend.waitall, count)


def product(backend: Backend, x: Array) -> None:
    """Launch a product whose result is dropped: its memory serves the next one."""
    backend.launch(backend.ops.matmul, x, x)


def plain(place: Place, way: str, count: int, size: int) -> Callable[[], Timing]:
    """Make what times the same products on PyTorch's own streams."""
    from benchmarks.plain import torch_gpu

    x, streams = torch_gpu.matrix(size, place.kind), torch_gpu.streams(place.kind)
    chosen = streams if way == PLAIN_TWO else [streams[0]] * 2
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


def gained(one: float, two: float) -> float:
    """Return how many times faster two streams did the work of one."""
    return one / two


def about_crossing(place: Place, sizes: Sequence[int], alone: Sequence[Case]) -> list[Finding]:
    """Say what launching costs, and from which size on computing is the limit, where there is one."""
    launching = by_round(lambda seconds: 1e6 * seconds, alone[0])
    found = [Finding(f"{place.framework}: a product of {sizes[0]} × {sizes[0]}, one after another", launching, "μs")]
    size = crossing(sizes, waits(alone))
    if size is not None:
        name = f"{place.framework}: products are limited by computing, no longer by launching, from a size of"
        found.append(Finding(name, Interval(size, -math.inf, math.inf), ""))
    return found


def waits(cases: Sequence[Case]) -> list[float]:
    """Return for each case how many times longer it took than launching it."""
    return [case.median / case.dispatch_median for case in cases]


def crossing(sizes: Sequence[int], ratios: Sequence[float]) -> float | None:
    """Return the size from which on all ratios are at least 1.25; None where the last one is not.

    Interpolated between the logarithms of sizes and ratios.
    """
    if ratios[-1] < LIMITED_BY_COMPUTING:
        return None
    first = max((index + 1 for index, ratio in enumerate(ratios) if ratio < LIMITED_BY_COMPUTING), default=0)
    if first == 0:
        return float(sizes[0])
    low, high = math.log(ratios[first - 1]), math.log(ratios[first])
    share = (math.log(LIMITED_BY_COMPUTING) - low) / (high - low)
    return math.exp((1 - share) * math.log(sizes[first - 1]) + share * math.log(sizes[first]))


def smallest_kept_waiting(sizes: Sequence[int], alone: Sequence[Case]) -> int:
    """Return the smallest size whose product takes three times as long as its launch; the largest where none does."""
    return next((size for size, ratio in zip(sizes, waits(alone), strict=True) if ratio >= SMALL), sizes[-1])
