"""LeNet from scratch, as in the book: parameters from one NumPy seed, the network in ten lines.

Book: Dive into Deep Learning, "Training on Multiple GPUs".
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from backends import Array, Ops
from parallel_core.training.batches import Settings


def shapes(width: int = 1) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the weight and the bias of each layer.

    `width` multiplies the book's channels and units.
    """
    first, second, hidden, classes = 20 * width, 50 * width, 128 * width, 10
    return (
        (first, 1, 3, 3),
        (first,),
        (second, first, 5, 5),
        (second,),
        (16 * second, hidden),
        (hidden,),
        (hidden, classes),
        (classes,),
    )


def initial_parameters(seed: int = 0, width: int = 1) -> tuple[np.ndarray, ...]:
    """Draw float32 weights, 0.01 · normal, and zero biases: the same for every framework."""
    generator = np.random.default_rng(seed)
    parameters = []
    for shape in shapes(width):
        is_bias = len(shape) == 1
        if is_bias:
            parameter = np.zeros(shape, dtype=np.float32)
        else:
            parameter = np.float32(0.01) * generator.standard_normal(shape, dtype=np.float32)
        parameters.append(parameter)
    return tuple(parameters)


def start_of(settings: Settings) -> tuple[np.ndarray, ...]:
    """Return the parameters that a training begins with, enlarged as its settings say.

    With the book's own, the first losses hardly depend on the gradients, and would not show a wrong
    sum of gradients.
    """
    scale = np.float32(settings.initial_scale or 1.0)
    parameters = initial_parameters(settings.seed, settings.width)
    return tuple(scale * parameter for parameter in parameters)


def network(ops: Ops) -> Callable[[Array, Array], Array]:
    """Make the function (parameters, images (n, 1, 28, 28)) -> scores (n, 10)."""

    def lenet(parameters: Array, images: Array) -> Array:
        w1, b1, w2, b2, w3, b3, w4, b4 = parameters
        h1 = ops.avg_pool2d(ops.relu(ops.conv2d(images, w1, b1)), 2)
        h2 = ops.avg_pool2d(ops.relu(ops.conv2d(h1, w2, b2)), 2)
        h3 = ops.relu(ops.add(ops.matmul(ops.flatten(h2), w3), b3))
        return ops.add(ops.matmul(h3, w4), b4)

    return lenet


# All steps get the same function, so that the CUDA graphs that were recorded of it are found again.
@cache
def loss_and_gradients(ops: Ops) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    """Make the function (parameters, images, labels) -> (sum of the losses, its gradients)."""
    lenet = network(ops)

    def loss(parameters: Array, images: Array, labels: Array) -> Array:
        return ops.cross_entropy(lenet(parameters, images), labels)

    return ops.value_and_grad(loss)


def count_correct(ops: Ops) -> Callable[[Array, Array, Array], Array]:
    """Make the function (parameters, images, labels) -> number of correctly classified images."""
    lenet = network(ops)

    def count(parameters: Array, images: Array, labels: Array) -> Array:
        if images.shape[0] == 0:
            # Frameworks refuse to convolve an empty shard.
            return ops.total(ops.zeros_like(parameters[-1]))
        return ops.count_correct(lenet(parameters, images), labels)

    return count
