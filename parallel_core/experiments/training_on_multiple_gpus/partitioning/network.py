"""The network that is divided: each layer is written once, for all of it or for a block.

It is a convolution with pooling and two dense layers, each with a weight and a bias:
(n, 1, 28, 28) → (n, 144 · channels) → (n, units) → (n, 10).

Data parallelism divides the batch and not the network: every device holds the whole network and
computes the gradients of its share of the batch. Devices meet once a step, to add up their
gradients. What travels is as large as the parameters, whatever the batch is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from backends import Array, Ops
from parallel_core.experiments.training_steps import (
    Batch,
    Parameters,
    Strategy,
    of_own_rows,
    placed,
    step_by,
)
from parallel_core.experiments.workloads import dense, hidden

Layers = Sequence[Callable[[Ops, Array, Array], Array]]
"""Layers, each of which is a function (ops, (weight, bias), x) -> result."""

SIDE, KERNEL, POOL, CLASSES = 28, 5, 2, 10
FEATURES_PER_CHANNEL = ((SIDE - KERNEL + 1) // POOL) ** 2
CHANNELS, UNITS = 8, 32
"""The channels and units of a network of width 1."""


def initial_parameters(width: int, seed: int = 0) -> Parameters:
    """Draw float64 weights and biases, of variance 1 / inputs, for a network of a width."""
    generator = np.random.default_rng(seed)
    channels, units = CHANNELS * width, UNITS * width
    inputs = FEATURES_PER_CHANNEL * channels
    layers = (
        # The shapes of weight and bias, and the number of inputs of an output.
        ((channels, 1, KERNEL, KERNEL), (channels,), KERNEL**2),
        ((inputs, units), (units,), inputs),
        ((units, CLASSES), (CLASSES,), units),
    )
    parameters: list[np.ndarray] = []
    for weight_shape, bias_shape, fan_in in layers:
        weight = generator.standard_normal(weight_shape) / fan_in**0.5
        bias = generator.standard_normal(bias_shape) / fan_in**0.5
        parameters += [weight, bias]
    return tuple(parameters)


def synthetic_batch(rows: int, seed: int = 1) -> Batch:
    """Draw float64 images and labels."""
    generator = np.random.default_rng(seed)
    images = generator.standard_normal((rows, 1, SIDE, SIDE))
    labels = generator.integers(0, CLASSES, rows, dtype=np.int32)
    return images, labels


def features(ops: Ops, parameters: Array, images: Array) -> Array:
    """Convolve images, apply ReLU, pool and flatten: the features of one channel after another."""
    weight, bias = parameters
    convolved = ops.relu(ops.conv2d(images, weight, bias))
    return ops.flatten(ops.avg_pool2d(convolved, POOL))


LAYERS: Layers = (features, hidden, dense)


def forward(ops: Ops, layers: Layers) -> Callable[[Array, Array], Array]:
    """Make the function (the layers' parameters, x) -> the last layer's result."""

    def apply(parameters: Array, x: Array) -> Array:
        for number, layer in enumerate(layers):
            weight_and_bias = parameters[2 * number : 2 * number + 2]
            x = layer(ops, weight_and_bias, x)
        return x

    return apply


def _loss(ops: Ops) -> Callable[[Array, Array, Array], Array]:
    """Make the function (parameters, x, labels) -> sum of the losses of the whole network."""
    scores = forward(ops, LAYERS)
    return lambda parameters, x, labels: ops.cross_entropy(scores(parameters, x), labels)


DATA_PARALLELISM = Strategy(step_by(of_own_rows(_loss)))
ONE_DEVICE = replace(
    DATA_PARALLELISM,
    place=lambda backend, parameters: placed(backend, parameters, 1),
    load=lambda backend, images, labels: [backend.asarray((images, labels), backend.devices[0])],
)
