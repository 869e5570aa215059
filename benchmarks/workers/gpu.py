"""Time launches, copies, small units and trainings beside plain PyTorch's, in turn, on one GPU.

On CPU devices, the second of which stands for the host or the other stream, it is a rehearsal with
next to no work.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import truediv
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import backends
from backends import HOST, Backend, Device
from backends.devices import DeviceKind
from benchmarks.harness.targets import by_round
from benchmarks.workers.abstraction import timed
from benchmarks.workers.answer import compose
from benchmarks.workers.gpu_training import Pair, images_of, trainings
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.workloads import chained
from parallel_core.measurement.timing import Timing, interleave
from parallel_core.measurement.timing import measure as timed_on

ROUNDS = {"gpu": 20, "cpu": 3}
WARMUPS = 4
"""A GPU's unit is issued twice before it is recorded, and then replayed."""
BYTES = {"gpu": 2**30, "cpu": 2**16}
"""In a timing: of one plain copy, and of ours together."""
COPIES = 4
SIZES, CHAIN = {"gpu": 256, "cpu": 8}, {"gpu": 200, "cpu": 5}
"""Of the matrices in a unit, and its multiplications, each of the result of the one before."""
LAUNCHES = {"gpu": 2000, "cpu": 20}
TORCH_DEVICES = {"gpu": "cuda:0", "cpu": "cpu"}


def measure(kind: DeviceKind, devices: str, what: str) -> dict[str, Any]:
    """Time one of WORKS; the figures are ratios to plain PyTorch or to one stream, of speeds, and
    for `launch` of times.
    """
    variants = ("graph-replay",) if what == "replayed" and kind == "gpu" else ()
    backend = backends.load("torch", devices, "auto", "async", 1, variants=variants)
    pairs = list(WORKS[what](backend, kind))
    timings = {}
    for pair in pairs:
        timings[f"{pair.name}, a"] = pair.numerator
        timings[f"{pair.name}, b"] = pair.denominator
    seconds = {case.name: case.seconds for case in interleave(timings, ROUNDS[kind], WARMUPS)}
    ratios, problems = {}, []
    for pair in pairs:
        sides = (seconds[f"{pair.name}, a"], seconds[f"{pair.name}, b"])
        ratios[pair.name] = by_round(truediv, *sides)
        if not pair.is_right():
            problems.append(f"{pair.name}: what was timed is wrong")
    if what in ("training", "replayed"):
        images_per_second = partial(truediv, images_of(kind))
        plain, ours = seconds.values()
        ratios["plain_images_per_second"] = by_round(images_per_second, plain)
        ratios["images_per_second"] = by_round(images_per_second, ours)
    figures = {name: ratio.estimate for name, ratio in ratios.items()}
    answer = compose(seconds, {"torch": backend.version}, problems, figures)
    intervals = {name: (ratio.low, ratio.high) for name, ratio in ratios.items()}
    return {**answer, "metric_intervals": intervals}


def plainly(kind: DeviceKind, work: Callable[[], Any]) -> Callable[[], Timing]:
    """Return what times work in plain PyTorch."""
    return partial(timed, work, lambda _: kind == "gpu" and torch.cuda.synchronize())


def copies(backend: Backend, kind: DeviceKind) -> Iterator[Pair]:
    """Copy in both directions, plain PyTorch's way and ours."""
    device, host = backend.devices[0], HOST if kind == "gpu" else backend.devices[1]
    on_host = torch.zeros(BYTES[kind], dtype=torch.uint8, pin_memory=kind == "gpu")
    on_device = torch.zeros(BYTES[kind], dtype=torch.uint8, device=TORCH_DEVICES[kind])
    to_device = plainly(kind, partial(on_device.copy_, on_host, non_blocking=True))
    to_host = plainly(kind, partial(on_host.copy_, on_device, non_blocking=True))
    yield copied("to_device", to_device, backend, host, device, kind)
    yield copied("to_host", to_host, backend, device, host, kind)


