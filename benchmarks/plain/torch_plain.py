"""The book's work in eager PyTorch, and in the standard library's own queue. Importing this module
imports torch.

Dive into Deep Learning, "Asynchronous Computation", "Automatic Parallelism" and "Training on
Multiple GPUs": the same operations, written anew. One executor of one thread a device is what one
would write to get what our asynchronous engine gives.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


def allreduce(data: Sequence[Tensor], copying: bool = False) -> None:
    """Add everything up on the first device and send the sum to the others: the book's loop.

    On one CPU `to` returns the same tensor; `copying` makes it a copy, as between two devices.
    """
    for i in range(1, len(data)):
        data[0][:] += data[i].to(data[0].device, copy=copying)
    for i in range(1, len(data)):
        data[i][:] = data[0].to(data[i].device, copy=copying)


def load_parameters(values: Iterable[np.ndarray]) -> list[Tensor]:
    """Make parameters of their initial values."""
    return [torch.tensor(value, requires_grad=True) for value in values]


def lenet(x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Compute the scores (n, 10) of images (n, 1, 28, 28)."""
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    h1 = functional.avg_pool2d(functional.relu(functional.conv2d(x, w1, b1)), 2)
    h2 = functional.avg_pool2d(functional.relu(functional.conv2d(h1, w2, b2)), 2)
    h3 = functional.relu(h2.flatten(1) @ w3 + b3)
    return h3 @ w4 + b4


def train_batch(
    parameters: Sequence[Tensor], images: np.ndarray, labels: np.ndarray, rate: float
) -> float:
    """Make one step of gradient descent and return the batch's average loss."""
    x, y = torch.from_numpy(images), torch.from_numpy(labels).long()
    loss = functional.cross_entropy(lenet(x, parameters), y, reduction="sum")
    loss.backward()
    with torch.no_grad():
        for parameter in parameters:
            parameter -= rate * parameter.grad / len(images)
            parameter.grad.zero_()
    return loss.item() / len(images)


def book_epoch(
    parameters: Sequence[Tensor], batches: Iterable[tuple[np.ndarray, np.ndarray]], rate: float
) -> list[float]:
    """Train batch by batch and return the losses."""
    return [train_batch(parameters, images, labels, rate) for images, labels in batches]


def make_executor(cores: Iterable[int]) -> ThreadPoolExecutor:
    """Start one thread on some cores, with one intra-operator thread."""

    def prepare(chosen: frozenset[int]) -> None:
        os.sched_setaffinity(0, chosen)
        # Asking for the number first: a thread's first use of OpenMP would replace the setting.
        torch.get_num_threads()
        torch.set_num_threads(1)

    return ThreadPoolExecutor(1, initializer=prepare, initargs=(frozenset(cores),))


def copy_made(buffer: Tensor, source: "Future[Tensor]") -> Tensor:
    """Copy what another executor makes into a buffer, as soon as it is made."""
    return buffer.copy_(source.result())
