"""The same work in PyTorch with the standard library's own queue: one executor of one thread a device.

It is what one would write to get what our asynchronous engine gives. Beside it stands the least that a queue can be: it
knows no errors, no readers and no end of the program. Importing this module imports torch.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from operator import add, matmul
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.plain.torch_plain import train_batch

__all__ = [
    "bare_increments",
    "copies",
    "epoch",
    "hold",
    "increments",
    "make_bare_queue",
    "make_executor",
    "products",
    "wait_bare",
]


class Awaited:
    """What a bare queue will compute: `value`, from when `done` is released."""

    __slots__ = ("args", "done", "fn", "value")

    def __init__(self, fn: Any, args: tuple[Any, ...]) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.fn, self.args = fn, args


def make_bare_queue() -> "SimpleQueue[Awaited | None]":
    """Start one thread that computes what is put in a queue, until that is None."""
    queue: SimpleQueue[Awaited | None] = SimpleQueue()

    def serve() -> None:
        while (task := queue.get()) is not None:
            task.value = task.fn(*[arg.value if arg.__class__ is Awaited else arg for arg in task.args])
            task.fn = task.args = None  # type: ignore[assignment]
            task.done.release()

    threading.Thread(target=serve, daemon=True).start()
    return queue


def bare_increments(queue: "SimpleQueue[Awaited | None]", x: Tensor, count: int) -> Awaited:
    """Queue x + 1 many times; the last one is returned."""

    def launch(fn: Any, *args: Any) -> Awaited:
        task = Awaited(fn, args)
        queue.put(task)
        return task

    first = launch(torch.clone, x)
    for _ in range(count):
        y = launch(add, first, 1)
    return y


def hold(queue: "SimpleQueue[Awaited | None]") -> threading.Event:
    """Let a bare queue's thread wait for an event."""
    may_begin = threading.Event()
    queue.put(Awaited(may_begin.wait, ()))
    return may_begin


def wait_bare(last: Awaited) -> None:
    """Wait for what a bare queue computes."""
    with last.done:
        pass


def make_executor(cores: Iterable[int]) -> ThreadPoolExecutor:
    """Start one thread on some cores, with one intra-operator thread."""

    def prepare(chosen: frozenset[int]) -> None:
        os.sched_setaffinity(0, chosen)
        # Asking for the number first: a thread's first use of OpenMP would replace the setting.
        torch.get_num_threads()
        torch.set_num_threads(1)

    return ThreadPoolExecutor(1, initializer=prepare, initargs=(frozenset(cores),))


def increments(executor: Executor, x: Tensor, count: int) -> "Future[Tensor]":
    """Queue x + 1 many times."""
    for _ in range(count):
        y = executor.submit(add, x, 1)
    return y


def products(executor: Executor, x: Tensor, count: int) -> "list[Future[Tensor]]":
    """Queue products of a matrix with itself."""
    return [executor.submit(matmul, x, x) for _ in range(count)]


def copies(
    computing: Executor, copying: Executor, x: Tensor, buffers: Sequence[Tensor], each: int
) -> "list[Future[Tensor]]":
    """Queue as many products as there are buffers, and copies of each, `each` times, in the other executor."""

    def copy(buffer: Tensor, made: "Future[Tensor]") -> Tensor:
        return buffer.copy_(made.result())

    done = []
    for buffer in buffers:
        made = computing.submit(matmul, x, x)
        done += [copying.submit(copy, buffer, made) for _ in range(each)]
    return done


def epoch(
    executor: Executor, parameters: Sequence[Tensor], batches: Iterable[tuple[np.ndarray, np.ndarray]], rate: float
) -> list[float]:
    """Queue the steps, reading each loss when the next step is queued; return the losses."""
    losses: list[Future[float]] = []
    for images, labels in batches:
        losses.append(executor.submit(train_batch, parameters, images, labels, rate))
        if len(losses) > 1:
            losses[-2].result()
    return [loss.result() for loss in losses]
