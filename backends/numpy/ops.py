"""NumPy's functions in the spelling that all backends share, with derivatives.

They are the reference for every other backend. NumPy does not differentiate, so each function that
a model needs also says how a gradient passes back through it: it returns its result and, for each
argument, a function from the result's gradient to the argument's.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from backends.arrays import (
    check_equal,
    check_shapes,
    check_vectors,
    parts_of,
    pooling_windows,
    tree_map,
)
from backends.numpy.autograd import Tracked, Vjp, differentiable, gradients_of

Array = np.ndarray


@differentiable
def matmul(a: Array, b: Array) -> tuple[Array, Vjp, Vjp]:
    """Return the product of two matrices, and the Vjp by each of them."""
    check_shapes("matmul", a, b)

    def back_to_a(g: Array) -> Array:
        return g @ b.T

    def back_to_b(g: Array) -> Array:
        return a.T @ g

    return a @ b, back_to_a, back_to_b


@differentiable
def add(a: Array, b: Array | float) -> tuple[Array, Vjp, Vjp]:
    """Return the sums of elements, and the Vjp by each term."""

    def back_to_a(g: Array) -> Array:
        return _sum_to(g, np.shape(a))

    def back_to_b(g: Array) -> Array:
        return _sum_to(g, np.shape(b))

    return a + b, back_to_a, back_to_b


@differentiable
def multiply(a: Array, b: Array | float) -> tuple[Array, Vjp, Vjp]:
    """Return the products of elements, and the Vjp by each factor."""

    def back_to_a(g: Array) -> Array:
        return _sum_to(g * b, np.shape(a))

    def back_to_b(g: Array) -> Array:
        return _sum_to(g * a, np.shape(b))

    return a * b, back_to_a, back_to_b


@differentiable
def power(x: Array, exponent: float) -> tuple[Array, Vjp]:
    """Return each element to a power, and the Vjp by `x`."""

    def back(g: Array) -> Array:
        if exponent == 0:
            # The derivative is zero at zero too, and not zero times infinity.
            return g * np.zeros_like(x)
        return g * exponent * x ** (exponent - 1)

    return x**exponent, back


@differentiable
def relu(x: Array) -> tuple[Array, Vjp]:
    """Return the elements, with zero in place of negative ones, and the Vjp by `x`."""

    def back(g: Array) -> Array:
        return g * (x > 0)

    return np.maximum(x, 0), back


@differentiable
def total(x: Array, axis: int | None = None) -> tuple[Array, Vjp]:
    """Return the sum of all elements, or of those along an axis, and the Vjp by `x`."""
    if axis is not None and not x.ndim:
        raise ValueError("an array of no dimensions has no axis to sum along")

    def back(g: Array) -> Array:
        if axis is not None:
            g = np.expand_dims(g, axis)
        return np.broadcast_to(g, x.shape)

    return np.sum(x, axis), back


@differentiable
def flatten(x: Array) -> tuple[Array, Vjp]:
    """Return a matrix with a row for each item of `x`, and the Vjp by `x`."""

    def back(g: Array) -> Array:
        return g.reshape(x.shape)

    return x.reshape(len(x), prod(x.shape[1:])), back


@differentiable
def conv2d(x: Array, weight: Array, bias: Array) -> tuple[Array, Vjp, Vjp, Vjp]:
    """Return the correlation of images with filters, plus a bias, and the Vjp by each of these."""
    check_shapes("conv2d", x, weight, bias)
    kernel = weight.shape[2:]
    windows = _windows(x, kernel)
    # Windows (image, channel, row, column, i, j) times filters (filter, channel, i, j).
    products = np.tensordot(windows, weight, axes=([1, 4, 5], [1, 2, 3]))
    result = products.transpose(0, 3, 1, 2) + bias[:, None, None]

    def back_to_x(g: Array) -> Array:
        # The gradient, with a border of zeros, is correlated with the flipped filters.
        rows, columns = kernel[0] - 1, kernel[1] - 1
        padded = np.pad(g, ((0, 0), (0, 0), (rows, rows), (columns, columns)))
        flipped = weight[:, :, ::-1, ::-1]
        # Windows (image, filter, row, column, i, j) times filters (filter, channel, i, j).
        products = np.tensordot(_windows(padded, kernel), flipped, axes=([1, 4, 5], [0, 2, 3]))
        return products.transpose(0, 3, 1, 2)

    def back_to_weight(g: Array) -> Array:
        # Gradient (image, filter, row, column) times windows (image, channel, row, column, i, j).
        return np.tensordot(g, windows, axes=([0, 2, 3], [0, 2, 3]))

    def back_to_bias(g: Array) -> Array:
        # A filter's bias is added to all images, rows and columns.
        return g.sum(axis=(0, 2, 3))

    return result, back_to_x, back_to_weight, back_to_bias


@differentiable
def avg_pool2d(x: Array, size: int) -> tuple[Array, Vjp]:
    """Return the averages over windows of `size` by `size`, and the Vjp by the images."""
    windows = pooling_windows(x, size)

    def back(g: Array) -> Array:
        # Every element of a window has an equal share; elements in no window have none.
        repeated = g.repeat(size, axis=2).repeat(size, axis=3)
        gradient = np.zeros_like(x)
        rows, columns = repeated.shape[2:]
        gradient[:, :, :rows, :columns] = repeated / size**2
        return gradient

    return windows.mean(axis=(3, 5)), back


@differentiable
def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Vjp]:
    """Return the summed -log softmax of the scores at the labels, and its Vjp by the scores."""
    check_shapes("cross_entropy", scores, labels)
    classes = scores.shape[1]
    for label in labels.tolist():
        if not 0 <= label < classes:
            raise ValueError(f"cross_entropy has labels from 0 to {classes - 1}, and not {label}")
    # The largest score of each row becomes 0, so that no exponential is infinite.
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))

    def back(g: Array) -> Array:
        # The derivative by the scores: their probabilities, less 1 at the label.
        derivative = np.exp(log_probabilities)
        derivative[rows, labels] -= 1
        return g * derivative

    return -log_probabilities[rows, labels].sum(), back


def count_correct(scores: Array, labels: Array) -> Array:
    """Return the number of rows whose largest score is at the label."""
    check_shapes("count_correct", scores, labels)
    is_correct = scores.argmax(axis=1) == labels
    return np.asarray(is_correct.sum())


def split(x: Array, lengths: Sequence[int]) -> tuple[Array, ...]:
    """Divide a vector into views of these lengths."""
    return parts_of(x, lengths)


def concatenate(vectors: Sequence[Array]) -> Array:
    check_vectors(vectors)
    return np.concatenate(vectors)


def to_host(x: Array) -> Array:
    return x.copy()


def zeros_like(x: Any) -> Any:
    return tree_map(np.zeros_like, x)


def value_and_grad(fn: Callable[..., Any]) -> Callable[..., tuple[Array, tuple[Array, ...]]]:
    """Return the function that gives `fn`'s value and its gradients by the parameters."""

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
        gradients = gradients_of(value, tracked)
        # Copied, because the function may return a parameter.
        return value.value.copy(), gradients

    return value_and_gradients


