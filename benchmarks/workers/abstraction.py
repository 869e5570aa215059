"""Time each experiment's work through our verbs, in plain MXNet or PyTorch, in executors: in turn,
in one process.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import add, matmul
from queue import SimpleQueue
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

WORKS = (
    "increments",
    "products on one device",
    "products on two devices",
    "products and copies",
    "a LeNet epoch",
)
BARE = "increments in a bare queue"
PRODUCTS = 50
COPIES = 8
SIZE = 480
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
    """One way to do the work: what times it, a buffer that the copies filled, and the epochs'
    losses so far.
    """

    works: dict[str, Callable[[], Timing]]
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
    return [multiply(x, x) for x in matrices for _ in range(PRODUCTS)]


def copies(multiply: Call, copy: Call, x: Any, buffers: Sequence[Any]) -> list[Any]:
    """Make as many products as there are buffers, and copy each into its buffer 8 times."""
    done = []
    for buffer in buffers:
        made = multiply(x, x)
        done += [copy(buffer, made) for _ in range(COPIES)]
    return done


def our_copies(backend: Backend, x: Array, device: Device, buffers: list[Array]) -> None:
    """Do so through our verbs, where a buffer that is written to is a new value."""
    for index, buffer in enumerate(buffers):
        made = backend.launch(backend.ops.matmul, x, x)
        for _ in range(COPIES):
            buffer = backend.copy_to(made, device, out=buffer)
        buffers[index] = buffer


def ours(backend: Backend, amounts: Amounts) -> Side:
    """Do it through our verbs, on a backend with two devices."""
    first, second = backend.devices
    one = backend.asarray(np.ones((1, 2), dtype=np.float32), first)
    x, other = (backend.asarray(amounts.matrix, device) for device in (first, second))
    buffers = [backend.asarray(np.zeros_like(amounts.matrix), second) for _ in range(PRODUCTS)]
    single = backends.load(backend.name, 1, "cpu", backend.engine, 1)
    params = [get_params(single, single.devices[0])]
    multiply = partial(backend.launch, backend.ops.matmul)
    works = (
        partial(queued_increments, backend.launch, backend.ops.add, one, amounts.increments),
        partial(products, multiply, x),
        partial(products, multiply, x, other),
        partial(our_copies, backend, x, second, buffers),
    )
    side = Side(
        {name: partial(timed_on, backend, work) for name, work in zip(WORKS, works, strict=False)},
        lambda: backend.to_numpy(buffers[-1]),
    )

    def next_epoch() -> Timing:
        epoch = train_epoch(single, params, amounts.data, amounts.settings, len(side.losses) + 1)
        side.losses.append(epoch.losses)
        return epoch.dispatch_seconds, epoch.seconds

    side.works[WORKS[-1]] = next_epoch
    return side


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
    """Put the timing around plain work, in the order of WORKS, and around plain training for an
    epoch.
    """
    side = Side(
        {name: partial(timed, work, wait) for name, work in zip(WORKS, works, strict=False)}, copied
    )

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
    x, other = (
        mx.np.array(amounts.matrix, dtype=np.float32, ctx=context) for context in (first, second)
    )
    buffers = [mx.np.zeros(amounts.matrix.shape, ctx=second) for _ in range(PRODUCTS)]
    works = (
        partial(increments, mx.np.ones((1, 2), ctx=first), amounts.increments),
        partial(products, mx.np.dot, x),
        partial(products, mx.np.dot, x, other),
        partial(copies, mx.np.dot, lambda buffer, made: made.copyto(buffer), x, buffers),
    )
    train = partial(plain.epoch, [plain.load_parameters(initial_parameters(), first)])
    return plain_side(
        amounts, works, train, lambda _: mx.npx.waitall(), lambda: buffers[-1].asnumpy()
    )


def plain_torch(amounts: Amounts, cores: list[set[int]] | None = None) -> Side:
    """Do it in eager PyTorch, on the calling thread; with cores in executors, for each device's and
    one for copies.
    """
    import torch

    from benchmarks.plain import torch_plain as plain

    one, x = torch.ones((1, 2)), torch.tensor(amounts.matrix)
    other, buffers = x.clone(), [torch.zeros_like(x) for _ in range(PRODUCTS)]
    parameters = plain.load_parameters(initial_parameters())
    if cores is None:
        works = (
            partial(increments, one, amounts.increments),
            partial(products, matmul, x),
            partial(products, matmul, x, other),
            partial(copies, matmul, torch.Tensor.copy_, x, buffers),
        )
        return plain_side(
            amounts, works, partial(plain.book_epoch, parameters), lambda _: None, buffers[-1].numpy
        )
    first, second, copying = map(plain.make_executor, (*cores, cores[1]))
    multiply = partial(first.submit, matmul)
    queued = (
        lambda: [queued_increments(first.submit, add, one, amounts.increments)],
        partial(products, multiply, x),
        lambda: products(multiply, x) + products(partial(second.submit, matmul), other),
        partial(copies, multiply, partial(copying.submit, plain.copy_made), x, buffers),
    )

    def wait(futures: list[Any]) -> None:
        for future in futures:
            future.result()

    return plain_side(
        amounts, queued, partial(plain.queued_epoch, first, parameters), wait, buffers[-1].numpy
    )


class _Awaited:
    """What a bare queue will compute: `value`, from when `done` is released."""

    __slots__ = ("args", "done", "fn", "value")

    def __init__(self, fn: Any, args: tuple[Any, ...]) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.fn, self.args = fn, args


def bare_queue(count: int) -> Callable[[], Timing]:
    """Return what times increments in the least queue that there can be, without errors, readers
    and an end.
    """
    import torch

    one = torch.ones((1, 2))
    queue: SimpleQueue[_Awaited] = SimpleQueue()

    def serve() -> None:
        while True:
            task = queue.get()
            task.value = task.fn(
                *[arg.value if arg.__class__ is _Awaited else arg for arg in task.args]
            )
            task.fn = task.args = None
            task.done.release()

    def launch(fn: Any, *args: Any) -> _Awaited:
        task = _Awaited(fn, args)
        queue.put(task)
        return task

    threading.Thread(target=serve, daemon=True).start()
    return partial(
        timed,
        lambda: queued_increments(launch, add, launch(torch.clone, one), count),
        lambda last: last.done.acquire(),
    )


def measure(
    backend: str, engine: str, increments: int, batches: int, repetitions: int, epochs: int
) -> dict[str, Any]:
    """Time all sides of all works; the cases are named `WORK, SIDE`."""
    loaded = backends.load(backend, 2, "cpu", engine, 1)
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    amounts = Amounts(increments, Settings(limit=batches), matrix)
    sides = {
        "ours": ours(loaded, amounts),
        "plain": (plain_mxnet if backend == "mxnet" else plain_torch)(amounts),
    }
    in_queues = backend == "torch" and engine == "async"
    if in_queues:
        sides["executors"] = plain_torch(amounts, [set(cores) for cores in loaded.cores])
    in_turn = {
        work: {f"{work}, {name}": side.works[work] for name, side in sides.items()}
        for work in WORKS
    }
    if in_queues:
        # In turn with the others, for their ratios are taken between neighbours.
        in_turn["increments"][BARE] = bare_queue(increments)
    seconds = {
        case.name: case.seconds
        for work, timings in in_turn.items()
        for case in interleave(timings, rounds=epochs if work == "a LeNet epoch" else repetitions)
    }
    return compose(seconds, {backend: loaded.version}, problems(sides, matrix))


def problems(sides: Mapping[str, Side], matrix: np.ndarray) -> list[str]:
    """Return a sentence for each side that differs from NumPy, or from the losses of our first
    epoch.
    """
    sentences = []
    for name, side in sides.items():
        error = relative_error(side.copied(), matrix @ matrix)
        if not error < 1e-4:
            sentences.append(f"{name}: products differ from NumPy's by {error:.1e}")
        # Later epochs drift apart, for frameworks and orders of addition round differently.
        error = relative_error(np.array(side.losses[0]), np.array(sides["ours"].losses[0]))
        if not error < 1e-4:
            sentences.append(f"{name}: losses differ from ours by {error:.1e}")
    return sentences
