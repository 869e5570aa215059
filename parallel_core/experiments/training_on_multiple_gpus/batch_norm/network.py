"""A perceptron with a batch-norm layer, in pieces that an exchange between devices may come between.

(n, 64) → dense → batch normalisation over the rows → ReLU → dense → (n, 10). The parameters are the first weight, the
normalised units' scale and shift, and the second weight and bias; the shift stands for the first bias.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from backends import Array, Ops

__all__ = ["Parameters", "by_first_weight", "by_the_rest", "initial_parameters", "loss", "synthetic_batch", "with_sums"]

Parameters: TypeAlias = "tuple[np.ndarray, ...]"

INPUTS, UNITS, CLASSES = 64, 128, 10
EPSILON = 1e-5


def with_sums(ops: Ops) -> Callable[[Array, Array], Array]:
    """Make the function (parameters, x) -> (z, (column sums of z, column sums of z²)), with z = x · first weight."""

    def apply(parameters: Array, x: Array) -> Array:
        z = ops.matmul(x, parameters[0])
        return z, (ops.total(z, 0), ops.total(ops.power(z, 2), 0))

    return apply


def _loss_of_normalised(ops: Ops, parameters: Array, z: Array, sums: Array, rows: int, labels: Array) -> Array:
    """Normalise z by the sums over so many rows, go on, and sum the losses of z's own rows."""
    _, scale, shift, weight, bias = parameters
    mean, mean_of_squares = (ops.multiply(total, 1 / rows) for total in sums)
    variance = ops.add(mean_of_squares, ops.multiply(ops.power(mean, 2), -1.0))
    centred = ops.add(z, ops.multiply(mean, -1.0))
    normalised = ops.multiply(centred, ops.power(ops.add(variance, EPSILON), -0.5))
    units = ops.relu(ops.add(ops.multiply(normalised, scale), shift))
    return ops.cross_entropy(ops.add(ops.matmul(units, weight), bias), labels)


def loss(ops: Ops) -> Callable[[Array, Array, Array], Array]:
    """Make the function (parameters, x, labels) -> sum of the losses, with the statistics of these rows alone."""

    def apply(parameters: Array, x: Array, labels: Array) -> Array:
        z, sums = with_sums(ops)(parameters, x)
        return _loss_of_normalised(ops, parameters, z, sums, x.shape[0], labels)

    return apply


def by_the_rest(ops: Ops, rows: int) -> Callable[..., Array]:
    """Make the function (parameters, z, sums over all devices' rows, labels) -> gradients of these rows' losses.

    They are those by all parameters but the first, by z, and by the sums: (tuple, array, tuple).
    """
    differentiate = ops.value_and_grad(
        lambda leaves, labels: _loss_of_normalised(ops, (None, *leaves[:4]), leaves[4], leaves[5:], rows, labels)
    )

    def back(parameters: Array, z: Array, sums: Array, labels: Array) -> Array:
        gradients = differentiate((*parameters[1:], z, *sums), labels)[1]
        return gradients[:4], gradients[4], gradients[5:]

    return back


def by_first_weight(ops: Ops) -> Callable[..., Array]:
    """Make the function (parameters, x, gradient by z, gradients by the sums) -> gradient by the first weight.

    The gradient flows through z itself and through both sums; z is computed again.
    """

    def product(own: Array, x: Array, *upstream: Array) -> Array:
        z, sums = with_sums(ops)(own, x)
        through_z, *through_sums = (
            ops.total(ops.multiply(made, gradient)) for made, gradient in zip((z, *sums), upstream, strict=True)
        )
        return ops.add(through_z, ops.add(*through_sums))

    differentiate = ops.value_and_grad(product)
    return lambda parameters, x, by_z, by_sums: differentiate(parameters[:1], x, by_z, *by_sums)[1][0]


def initial_parameters(seed: int = 0) -> Parameters:
    """Draw float64 weights of variance 1 / inputs; scale 1 and shift 0."""
    generator = np.random.default_rng(seed)
    first = generator.standard_normal((INPUTS, UNITS)) / INPUTS**0.5
    second = generator.standard_normal((UNITS, CLASSES)) / UNITS**0.5
    return first, np.ones(UNITS), np.zeros(UNITS), second, np.zeros(CLASSES)


def synthetic_batch(rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draw float64 inputs (rows, 64), whose labels are what a drawn linear map scores highest."""
    x = np.random.default_rng(seed).standard_normal((rows, INPUTS))
    scores = x @ np.random.default_rng(0).standard_normal((INPUTS, CLASSES))
    return x, scores.argmax(axis=1).astype(np.int32)
