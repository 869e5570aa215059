"""NumPy's functions in the spelling that all backends share, with derivatives: the reference for
every other backend.

NumPy does not differentiate, so each function that a model needs also says how a gradient passes
back through it.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from backends.arrays import check_equal, check_lengths, check_shapes, check_vectors, tree_map
from backends.numpy.autograd import Tracked, Vjp, differentiable, gradients_of

Array = np.ndarray


@differentiable
def matmul(a: Array, b: Array) -> tuple[Array, Vjp, Vjp]:
    check_shapes("matmul", a, b)
    return a @ b, lambda g: g @ b.T, lambda g: a.T @ g


@differentiable
def add(a: Array, b: Array | float) -> tuple[Array, Vjp, Vjp]:
    return a + b, lambda g: _sum_to(g, np.shape(a)), lambda g: _sum_to(g, np.shape(b))


@differentiable
def multiply(a: Array, b: Array | float) -> tuple[Array, Vjp, Vjp]:
    return a * b, lambda g: _sum_to(g * b, np.shape(a)), lambda g: _sum_to(g * a, np.shape(b))


@differentiable
def power(x: Array, exponent: float) -> tuple[Array, Vjp]:
    # By the power 0 the derivative is zero at zero too, and not zero times infinity.
    return x**exponent, lambda g: g * exponent * x ** (exponent - 1 if exponent else 0)


@differentiable
def relu(x: Array) -> tuple[Array, Vjp]:
    return np.maximum(x, 0), lambda g: g * (x > 0)


@differentiable
def total(x: Array, axis: int | None = None) -> tuple[Array, Vjp]:
    if axis is not None and not x.ndim:
        raise ValueError("an array of no dimensions has no axis to sum along")
    return np.sum(x, axis), lambda g: np.broadcast_to(
        g if axis is None else np.expand_dims(g, axis), x.shape
    )


@differentiable
def flatten(x: Array) -> tuple[Array, Vjp]:
    return x.reshape(len(x), prod(x.shape[1:])), lambda g: g.reshape(x.shape)


@differentiable
def conv2d(x: Array, weight: Array, bias: Array) -> tuple[Array, Vjp, Vjp, Vjp]:
    check_shapes("conv2d", x, weight, bias)
    windows = _windows(x, weight.shape[2:])
    result = (
        np.tensordot(windows, weight, axes=([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
        + bias[:, None, None]
    )

    def by_image(g: Array) -> Array:
        rows, columns = weight.shape[2] - 1, weight.shape[3] - 1
        padded = np.pad(g, ((0, 0), (0, 0), (rows, rows), (columns, columns)))
        flipped = weight[:, :, ::-1, ::-1]
        back = np.tensordot(
            _windows(padded, weight.shape[2:]), flipped, axes=([1, 4, 5], [0, 2, 3])
        )
        return back.transpose(0, 3, 1, 2)

    def by_weight(g: Array) -> Array:
        return np.tensordot(g, windows, axes=([0, 2, 3], [0, 2, 3]))

    return result, by_image, by_weight, lambda g: g.sum(axis=(0, 2, 3))


@differentiable
def avg_pool2d(x: Array, size: int) -> tuple[Array, Vjp]:
    check_shapes("avg_pool2d", x)
    n, c, height, width = x.shape
    if not 0 < size <= min(height, width):
        raise ValueError(
            f"avg_pool2d has no windows of {size} × {size} in images of {height} × {width}"
        )
    rows, columns = height // size, width // size
    blocks = x[:, :, : rows * size, : columns * size].reshape(n, c, rows, size, columns, size)

    def back(g: Array) -> Array:
        spread = np.zeros_like(x)
        spread[:, :, : rows * size, : columns * size] = (
            np.repeat(np.repeat(g, size, 2), size, 3) / size**2
        )
        return spread

    return blocks.mean(axis=(3, 5)), back


@differentiable
def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Vjp]:
    check_shapes("cross_entropy", scores, labels)
    classes = scores.shape[1]
    if outside := [label for label in labels.tolist() if not 0 <= label < classes]:
        raise ValueError(f"cross_entropy has labels from 0 to {classes - 1}, and not {outside[0]}")
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))

    def back(g: Array) -> Array:
        difference = np.exp(log_probabilities)
        difference[rows, labels] -= 1
        return g * difference

    return -log_probabilities[rows, labels].sum(), back


def count_correct(scores: Array, labels: Array) -> Array:
    check_shapes("count_correct", scores, labels)
    return np.asarray((scores.argmax(axis=1) == labels).sum())


def split(x: Array, lengths: Sequence[int]) -> tuple[Array, ...]:
    check_lengths(x, lengths)
    return tuple(x[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0)))


def concatenate(vectors: Sequence[Array]) -> Array:
    check_vectors(vectors)
    return np.concatenate(vectors)


def to_host(x: Array) -> Array:
    return x.copy()


def zeros_like(x: Any) -> Any:
    return tree_map(np.zeros_like, x)


def value_and_grad(fn: Callable[..., Any]) -> Callable[..., tuple[Array, tuple[Array, ...]]]:
    def value_and_gradients(
        parameters: tuple[Array, ...], *rest: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        if not parameters:
            raise ValueError("value_and_grad needs a parameter to differentiate by")
        if not all(x.size for x in rest):
            return np.zeros((), parameters[0].dtype), zeros_like(parameters)
        tracked = tuple(map(Tracked, parameters))
        value = fn(tracked, *rest)
        if value.shape != ():
            raise ValueError(
                f"value_and_grad differentiates one number, and not an array of shape {value.shape}"
            )
        # Copied, because the function may return a parameter.
        return value.value.copy(), gradients_of(value, tracked)

    return value_and_gradients


def as_unit(fn: Callable[..., Any]) -> Callable[..., Any]:
    # Nothing is ever queued.
    return fn


def sgd(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float
) -> tuple[Array, ...]:
    for pair in zip(parameters, gradients, strict=True):
        check_equal(pair, "sgd")
    # Not in place: arrays that share memory would see each other's updates.
    return tuple(
        np.asarray(p - float(rate) * g, p.dtype) for p, g in zip(parameters, gradients, strict=True)
    )


def sgd_while_finite(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float, guard: Array
) -> tuple[tuple[Array, ...], Array]:
    updated = sgd(parameters, gradients, rate)
    squares = np.sum([np.square(gradient).sum() for gradient in gradients])
    guard = guard + np.asarray(0 * squares, guard.dtype)
    return tuple(map(np.copy, parameters)) if np.isnan(guard).any() else updated, guard


def _windows(x: Array, kernel: tuple[int, ...]) -> Array:
    rows_and_columns: Any = (2, 3)
    return sliding_window_view(x, kernel, rows_and_columns)


def _sum_to(g: Array, shape: tuple[int, ...]) -> Array:
    if g.shape == shape:
        return g
    summed = g.sum(axis=tuple(range(g.ndim - len(shape))))
    return summed.sum(
        axis=tuple(i for i, n in enumerate(shape) if n == 1 < summed.shape[i]), keepdims=True
    )
