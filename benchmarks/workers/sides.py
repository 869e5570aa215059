"""The sides that `abstraction` compares: the same work through our verbs, in plain MXNet or PyTorch, in executors."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

import backends
from backends import Array, Backend, Device
from benchmarks.workers.data import batches
from parallel_core.measurement.timing import Timing, measure
from parallel_core.training.batches import Epoch, Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import train
from parallel_core.training.step import get_params

__all__ = [
    "BARE",
    "HELD",
    "HELD_BARE",
    "WORKS",
    "Amounts",
    "Side",
    "executors",
    "held_increments",
    "ours",
    "plain_mxnet",
    "plain_torch",
]

WORKS = ("increments", "products on one device", "products on two devices", "products and copies", "a LeNet epoch")
BARE = "increments in a bare queue"
HELD, HELD_BARE = "increments, ours, held", "increments in a bare queue, held"
"""The worker begins when all are launched, so that neither thread waits for the other one."""
PRODUCTS = 50
COPIES = 8
BATCH = 256
RATE = 0.2


@dataclass(frozen=True)
class Amounts:
    """How much work there is, and on what."""

    increments: int
    batches: int
    matrix: np.ndarray
    data: Dataset


@dataclass(frozen=True)
class Side:
    """One way to do the work: what times it, a buffer that the copies filled, and the epochs' losses so far."""

    works: dict[str, Callable[[], Timing]]
    copied: Callable[[], np.ndarray]
    losses: list[tuple[float, ...]] = field(default_factory=list)


def ours(backend: Backend, amounts: Amounts) -> Side:
    """Do it through our verbs, on a backend with two devices."""
    first, second = backend.devices
    one = backend.asarray(np.ones((1, 2), dtype=np.float32), first)
    x, other = (backend.asarray(amounts.matrix, device) for device in (first, second))
    buffers = [backend.asarray(np.zeros_like(amounts.matrix), second) for _ in range(PRODUCTS)]
    single = backends.load(backend.name, 1, "cpu", backend.engine, 1)
    settings = Settings(epochs=1000, batch_size=BATCH, learning_rate=RATE, limit=amounts.batches)
    epochs = train(single, [get_params(single, single.devices[0])], amounts.data, settings)
    works: dict[str, Callable[[], Timing]] = {
        name: partial(measure, backend, work)
        for name, work in {
            "increments": partial(launch_increments, backend, one, amounts.increments),
            "products on one device": partial(launch_products, backend, x),
            "products on two devices": partial(launch_products, backend, x, other),
            "products and copies": partial(launch_copies, backend, x, second, buffers),
        }.items()
    }
    side = Side(works, lambda: backend.to_numpy(buffers[-1]))
    works["a LeNet epoch"] = partial(next_epoch, epochs, side.losses)
    return side


def launch_increments(backend: Backend, x: Array, count: int) -> Array:
    """Launch x + 1 many times."""
    for _ in range(count):
        y = backend.launch(backend.ops.add, x, 1)
    return y


def held_increments(backend: Backend, amounts: Amounts) -> Timing:
    """Launch x + 1 many times while the worker waits, then let it work: the seconds of the first part, and of both."""
    one = backend.asarray(np.ones((1, 2), dtype=np.float32), backend.devices[0])
    may_begin = threading.Event()

    def hold(x: Array) -> Array:
        may_begin.wait()
        return x

    backend.launch(hold, one)
    return held(partial(launch_increments, backend, one, amounts.increments), may_begin, backend.wait)


def held(work: Callable[[], Any], may_begin: threading.Event, wait: Callable[[Any], object]) -> Timing:
    """Time plain work, and with it what is done of it once it may begin."""

    def begin_and_wait(kept: Any) -> None:
        may_begin.set()
        wait(kept)

    return timed(work, begin_and_wait)


def launch_products(backend: Backend, *matrices: Array) -> list[Array]:
    """Launch 50 products on each matrix's device."""
    return [backend.launch(backend.ops.matmul, x, x) for x in matrices for _ in range(PRODUCTS)]


def launch_copies(backend: Backend, x: Array, device: Device, buffers: list[Array]) -> None:
    """Launch 50 products and 8 copies of each into its buffer on another device."""
    for index, buffer in enumerate(buffers):
        made = backend.launch(backend.ops.matmul, x, x)
        for _ in range(COPIES):
            buffer = backend.copy_to(made, device, out=buffer)
        buffers[index] = buffer


def next_epoch(epochs: Iterator[Epoch], losses: list[tuple[float, ...]]) -> Timing:
    """Train for an epoch and return its own times: the test that follows it is not counted."""
    epoch = next(epochs)
    losses.append(epoch.losses)
    return epoch.dispatch_seconds, epoch.seconds


