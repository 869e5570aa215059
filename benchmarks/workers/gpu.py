"""Time launches, copies, small units and trainings beside plain PyTorch's, in turn, on one GPU.

On CPU devices, the second of which stands for the host or the other stream, it is a rehearsal with
next to no work.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import truediv
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

import backends
from backends import HOST, Array, Backend
from backends.devices import DeviceKind
from benchmarks.harness.targets import by_round
from benchmarks.workers.abstraction import timed
from benchmarks.workers.answer import compose
from benchmarks.workers.gpu_training import images_of, trainings
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
Pair: TypeAlias = tuple[str, Callable[[], Timing], Callable[[], Timing], Callable[[], bool]]
"""The name of a ratio, what it is over, the other, and whether what that made is right."""


def measure(kind: DeviceKind, devices: str, what: str) -> dict[str, Any]:
    """Time one of WORKS; the figures are ratios to plain PyTorch or to one stream, of speeds, and
    for `launch` of times.
    """
    variants = ("graph-replay",) if what == "replayed" and kind == "gpu" else ()
    backend = backends.load("torch", devices, "auto", "async", 1, variants=variants)
    pairs = list(WORKS[what](backend, kind))
    timings = {
        f"{name}, {side}": take
        for name, *takes, _ in pairs
        for side, take in zip("ab", takes, strict=True)
    }
    taken = {case.name: case.seconds for case in interleave(timings, ROUNDS[kind], WARMUPS)}
    ratios = {
        name: by_round(truediv, taken[f"{name}, a"], taken[f"{name}, b"]) for name, *_ in pairs
    }
    problems = [
        f"{name}: what was timed is wrong" for name, _, _, is_right in pairs if not is_right()
    ]
    if what in ("training", "replayed"):
        plain, ours = taken.values()
        images = images_of(kind)
        ratios["plain_images_per_second"] = by_round(partial(truediv, images), plain)
        ratios["images_per_second"] = by_round(partial(truediv, images), ours)
    figures = {name: ratio.estimate for name, ratio in ratios.items()}
    intervals = {name: (ratio.low, ratio.high) for name, ratio in ratios.items()}
    return {
        **compose(taken, {"torch": backend.version}, problems, figures),
        "metric_intervals": intervals,
    }


def copies(backend: Backend, kind: DeviceKind) -> Iterator[Pair]:
    """Copy in both directions, plain PyTorch's way and ours."""
    device, host = backend.devices[0], HOST if kind == "gpu" else backend.devices[1]
    values = np.random.default_rng(0).integers(0, 256, BYTES[kind] // COPIES, dtype=np.uint8)
    here = torch.zeros(BYTES[kind], dtype=torch.uint8, pin_memory=kind == "gpu")
    there = torch.zeros(BYTES[kind], dtype=torch.uint8, device="cuda:0" if kind == "gpu" else "cpu")
    ways = (("to_device", host, device, here, there), ("to_host", device, host, there, here))
    for name, start, end, source, target in ways:
        x = backend.asarray(values, start)
        arrived = [backend.copy_to(x, end)]

        def copy(x: Array = x, end: backends.Device = end, arrived: list[Array] = arrived) -> None:
            for _ in range(COPIES):
                arrived[0] = backend.copy_to(x, end, out=arrived[0])

        plain = partial(target.copy_, source, non_blocking=True)
        plain_timed = partial(timed, plain, lambda _: kind == "gpu" and torch.cuda.synchronize())
        is_right = partial(
            lambda arrived: np.array_equal(backend.to_numpy(arrived[0]), values), arrived
        )
        yield name, plain_timed, partial(timed_on, backend, copy), is_right


def launches(backend: Backend, kind: DeviceKind) -> Iterator[Pair]:
    """Add 1 to a small array many times: by our verb, plainly, and plainly with an event each."""
    count = LAUNCHES[kind]
    x = backend.asarray(np.ones(4, np.float32), backend.devices[0])
    plain_x = torch.ones(4, device="cuda:0" if kind == "gpu" else "cpu")
    events = [torch.cuda.Event() for _ in range(16)] if kind == "gpu" else []
    last: dict[str, Array] = {}

    def ours() -> None:
        y = x
        for _ in range(count):
            y = backend.launch(increment, y)
        last["ours"] = y

    def plain(events: Sequence[Any] = ()) -> None:
        y = plain_x
        for number in range(count):
            y = y + 1
            if events:
                events[number % len(events)].record()
        last["plain"] = y

    def plainly(*events: Sequence[Any]) -> Callable[[], Timing]:
        wait = lambda _: kind == "gpu" and torch.cuda.synchronize()  # noqa: E731
        return partial(timed, partial(plain, *events), wait)

    def is_right() -> bool:
        sums = backend.to_numpy(last["ours"]), last["plain"].cpu().numpy()
        return all((found == count + 1).all() for found in sums)

    yield "ours / plain", partial(timed_on, backend, ours), plainly(), is_right
    yield "with an event / plain", plainly(events), plainly(), is_right


def increment(x: Any) -> Any:
    """Add 1."""
    return x + 1


def units(backend: Backend, kind: DeviceKind) -> Iterator[Pair]:
    """Launch two units on one stream, and one on each of two."""
    # Powers of such a matrix are the matrix itself.
    values = np.full((SIZES[kind], SIZES[kind]), 1 / SIZES[kind], np.float32)
    loaded = (backend.asarray(values, device) for device in backend.devices)
    pair = [chained(Trial(backend, {}), x, CHAIN[kind]).unit for x in loaded]
    one, two = (
        partial(timed_on, backend, lambda other=other: (pair[0](), other())) for other in pair
    )
    yield (
        "small_units_speedup",
        one,
        two,
        lambda: all(np.allclose(backend.to_numpy(unit()), values) for unit in pair),
    )
    plain = plain_units(values, kind)
    yield plain
    _, _, plainly_on_two, is_right = plain
    yield "ours / plain", plainly_on_two, two, is_right


def plain_units(values: NDArray[np.float32], kind: DeviceKind) -> Pair:
    """Issue the same units in plain PyTorch, as graphs, both on one stream, or each on one of two;
    on a CPU, which has none, one after the other.
    """
    x = torch.tensor(values, device="cuda:0" if kind == "gpu" else "cpu")
    results: Sequence[torch.Tensor] = ()

    def unit() -> torch.Tensor:
        y = x
        for _ in range(CHAIN[kind]):
            y = torch.matmul(x, y)
        return y

    def compute() -> None:
        nonlocal results
        results = unit(), unit()

    def issue(*on: "torch.cuda.Stream") -> None:
        for graph, stream in zip(graphs, on, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()

    if kind == "cpu":
        one = two = partial(timed, compute, lambda _: None)
    else:
        streams = [torch.cuda.Stream() for _ in range(2)]
        graphs, results = zip(*(recorded(unit, stream) for stream in streams), strict=True)
        one, two = (
            partial(timed, partial(issue, *on), lambda _: torch.cuda.synchronize())
            for on in (streams[:1] * 2, streams)
        )
    return (
        "plain_small_units_speedup",
        one,
        two,
        lambda: all(np.allclose(y.cpu(), values) for y in results),
    )


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
