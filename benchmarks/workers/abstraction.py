"""Time work of the experiments through our verbs, in plain MXNet or PyTorch, in executors: in turn,
in one process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import add, matmul
from time import perf_counter
from typing import Any

import numpy as np

import backends
from backends import Array, Backend, Device
from benchmarks.workers.answer import compose
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.timing import Timing, interleave
from parallel_core.measurement.timing import measure as timed_on

WORKS = (
    "increments",
    "products on one device",
    "products on two devices",
    "products and copies",
)
PRODUCTS = 50
COPIES = 8
SIZE = 480
TOLERANCE = 1e-4
Call = Callable[..., Any]


@dataclass(frozen=True)
class Side:
    """One way to do the work: what times each of WORKS, and a buffer that the copies filled."""

    timings: Mapping[str, Callable[[], Timing]]
    copied: Callable[[], np.ndarray]


def side_of(
    works: Sequence[Callable[[], Any]],
    time: Callable[[Callable[[], Any]], Timing],
    copied: Callable[[], np.ndarray],
) -> Side:
    """Put a timing around work in the order of WORKS."""
    timings = [partial(time, work) for work in works]
    return Side(dict(zip(WORKS, timings, strict=True)), copied)


def increments(x: Any, count: int) -> Any:
    """Compute x + 1 many times; a framework that queues work by itself queues it."""
    for _ in range(count):
        y = x + 1
    return y


def queued_increments(launch: Call, plus: Call, x: Any, count: int) -> Any:
    """Launch x + 1 many times in a queue."""
    for _ in range(count):
        y = launch(plus, x, 1)
    return y


def products(multiply: Call, *matrices: Any) -> list[Any]:
    """Multiply each matrix with itself 50 times."""
    results = []
    for x in matrices:
        results += [multiply(x, x) for _ in range(PRODUCTS)]
    return results


def copies(multiply: Call, copy: Call, x: Any, buffers: Sequence[Any]) -> list[Any]:
    """Make as many products as there are buffers, and copy each into its buffer 8 times."""
    copied = []
    for buffer in buffers:
        product = multiply(x, x)
        copied += [copy(buffer, product) for _ in range(COPIES)]
    return copied


def our_copies(backend: Backend, x: Array, device: Device, buffers: list[Array]) -> None:
    """Do so through our verbs, where a buffer that is written to is a new value."""
    for index in range(len(buffers)):
        product = backend.launch(backend.ops.matmul, x, x)
        for _ in range(COPIES):
            buffers[index] = backend.copy_to(product, device, out=buffers[index])


def ours(backend: Backend, matrix: np.ndarray, count: int) -> Side:
    """Do it through our verbs, on a backend with two devices."""
    first, second = backend.devices
    small = backend.asarray(np.ones((1, 2), dtype=np.float32), first)
    x, x_on_second = (backend.asarray(matrix, device) for device in (first, second))
    buffers = [backend.asarray(np.zeros_like(matrix), second) for _ in range(PRODUCTS)]
    multiply = partial(backend.launch, backend.ops.matmul)
    works = (
        partial(queued_increments, backend.launch, backend.ops.add, small, count),
        partial(products, multiply, x),
        partial(products, multiply, x, x_on_second),
        partial(our_copies, backend, x, second, buffers),
    )
    return side_of(works, partial(timed_on, backend), lambda: backend.to_numpy(buffers[-1]))


def timed(work: Callable[[], Any], wait: Callable[[Any], object]) -> Timing:
    """Time plain work and `wait` for what it returns."""
    start = perf_counter()
    results = work()
    sent = perf_counter()
    wait(results)
    return sent - start, perf_counter() - start


def plain_mxnet(matrix: np.ndarray, count: int) -> Side:
    """Do it in MXNet, on the contexts that our devices are; MXNet queues it by itself."""
    import mxnet as mx

    first, second = mx.cpu(1), mx.cpu(2)
    x, x_on_second = (mx.np.array(matrix, dtype=np.float32, ctx=cpu) for cpu in (first, second))
    buffers = [mx.np.zeros(matrix.shape, ctx=second) for _ in range(PRODUCTS)]
    works = (
        partial(increments, mx.np.ones((1, 2), ctx=first), count),
        partial(products, mx.np.dot, x),
        partial(products, mx.np.dot, x, x_on_second),
        partial(copies, mx.np.dot, lambda buffer, product: product.copyto(buffer), x, buffers),
    )
    time = partial(timed, wait=lambda _: mx.npx.waitall())
    return side_of(works, time, buffers[-1].asnumpy)


def plain_torch(matrix: np.ndarray, count: int) -> Side:
    """Do it in eager PyTorch, on the calling thread."""
    import torch

    x = torch.tensor(matrix)
    buffers = [torch.zeros_like(x) for _ in range(PRODUCTS)]
    works = (
        partial(increments, torch.ones((1, 2)), count),
        partial(products, matmul, x),
        partial(products, matmul, x, x.clone()),
        partial(copies, matmul, torch.Tensor.copy_, x, buffers),
    )
    return side_of(works, partial(timed, wait=lambda _: None), buffers[-1].numpy)


def torch_in_executors(matrix: np.ndarray, count: int, cores: Sequence[set[int]]) -> Side:
    """Do it in PyTorch in executors of one thread: one for each device's cores, and one for
    copies.
    """
    import torch

    from benchmarks.plain.torch_plain import copy_made, make_executor

    first, second, copying = map(make_executor, (*cores, cores[1]))
    x = torch.tensor(matrix)
    x_on_second, small = x.clone(), torch.ones((1, 2))
    buffers = [torch.zeros_like(x) for _ in range(PRODUCTS)]
    multiply, multiply_on_second = partial(first.submit, matmul), partial(second.submit, matmul)
    works = (
        lambda: [queued_increments(first.submit, add, small, count)],
        partial(products, multiply, x),
        lambda: products(multiply, x) + products(multiply_on_second, x_on_second),
        partial(copies, multiply, partial(copying.submit, copy_made), x, buffers),
    )

    def wait(futures: list[Any]) -> None:
        for future in futures:
            future.result()

    return side_of(works, partial(timed, wait=wait), buffers[-1].numpy)


def measure(backend: str, engine: str, increments: int, repetitions: int) -> dict[str, Any]:
    """Time all sides of all works; the cases are named `WORK, SIDE`."""
    loaded = backends.load(backend, 2, "cpu", engine, 1)
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    sides = {"ours": ours(loaded, matrix, increments)}
    if backend == "mxnet":
        sides["plain"] = plain_mxnet(matrix, increments)
    else:
        sides["plain"] = plain_torch(matrix, increments)
        if engine == "async":
            sides["executors"] = torch_in_executors(matrix, increments, loaded.cores)
    seconds = {}
    for work in WORKS:
        timings = {f"{work}, {name}": side.timings[work] for name, side in sides.items()}
        for case in interleave(timings, rounds=repetitions):
            seconds[case.name] = case.seconds
    problems = []
    for name, side in sides.items():
        error = relative_error(side.copied(), matrix @ matrix)
        if not error < TOLERANCE:
            problems.append(f"{name}: products differ from NumPy's by {error:.1e}")
    return compose(seconds, {backend: loaded.version}, problems)
