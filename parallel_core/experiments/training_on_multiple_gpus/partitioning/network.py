"""The network that is divided, each layer written once for whole layers and for blocks of them.

A convolution with pooling and two dense layers: (n, 1, 28, 28) → (n, 144 · channels) → (n, units) → (n, 10). Every
layer has a weight and a bias.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from backends import Array, Ops
from parallel_core.experiments.layers import dense

__all__ = [
    "CHANNELS",
    "LAYERS",
    "Batch",
    "Layer",
    "Parameters",
    "features",
    "forward",
    "initial_parameters",
    "loss",
    "synthetic_batch",
    "update",
]

Parameters: TypeAlias = "tuple[np.ndarray, ...]"
Batch: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""Images (n, 1, 28, 28) and their labels (n,)."""
Layer: TypeAlias = Callable[[Ops, Array, Array], Array]
"""(ops, (weight, bias), x) -> the layer's result."""

SIDE, KERNEL, POOL, CLASSES = 28, 5, 2, 10
FEATURES_PER_CHANNEL = ((SIDE - KERNEL + 1) // POOL) ** 2
CHANNELS, UNITS = 8, 32
"""Of a network of width 1."""


def features(ops: Ops, parameters: Array, images: Array) -> Array:
    """Convolve, clip, pool and flatten: the features of a channel lie side by side, channel after channel."""
    weight, bias = parameters
    return ops.flatten(ops.avg_pool2d(ops.relu(ops.conv2d(images, weight, bias)), POOL))


def _hidden(ops: Ops, parameters: Array, x: Array) -> Array:
    return ops.relu(dense(ops, parameters, x))


LAYERS: tuple[Layer, ...] = (features, _hidden, dense)


def forward(ops: Ops, layers: Sequence[Layer]) -> Callable[[Array, Array], Array]:
    """Make the function (the layers' parameters, x) -> the last layer's result."""

    def apply(parameters: Array, x: Array) -> Array:
        for place, layer in enumerate(layers):
            x = layer(ops, parameters[2 * place : 2 * place + 2], x)
        return x

    return apply


def loss(ops: Ops, layers: Sequence[Layer] = LAYERS) -> Callable[[Array, Array, Array], Array]:
    """Make the function (the last layers' parameters, their x, labels) -> the sum of the rows' losses."""
    scores = forward(ops, layers)
    return lambda parameters, x, labels: ops.cross_entropy(scores(parameters, x), labels)


def update(ops: Ops, rate: float) -> Callable[..., Array]:
    """Make the function (parameters, gradients, more gradients …) -> parameters - rate · the sum of the gradients."""

    def descend(parameters: Array, gradients: Array, *more: Array) -> Array:
        for others in more:
            gradients = tuple(ops.add(sum_, other) for sum_, other in zip(gradients, others, strict=True))
        return ops.sgd(parameters, gradients, rate)

    return descend


def initial_parameters(width: int, seed: int = 0) -> Parameters:
    """Draw float64 weights of variance 1 / inputs, and biases, for 8 · width channels and 32 · width units."""
    generator = np.random.default_rng(seed)
    channels, units = CHANNELS * width, UNITS * width
    inputs = FEATURES_PER_CHANNEL * channels
    shapes = ((channels, 1, KERNEL, KERNEL), (channels,), (inputs, units), (units,), (units, CLASSES), (CLASSES,))
    fans = (KERNEL**2, KERNEL**2, inputs, inputs, units, units)
    return tuple(generator.standard_normal(shape) / fan**0.5 for shape, fan in zip(shapes, fans, strict=True))


def synthetic_batch(rows: int, seed: int = 1) -> Batch:
    """Draw float64 images and labels."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, 1, SIDE, SIDE)), generator.integers(0, CLASSES, rows, dtype=np.int32)