def as_unit(fn: Callable[..., Any]) -> Callable[..., Any]:
    # Nothing is ever queued.
    return fn


def sgd(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float
) -> tuple[Array, ...]:
    """Return new parameters, each less its gradient times the rate."""
    updated = []
    for p, g in zip(parameters, gradients, strict=True):
        check_equal((p, g), "sgd")
        # Not in place: arrays that share memory would see each other's updates.
        updated.append(np.asarray(p - float(rate) * g, p.dtype))
    return tuple(updated)


def sgd_while_finite(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float, guard: Array
) -> tuple[tuple[Array, ...], Array]:
    """Return `sgd`'s result, or copies of the parameters if the new guard is NaN, and the guard."""
    updated = sgd(parameters, gradients, rate)
    sum_of_squares = np.sum([np.square(gradient).sum() for gradient in gradients])
    # 0 times an infinite number is NaN, and once the guard is NaN it stays so.
    new_guard = guard + np.asarray(0 * sum_of_squares, guard.dtype)
    if np.isnan(new_guard).any():
        return tuple(np.copy(parameter) for parameter in parameters), new_guard
    return updated, new_guard


def _windows(x: Array, kernel: tuple[int, ...]) -> Array:
    """Return views of images (n, c, h, w): all windows of a kernel's size.

    Their dimensions are image, channel, row and column of the window, row and column within it.
    """
    axes_of_rows_and_columns: Any = (2, 3)
    return sliding_window_view(x, kernel, axes_of_rows_and_columns)


def _sum_to(g: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the dimensions along which an argument of this shape was broadcast.

    The result has that shape.
    """
    if g.shape == shape:
        return g
    added_dimensions = tuple(range(g.ndim - len(shape)))
    summed = g.sum(axis=added_dimensions)
    stretched_dimensions = tuple(
        dimension
        for dimension, length in enumerate(shape)
        if length == 1 and summed.shape[dimension] > 1
    )
    return summed.sum(axis=stretched_dimensions, keepdims=True)
