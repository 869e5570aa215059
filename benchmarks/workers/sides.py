"""The sides that `abstraction` compares: the same work through our verbs, in plain MXNet or PyTorch, in executors."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import add
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np

import backends
from backends import Array, Backend, Device
from parallel_core.measurement.timing import Timing, measure
from parallel_core.training.batches import Settings, batches
from parallel_core.training.dataset import Dataset, load_fashion_mnist
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

WORKS = ("increments", "products on one device", "products on two devices", "products and copies", "a LeNet epoch")
BARE = "increments in a bare queue"
PRODUCTS = 50
COPIES = 8


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
    params = [get_params(single, single.devices[0])]
    works = (
        partial(launch_increments, backend, one, amounts.increments),
        partial(launch_products, backend, x),
        partial(launch_products, backend, x, other),
        partial(launch_copies, backend, x, second, buffers),
    )
    side = Side(
        {name: partial(measure, backend, work) for name, work in zip(WORKS, works, strict=False)},
        lambda: backend.to_numpy(buffers[-1]),
    )

    def next_epoch() -> Timing:
        epoch = train_epoch(single, params, amounts.data, amounts.settings, len(side.losses) + 1)
        side.losses.append(epoch.losses)
        return epoch.dispatch_seconds, epoch.seconds

    side.works[WORKS[-1]] = next_epoch
    return side


def launch_increments(backend: Backend, x: Array, count: int) -> Array:
    """Launch x + 1 many times."""
    for _ in range(count):
        y = backend.launch(backend.ops.add, x, 1)
    return y


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


def timed(work: Callable[[], Any], wait: Callable[[Any], object]) -> Timing:
    """Time plain work and `wait` for what it returns."""
    start = perf_counter()
    kept = work()
    sent = perf_counter()
    wait(kept)
    return sent - start, perf_counter() - start


def plain_side(
    amounts: Amounts,
    works: tuple[Callable[[], Any], ...],
    train: Callable[..., list[float]],
    wait: Callable[[Any], object],
    copied: Callable[[], np.ndarray],
) -> Side:
    """Put the timing around plain work, in the order of WORKS, and around plain training for an epoch."""
    side = Side({name: partial(timed, work, wait) for name, work in zip(WORKS, works, strict=False)}, copied)

    def next_epoch() -> Timing:
        chosen = batches(amounts.data, amounts.settings, len(side.losses) + 1)
        start = perf_counter()
        side.losses.append(tuple(train(batches=chosen, rate=amounts.settings.learning_rate)))
        taken = perf_counter() - start
        return taken, taken

    side.works[WORKS[-1]] = next_epoch
    return side


def plain_mxnet(amounts: Amounts) -> Side:
    """Do it in MXNet, on the contexts that our devices are; MXNet queues it by itself."""
    import mxnet as mx

    from benchmarks.plain import mxnet_plain as plain

    first, second = mx.cpu(1), mx.cpu(2)
    x, other = (mx.np.array(amounts.matrix, dtype=np.float32, ctx=context) for context in (first, second))
    buffers = [mx.np.zeros(amounts.matrix.shape, ctx=second) for _ in range(PRODUCTS)]
    works = (
        partial(plain.increments, mx.np.ones((1, 2), ctx=first), amounts.increments),
        partial(plain.products, x, PRODUCTS),
        lambda: plain.products(x, PRODUCTS) + plain.products(other, PRODUCTS),
        partial(plain.copies, x, buffers, COPIES),
    )
    train = partial(plain.epoch, [plain.load_parameters(initial_parameters(), first)])
    return plain_side(amounts, works, train, lambda _: mx.npx.waitall(), lambda: buffers[-1].asnumpy())


def plain_torch(amounts: Amounts, cores: list[set[int]] | None = None) -> Side:
    """Do it in eager PyTorch, on the calling thread; with cores in executors, for each device's and one for copies."""
    import torch

    from benchmarks.plain import torch_plain as plain

    one, x = torch.ones((1, 2)), torch.tensor(amounts.matrix)
    other, buffers = x.clone(), [torch.zeros_like(x) for _ in range(PRODUCTS)]
    parameters = plain.load_parameters(initial_parameters())
    if cores is None:
        works = (
            partial(plain.increments, one, amounts.increments),
            partial(plain.products, x, PRODUCTS),
            lambda: plain.products(x, PRODUCTS) + plain.products(other, PRODUCTS),
            partial(plain.copies, x, buffers, COPIES),
        )
        return plain_side(amounts, works, partial(plain.book_epoch, parameters), lambda _: None, buffers[-1].numpy)
    first, second, copying = map(plain.make_executor, (*cores, cores[1]))
    queued = (
        lambda: [plain.queued_increments(first, one, amounts.increments)],
        partial(plain.queued_products, first, x, PRODUCTS),
        lambda: plain.queued_products(first, x, PRODUCTS) + plain.queued_products(second, other, PRODUCTS),
        partial(plain.queued_copies, first, copying, x, buffers, COPIES),
    )

    def wait(futures: list[Any]) -> None:
        for future in futures:
            future.result()

    return plain_side(amounts, queued, partial(plain.queued_epoch, first, parameters), wait, buffers[-1].numpy)


class _Awaited:
    """What a bare queue will compute: `value`, from when `done` is released."""

    __slots__ = ("args", "done", "fn", "value")

    def __init__(self, fn: Any, args: tuple[Any, ...]) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.fn, self.args = fn, args


def bare_queue(increments: int) -> Callable[[], Timing]:
    """Return what times increments in the least queue that there can be, without errors, readers and an end."""
    import torch

    one = torch.ones((1, 2))
    queue: SimpleQueue[_Awaited] = SimpleQueue()

    def serve() -> None:
        while True:
            task = queue.get()
            task.value = task.fn(*[arg.value if arg.__class__ is _Awaited else arg for arg in task.args])
            task.fn = task.args = None
            task.done.release()

    def launch(fn: Any, *args: Any) -> _Awaited:
        task = _Awaited(fn, args)
        queue.put(task)
        return task

    def launch_all() -> _Awaited:
        first = launch(torch.clone, one)
        for _ in range(increments):
            y = launch(add, first, 1)
        return y

    threading.Thread(target=serve, daemon=True).start()
    return partial(timed, launch_all, lambda last: last.done.acquire())
