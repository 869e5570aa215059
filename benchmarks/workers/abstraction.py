"""Time each experiment's work through our verbs, in plain MXNet or PyTorch, in executors: in turn,
in one process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from parallel_core.training.batches import Settings, batches
from parallel_core.training.dataset import Dataset, load_fashion_mnist
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

EPOCH = "a LeNet epoch"
WORKS = (
    "increments",
    "products on one device",
    "products on two devices",
    "products and copies",
    EPOCH,
)
PRODUCTS = 50
COPIES = 8
SIZE = 480
TOLERANCE = 1e-4
Call = Callable[..., Any]


@dataclass(frozen=True)
class Amounts:
    """How much work there is, and on what."""

    increments: int
    settings: Settings
    """Of an epoch."""
    matrix: np.ndarray
    data: Dataset = field(default_factory=load_fashion_mnist)


@dataclass(frozen=True)
class Side:
    """One way to do the work: what times each of WORKS, a buffer that the copies filled, and the
    epochs' losses so far.
    """

    timings: dict[str, Callable[[], Timing]]
    copied: Callable[[], np.ndarray]
    losses: list[tuple[float, ...]] = field(default_factory=list)


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


def ours(backend: Backend, amounts: Amounts) -> Side:
    """Do it through our verbs, on a backend with two devices."""
    first, second = backend.devices
    small = backend.asarray(np.ones((1, 2), dtype=np.float32), first)
    x, x_on_second = (backend.asarray(amounts.matrix, device) for device in (first, second))
    zeros = np.zeros_like(amounts.matrix)
    buffers = [backend.asarray(zeros, second) for _ in range(PRODUCTS)]
    multiply = partial(backend.launch, backend.ops.matmul)
    works: tuple[Callable[[], Any], ...] = (
        partial(queued_increments, backend.launch, backend.ops.add, small, amounts.increments),
        partial(products, multiply, x),
        partial(products, multiply, x, x_on_second),
        partial(our_copies, backend, x, second, buffers),
    )
    timings = [partial(timed_on, backend, work) for work in works]
    side = Side(dict(zip(WORKS, timings, strict=False)), lambda: backend.to_numpy(buffers[-1]))

    single = backends.load(backend.name, 1, "cpu", backend.engine, 1)
    params = [get_params(single, single.devices[0])]

    def next_epoch() -> Timing:
        epoch = train_epoch(single, params, amounts.data, amounts.settings, len(side.losses) + 1)
        side.losses.append(epoch.losses)
        return epoch.dispatch_seconds, epoch.seconds

    side.timings[EPOCH] = next_epoch
    return side


def timed(work: Callable[[], Any], wait: Callable[[Any], object]) -> Timing:
    """Time plain work and `wait` for what it returns."""
    start = perf_counter()
    results = work()
    sent = perf_counter()
    wait(results)
    return sent - start, perf_counter() - start


def plain_side(
    amounts: Amounts,
    works: Sequence[Callable[[], Any]],
    wait: Callable[[Any], object],
    copied: Callable[[], np.ndarray],
    train: Callable[..., list[float]],
) -> Side:
    """Put the timing around plain work, in the order of WORKS, and around plain training for an
    epoch.
    """
    timings = [partial(timed, work, wait) for work in works]
    side = Side(dict(zip(WORKS, timings, strict=False)), copied)

    def next_epoch() -> Timing:
        of_epoch = batches(amounts.data, amounts.settings, len(side.losses) + 1)
        start = perf_counter()
        losses = train(batches=of_epoch, rate=amounts.settings.learning_rate)
        seconds = perf_counter() - start
        side.losses.append(tuple(losses))
        return seconds, seconds

    side.timings[EPOCH] = next_epoch
    return side


def plain_mxnet(amounts: Amounts) -> Side:
    """Do it in MXNet, on the contexts that our devices are; MXNet queues it by itself."""
    import mxnet as mx

    from benchmarks.plain import mxnet_plain as plain

    first, second = mx.cpu(1), mx.cpu(2)
    x, x_on_second = (
        mx.np.array(amounts.matrix, dtype=np.float32, ctx=context) for context in (first, second)
    )
    buffers = [mx.np.zeros(amounts.matrix.shape, ctx=second) for _ in range(PRODUCTS)]
    works = (
        partial(increments, mx.np.ones((1, 2), ctx=first), amounts.increments),
        partial(products, mx.np.dot, x),
        partial(products, mx.np.dot, x, x_on_second),
        partial(copies, mx.np.dot, lambda buffer, product: product.copyto(buffer), x, buffers),
    )
    parameters = plain.load_parameters(initial_parameters(), first)
    train = partial(plain.epoch, [parameters])
    return plain_side(amounts, works, lambda _: mx.npx.waitall(), buffers[-1].asnumpy, train)


def plain_torch(amounts: Amounts) -> Side:
    """Do it in eager PyTorch, on the calling thread."""
    import torch

    from benchmarks.plain import torch_plain as plain

    x = torch.tensor(amounts.matrix)
    buffers = [torch.zeros_like(x) for _ in range(PRODUCTS)]
    works = (
        partial(increments, torch.ones((1, 2)), amounts.increments),
        partial(products, matmul, x),
        partial(products, matmul, x, x.clone()),
        partial(copies, matmul, torch.Tensor.copy_, x, buffers),
    )
    train = partial(plain.book_epoch, plain.load_parameters(initial_parameters()))
    return plain_side(amounts, works, lambda _: None, buffers[-1].numpy, train)


def torch_in_executors(amounts: Amounts, cores: Sequence[set[int]]) -> Side:
    """Do it in PyTorch in executors of one thread: one for each device's cores, and one for
    copies.
    """
    import torch

    from benchmarks.plain import torch_plain as plain

    first, second, copying = map(plain.make_executor, (*cores, cores[1]))
    x = torch.tensor(amounts.matrix)
    x_on_second, small = x.clone(), torch.ones((1, 2))
    buffers = [torch.zeros_like(x) for _ in range(PRODUCTS)]
    multiply, multiply_on_second = partial(first.submit, matmul), partial(second.submit, matmul)
    copy = partial(copying.submit, plain.copy_made)
    works = (
        lambda: [queued_increments(first.submit, add, small, amounts.increments)],
        partial(products, multiply, x),
        lambda: products(multiply, x) + products(multiply_on_second, x_on_second),
        partial(copies, multiply, copy, x, buffers),
    )

    def wait(futures: list[Any]) -> None:
        for future in futures:
            future.result()

    train = partial(plain.queued_epoch, first, plain.load_parameters(initial_parameters()))
    return plain_side(amounts, works, wait, buffers[-1].numpy, train)


def measure(
    backend: str, engine: str, increments: int, batches: int, repetitions: int, epochs: int
) -> dict[str, Any]:
    """Time all sides of all works; the cases are named `WORK, SIDE`."""
    loaded = backends.load(backend, 2, "cpu", engine, 1)
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    amounts = Amounts(increments, Settings(limit=batches), matrix)
    sides = {"ours": ours(loaded, amounts)}
    if backend == "mxnet":
        sides["plain"] = plain_mxnet(amounts)
    else:
        sides["plain"] = plain_torch(amounts)
        if engine == "async":
            sides["executors"] = torch_in_executors(amounts, [*map(set, loaded.cores)])
    seconds = {}
    for work in WORKS:
        rounds = epochs if work == EPOCH else repetitions
        timings = {f"{work}, {name}": side.timings[work] for name, side in sides.items()}
        for case in interleave(timings, rounds=rounds):
            seconds[case.name] = case.seconds
    return compose(seconds, {backend: loaded.version}, problems(sides, matrix))


def problems(sides: Mapping[str, Side], matrix: np.ndarray) -> list[str]:
    """Return a sentence for each side that differs from NumPy, or from the losses of our first
    epoch.
    """
    sentences = []
    our_losses = np.array(sides["ours"].losses[0])
    for name, side in sides.items():
        error = relative_error(side.copied(), matrix @ matrix)
        if not error < TOLERANCE:
            sentences.append(f"{name}: products differ from NumPy's by {error:.1e}")
        # Later epochs drift apart, for frameworks and orders of addition round differently.
        error = relative_error(np.array(side.losses[0]), our_losses)
        if not error < TOLERANCE:
            sentences.append(f"{name}: losses differ from ours by {error:.1e}")
    return sentences
