"""Matrix products in three precisions, against the best rate of the same run."""

from collections.abc import Callable
from functools import partial
from itertools import product

from backends import Backend
from benchmarks.gpu.parts import PartResult, Place, rate, timed, times_as_fast
from benchmarks.harness.targets import Finding
from benchmarks.plain import torch_gpu
from benchmarks.plain.torch_gpu import Precision
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.result import Timing
from parallel_core.measurement.timing import interleave

PRECISIONS: tuple[Precision, ...] = ("float32", "TF32", "bfloat16")
SIZES = {"gpu": (2048, 4096, 8192), "cpu": (16, 32)}
OURS, PLAIN = "ours", "plain torch"
TIMING_SECONDS = 0.03
MAX_PRODUCTS = {"gpu": 100, "cpu": 2}


def measure(place: Place) -> PartResult:
    """Time products of each size in each precision, ours and plain PyTorch's in turn."""
    backend, sizes = place.load(), SIZES[place.kind]
    takers = {
        f"{who}, {precision}, size {size}": timer(backend, place, who, precision, size)
        for precision, size, who in product(PRECISIONS, sizes, (OURS, PLAIN))
    }
    cases = {case.name: case for case in interleave(takers, place.rounds)}
    findings = []
    for precision in PRECISIONS:
        # A multiplication and an addition for each of size³ terms.
        work = {f"{who}, {precision}, size {size}": 2 * size**3 / 1e12 for size in sizes for who in (OURS, PLAIN)}

        def speed(name: str, work: dict[str, float] = work) -> float:
            return work[name] / cases[name].median

        own, best = max((name for name in work if name.startswith(OURS)), key=speed), max(work, key=speed)
        size = own.rpartition(" ")[2]
        share = times_as_fast(cases[own], cases[best], work[own] / work[best])
        findings += [
            Finding(f"products of {size} × {size} in {precision}", rate(cases[own], work[own]), "TFLOP/s"),
            Finding(f"{precision}: ours / the best found ({best})", share, ""),
        ]
    return PartResult(findings=tuple(findings), parameters={"sizes": sizes}, cases=[*cases.values()])


def timer(backend: Backend, place: Place, who: str, precision: Precision, size: int) -> Callable[[], Timing]:
    """Make what times products for a while, and divides by their number."""
    if who == OURS:
        x = Trial(backend, {}).normal(size, backend.devices[0])
        if precision == "bfloat16":
            x = backend.launch(lambda tensor: tensor.bfloat16(), x)
        multiply, wait = partial(backend.launch, backend.ops.matmul, x, x), backend.waitall
    else:
        matrix = torch_gpu.matrix(size, place.kind, precision)
        multiply, wait = partial(torch_gpu.multiply, matrix), torch_gpu.synchronize

    def products(count: int) -> None:
        for _ in range(count):
            multiply()

    def take(count: int) -> Timing:
        with torch_gpu.on_precision(precision):
            return timed(partial(products, count), wait, count)

    # The first call loads the kernels.
    take(1)
    return partial(take, max(1, min(MAX_PRODUCTS[place.kind], round(TIMING_SECONDS / take(1)[1]))))