def copied(
    name: str,
    plain: Callable[[], Timing],
    backend: Backend,
    start: Device,
    end: Device,
    kind: DeviceKind,
) -> Pair:
    """Copy by our verb, beside a plain copy."""
    values = np.random.default_rng(0).integers(0, 256, BYTES[kind] // COPIES, dtype=np.uint8)
    x = backend.asarray(values, start)
    arrived = backend.copy_to(x, end)

    def copy() -> None:
        nonlocal arrived
        for _ in range(COPIES):
            arrived = backend.copy_to(x, end, out=arrived)

    def is_right() -> bool:
        return np.array_equal(backend.to_numpy(arrived), values)

    return Pair(name, plain, partial(timed_on, backend, copy), is_right)


def launches(backend: Backend, kind: DeviceKind) -> Iterator[Pair]:
    """Add 1 to a small array many times: by our verb, and plainly."""
    count = LAUNCHES[kind]
    x = backend.asarray(np.ones(4, np.float32), backend.devices[0])
    plain_x = torch.ones(4, device=TORCH_DEVICES[kind])
    sums: dict[str, Any] = {}

    def ours() -> None:
        y = x
        for _ in range(count):
            y = backend.launch(increment, y)
        sums["ours"] = y

    def plain() -> None:
        y = plain_x
        for _ in range(count):
            y = y + 1
        sums["plain"] = y

    def is_right() -> bool:
        arrays = backend.to_numpy(sums["ours"]), sums["plain"].cpu().numpy()
        return all((array == count + 1).all() for array in arrays)

    yield Pair("ours / plain", partial(timed_on, backend, ours), plainly(kind, plain), is_right)


def increment(x: Any) -> Any:
    """Add 1."""
    return x + 1


def units(backend: Backend, kind: DeviceKind) -> Iterator[Pair]:
    """Launch two units on one stream, and one on each of two: by our verbs and in plain PyTorch."""
    # Powers of such a matrix are the matrix itself.
    values = np.full((SIZES[kind], SIZES[kind]), 1 / SIZES[kind], np.float32)
    trial = Trial(backend, {})
    first, second = (
        chained(trial, backend.asarray(values, device), CHAIN[kind]).unit
        for device in backend.devices
    )

    def is_right() -> bool:
        return all(np.allclose(backend.to_numpy(unit()), values) for unit in (first, second))

    on_one = partial(timed_on, backend, lambda: (first(), first()))
    on_two = partial(timed_on, backend, lambda: (first(), second()))
    yield Pair("small_units_speedup", on_one, on_two, is_right)
    plain = plain_units(values, kind)
    yield plain
    yield Pair("ours / plain", plain.denominator, on_two, plain.is_right)


def plain_units(values: NDArray[np.float32], kind: DeviceKind) -> Pair:
    """Issue the same units in plain PyTorch, as graphs, both on one stream, or each on one of two;
    on a CPU, which has none, one after the other.
    """
    x = torch.tensor(values, device=TORCH_DEVICES[kind])
    results: Sequence[torch.Tensor] = ()

    def unit() -> torch.Tensor:
        y = x
        for _ in range(CHAIN[kind]):
            y = torch.matmul(x, y)
        return y

    def compute() -> None:
        nonlocal results
        results = unit(), unit()

    def is_right() -> bool:
        return all(np.allclose(y.cpu(), values) for y in results)

    def issue(*streams: "torch.cuda.Stream") -> None:
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()

    name = "plain_small_units_speedup"
    if kind == "cpu":
        return Pair(name, plainly(kind, compute), plainly(kind, compute), is_right)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    graphs, results = zip(recorded(unit, first), recorded(unit, second), strict=True)
    on_one = plainly(kind, partial(issue, first, first))
    on_two = plainly(kind, partial(issue, first, second))
    return Pair(name, on_one, on_two, is_right)


def recorded(unit: Callable[[], Any], stream: "torch.cuda.Stream") -> tuple[Any, Any]:
    """Record what a function issues to a stream as a CUDA graph; return that and its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        # What cuBLAS makes at first cannot be captured.
        unit()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        result = unit()
    return graph, result


WORKS: Mapping[str, Callable[[Backend, DeviceKind], Iterator[Pair]]] = {
    "launch": launches,
    "copies": copies,
    "units": units,
    "training": partial(trainings, replayed=False),
    "replayed": partial(trainings, replayed=True),
}
