"""Time page-locked copies and matrix multiplications on a GPU, ours and plain PyTorch's in turn.

On CPU devices, the second of which stands for the host, it is a rehearsal with next to no work.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import backends
from backends import HOST, Backend
from backends.devices import DeviceKind
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.sides import timed
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.timing import Timing, interleave
from parallel_core.measurement.timing import measure as timed_on

BYTES = {"gpu": 2**30, "cpu": 2**16}
"""In a timing: of one plain copy, and of ours together."""
COPIES = 4
SIZES = {"gpu": 8192, "cpu": 32}
PRECISIONS = ("float32", "TF32", "bfloat16")
Timings = dict[str, Callable[[], Timing]]


def measure(kind: DeviceKind, rounds: int) -> dict[str, Any]:
    """Time all; the cases are named `host to device, ours`, `bfloat16, plain torch` and so on.

    The figures are the work in a timing: `gigabytes` that are copied, and `tera_operations` of a multiplication.
    """
    backend = backends.load("torch", 1 if kind == "gpu" else 2, kind, "async", 1)
    copying, altered = copies(backend, kind)
    cases = [case for timings in (copying, multiplications(backend, kind)) for case in interleave(timings, rounds)]
    work = {"gigabytes": BYTES[kind] / 1e9, "tera_operations": 2 * SIZES[kind] ** 3 / 1e12}
    versions = {"torch": backend.version}
    if kind == "gpu":
        versions["CUDA"] = f"{torch.version.cuda} on {torch.cuda.get_device_name(0)}"
    return compose(cases, versions, altered(), work)


def place_of(kind: DeviceKind) -> str:
    """Return how PyTorch calls the device."""
    return "cuda:0" if kind == "gpu" else "cpu"


def synchronize(_: object) -> None:
    """Wait for all of plain PyTorch's work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def copies(backend: Backend, kind: DeviceKind) -> tuple[Timings, Callable[[], list[str]]]:
    """Return what times copies in both directions, and what names those that arrived altered."""
    device, host = backend.devices[0], HOST if kind == "gpu" else backend.devices[1]
    values = np.random.default_rng(0).integers(0, 256, BYTES[kind] // COPIES, dtype=np.uint8)
    here = torch.zeros(BYTES[kind], dtype=torch.uint8, pin_memory=kind == "gpu")
    there = torch.zeros(BYTES[kind], dtype=torch.uint8, device=place_of(kind))
    timings: Timings = {}
    arrived = {}
    for way, start, end, source, target in (
        ("host to device", host, device, here, there),
        ("device to host", device, host, there, here),
    ):
        x = backend.asarray(values, start)
        arrived[way] = backend.copy_to(x, end)

        def copy(way: str = way, x: backends.Array = x, end: backends.Device = end) -> None:
            for _ in range(COPIES):
                arrived[way] = backend.copy_to(x, end, out=arrived[way])

        timings[f"{way}, ours"] = partial(timed_on, backend, copy)
        timings[f"{way}, plain torch"] = partial(timed, partial(target.copy_, source, non_blocking=True), synchronize)

    def altered() -> list[str]:
        wrong = [way for way, copied in arrived.items() if not np.array_equal(backend.to_numpy(copied), values)]
        return [f"what went from {way} arrived altered" for way in wrong]

    return timings, altered


def multiplications(backend: Backend, kind: DeviceKind) -> Timings:
    """Return what times a multiplication in each precision; of random numbers, for zeros draw less power."""
    size = SIZES[kind]
    timings: Timings = {}
    for precision in PRECISIONS:
        x, matrix = Trial(backend, {}).normal(size, backend.devices[0]), torch.randn(size, size, device=place_of(kind))
        if precision == "bfloat16":
            x, matrix = backend.launch(lambda tensor: tensor.bfloat16(), x), matrix.bfloat16()
        rounded = "high" if precision == "TF32" else "highest"
        ours = partial(backend.launch, backend.ops.matmul, x, x)
        timings[f"{precision}, ours"] = partial(with_factors, rounded, partial(timed_on, backend, ours))
        plain = partial(timed, partial(torch.mm, matrix, matrix), synchronize)
        timings[f"{precision}, plain torch"] = partial(with_factors, rounded, plain)
    return timings


def with_factors(rounded: str, take: Callable[[], Timing]) -> Timing:
    """Take a timing with factors of float32 rounded to TF32 (`high`) or not (`highest`)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(rounded)
    try:
        return take()
    finally:
        torch.set_float32_matmul_precision(before)


if __name__ == "__main__":
    answer(measure)
