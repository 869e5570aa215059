"""The book's work in MXNet, which queues it by itself. Importing this module imports mxnet.

Dive into Deep Learning, "Asynchronous Computation", "Automatic Parallelism" and "Training on
Multiple GPUs": the same operations, written anew. Nothing here waits but an epoch that is asked to,
as the book does after each batch, and the reading of losses.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import mxnet as mx
import numpy
from mxnet import autograd, gluon, np, npx

npx.set_np()

Array = Any
cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()


def allreduce(data: Sequence[Array]) -> None:
    """Add everything up on the first device and send the sum to the others: the book's loop."""
    for i in range(1, len(data)):
        data[0][:] += data[i].copyto(data[0].ctx)
    for i in range(1, len(data)):
        data[0].copyto(data[i])


def load_parameters(values: Iterable[numpy.ndarray], context: mx.Context) -> list[Array]:
    """Make parameters of their initial values, on a device."""
    parameters = [np.array(value, dtype=value.dtype, ctx=context) for value in values]
    for parameter in parameters:
        parameter.attach_grad()
    return parameters


def lenet(x: Array, parameters: Sequence[Array]) -> Array:
    """Compute the scores (n, 10) of images (n, 1, 28, 28)."""
    w1, b1, w2, b2, w3, b3, w4, b4 = parameters
    h1 = npx.relu(npx.convolution(x, w1, b1, kernel=(3, 3), num_filter=20))
    h1 = npx.pooling(h1, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h2 = npx.relu(npx.convolution(h1, w2, b2, kernel=(5, 5), num_filter=50))
    h2 = npx.pooling(h2, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h3 = npx.relu(np.dot(h2.reshape(h2.shape[0], -1), w3) + b3)
    return np.dot(h3, w4) + b4


def gradient(parameters: Sequence[Array], images: numpy.ndarray, labels: numpy.ndarray) -> Array:
    """Queue a forward and a backward pass; return the images' losses, still to be computed."""
    context = parameters[0].ctx
    x = np.array(images, dtype=images.dtype, ctx=context)
    y = np.array(labels, dtype=labels.dtype, ctx=context)
    with autograd.record():
        loss = cross_entropy(lenet(x, parameters), y)
    loss.backward()
    return loss


def update(parameters: Sequence[Array], images: int, rate: float) -> None:
    """Queue a step down the gradients, which are sums over so many images."""
    for parameter in parameters:
        parameter[:] = parameter - rate * parameter.grad / images


def epoch(
    replicas: Sequence[Sequence[Array]],
    batches: Iterable[tuple[numpy.ndarray, numpy.ndarray]],
    rate: float,
    waiting: bool = False,
) -> list[float]:
    """Train with a part of each batch on every device, as the book does; return the average losses.

    The steps are queued, and a step's loss is read when the next one is, or one waits after each
    step.
    """
    losses: list[float] = []
    pending: list[list[Array]] = []
    for images, labels in batches:
        parts = zip(
            numpy.array_split(images, len(replicas)),
            numpy.array_split(labels, len(replicas)),
            strict=True,
        )
        own = [
            gradient(replica, x, y).sum() for replica, (x, y) in zip(replicas, parts, strict=True)
        ]
        for same in zip(*replicas, strict=True):
            allreduce([parameter.grad for parameter in same])
        for replica in replicas:
            update(replica, len(images), rate)
        pending.append([loss / len(images) for loss in own])
        if waiting:
            npx.waitall()
        if len(pending) > 1:
            losses.append(sum(map(float, pending.pop(0))))
    losses += [sum(map(float, own)) for own in pending]
    npx.waitall()
    return losses