def timed(work: Callable[[], Any], wait: Callable[[Any], object]) -> Timing:
    """Time plain work and `wait` for what it returns."""
    start = perf_counter()
    kept = work()
    sent = perf_counter()
    wait(kept)
    return sent - start, perf_counter() - start


def timed_epoch(train_epoch: Callable[[Any], list[float]], amounts: Amounts, losses: list[tuple[float, ...]]) -> Timing:
    """Time plain training for an epoch, the next one by the number of those before."""
    chosen = batches(amounts.data, BATCH, amounts.batches, len(losses) + 1)
    start = perf_counter()
    losses.append(tuple(train_epoch(chosen)))
    taken = perf_counter() - start
    return taken, taken


def plain_side(
    works: dict[str, Callable[[], Any]],
    train_epoch: Callable[[Any], list[float]],
    wait: Callable[[Any], object],
    copied: Callable[[], np.ndarray],
    amounts: Amounts,
) -> Side:
    """Put the timing around plain work."""
    side = Side({name: partial(timed, work, wait) for name, work in works.items()}, copied)
    side.works["a LeNet epoch"] = partial(timed_epoch, train_epoch, amounts, side.losses)
    return side


def plain_mxnet(amounts: Amounts) -> Side:
    """Do it in MXNet, on the contexts that our devices are; MXNet queues it by itself."""
    import mxnet as mx

    from benchmarks.plain import mxnet_plain as plain

    first, second = mx.cpu(1), mx.cpu(2)
    one = mx.np.ones((1, 2), ctx=first)
    x, other = (mx.np.array(amounts.matrix, dtype=np.float32, ctx=context) for context in (first, second))
    buffers = [mx.np.zeros(amounts.matrix.shape, ctx=second) for _ in range(PRODUCTS)]
    parameters = plain.load_parameters(initial_parameters(), first)
    works = {
        "increments": partial(plain.increments, one, amounts.increments),
        "products on one device": partial(plain.products, x, PRODUCTS),
        "products on two devices": lambda: plain.products(x, PRODUCTS) + plain.products(other, PRODUCTS),
        "products and copies": partial(plain.copies, x, buffers, COPIES),
    }
    train_epoch = partial(plain.queued_epoch, parameters, rate=RATE)
    return plain_side(works, train_epoch, lambda _: mx.npx.waitall(), lambda: buffers[-1].asnumpy(), amounts)


def plain_torch(amounts: Amounts) -> Side:
    """Do it in eager PyTorch, on the calling thread."""
    import torch

    from benchmarks.plain import torch_plain as plain

    one, x = torch.ones((1, 2)), torch.tensor(amounts.matrix)
    other, buffers = x.clone(), [torch.zeros_like(x) for _ in range(PRODUCTS)]
    parameters = plain.load_parameters(initial_parameters())
    works = {
        "increments": partial(plain.increments, one, amounts.increments),
        "products on one device": partial(plain.products, x, PRODUCTS),
        "products on two devices": lambda: plain.products(x, PRODUCTS) + plain.products(other, PRODUCTS),
        "products and copies": partial(plain.copies, x, buffers, COPIES),
    }
    train_epoch = partial(plain.book_epoch, parameters, rate=RATE)
    return plain_side(works, train_epoch, lambda _: None, buffers[-1].numpy, amounts)


def executors(amounts: Amounts, cores: list[set[int]]) -> Side:
    """Do it in PyTorch with the standard library's executors, one for each device's cores and one for copies."""
    import torch

    from benchmarks.plain import torch_plain
    from benchmarks.plain import torch_pools as pools

    computing, computing_too, copying = map(pools.make_executor, (*cores, cores[1]))
    one, x = torch.ones((1, 2)), torch.tensor(amounts.matrix)
    other, buffers = x.clone(), [torch.zeros_like(x) for _ in range(PRODUCTS)]
    parameters = torch_plain.load_parameters(initial_parameters())
    bare = pools.make_bare_queue()
    works = {
        "increments": lambda: [pools.increments(computing, one, amounts.increments)],
        "products on one device": partial(pools.products, computing, x, PRODUCTS),
        "products on two devices": lambda: (
            pools.products(computing, x, PRODUCTS) + pools.products(computing_too, other, PRODUCTS)
        ),
        "products and copies": partial(pools.copies, computing, copying, x, buffers, COPIES),
    }

    def wait(futures: list[Any]) -> None:
        for future in futures:
            future.result()

    train_epoch = partial(pools.epoch, computing, parameters, rate=RATE)
    side = plain_side(works, train_epoch, wait, buffers[-1].numpy, amounts)
    launch_bare = partial(pools.bare_increments, bare, one, amounts.increments)
    side.works[BARE] = partial(timed, launch_bare, pools.wait_bare)
    side.works[HELD_BARE] = lambda: held(launch_bare, pools.hold(bare), pools.wait_bare)
    return side
