"""Matrix products in three precisions, against the best rate of the same run."""

from collections.abc import Callable
from functools import partial
from itertools import product

from backends import Array, Backend
from benchmarks.gpu.part import PartResult, Place, load_one
from benchmarks.gpu.timing import by_round, rate, seconds_of, timed
from benchmarks.harness.targets import Finding
from benchmarks.plain import torch_gpu
from benchmarks.plain.torch_gpu import Precision
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.result import Case, Timing
from parallel_core.measurement.timing import interleave

__all__ = ["measure"]

PRECISIONS: tuple[Precision, ...] = ("float32", "TF32", "bfloat16")
SIZES = {"gpu": (2048, 4096, 8192), "cpu": (16, 32)}
OURS, PLAIN = "ours", "plain torch"
TIMING_SECONDS = 0.03
MAX_PRODUCTS = {"gpu": 100, "cpu": 2}


def measure(place: Place) -> PartResult:
    """Time products of each size in each precision, ours and plain PyTorch's in turn."""
    backend, sizes = load_one(place), SIZES[place.kind]
    takers = {
        label(who, precision, size): timer(backend, place, who, precision, size)
        for precision, size, who in product(PRECISIONS, sizes, (OURS, PLAIN))
    }
    cases = {case.name: case for case in interleave(takers, place.rounds)}
    findings = []
    for precision in PRECISIONS:
        mine = [(cases[label(OURS, precision, size)], size) for size in sizes]
        every = [*mine, *((cases[label(PLAIN, precision, size)], size) for size in sizes)]
        (own, size), (best, best_size) = max(mine, key=speed), max(every, key=speed)
        share = by_round(lambda own, best, ratio=(size / best_size) ** 3: best / own * ratio, own, best)
        findings += [
            Finding(f"products of {size} × {size} in {precision}", rate(own, tera(size)), "TFLOP/s"),
            Finding(f"{precision}: ours / the best found ({best.name})", share, ""),
        ]
    return PartResult(
        findings=tuple(findings),
        parameters={"sizes": sizes},
        seconds=seconds_of(list(cases.values())),
    )


def timer(backend: Backend, place: Place, who: str, precision: Precision, size: int) -> Callable[[], Timing]:
    """Make what times products for a while, and divides by their number."""
    if who == OURS:
        x = Trial(backend, {}).normal(size, backend.devices[0])
        if precision == "bfloat16":
            x = backend.launch(lambda tensor: tensor.bfloat16(), x)
        multiply, wait = partial(launch, backend, x), backend.waitall
    else:
        multiply = partial(torch_gpu.products, torch_gpu.matrix(size, place.kind, precision))
        wait = torch_gpu.synchronize

    def take(count: int) -> float:
        with torch_gpu.on_precision(precision):
            return timed(partial(multiply, count), wait)[1] / count

    # The first call loads the kernels.
    take(1)
    count = max(1, min(MAX_PRODUCTS[place.kind], round(TIMING_SECONDS / take(1))))

    def taken() -> Timing:
        seconds = take(count)
        return seconds, seconds

    return taken


def launch(backend: Backend, x: Array, count: int) -> None:
    """Launch products whose results are dropped."""
    for _ in range(count):
        backend.launch(backend.ops.matmul, x, x)


def label(who: str, precision: str, size: int) -> str:
    """Name a case."""
    return f"{who}, {precision}, size {size}"


def tera(size: int) -> float:
    """Return the operations of one product, in 10¹²: a multiplication and an addition for each of size³ terms."""
    return 2 * size**3 / 1e12


def speed(timed_size: tuple[Case, int]) -> float:
    """Return the median rate of a case whose matrices have a size."""
    case, size = timed_size
    return tera(size) / case.median
