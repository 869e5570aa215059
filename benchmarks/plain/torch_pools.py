"""The same work in PyTorch with the standard library's own queue: one executor of one thread a device.

It is what one would write to get what our asynchronous engine gives. Importing this module imports torch.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from operator import add, matmul

import numpy as np
import torch
from torch import Tensor

from benchmarks.plain.torch_plain import train_batch


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
