"""NumPy's functions in the spelling that all backends share, with derivatives.

They are the reference for every other backend. NumPy does not differentiate, so each function that
a model needs also says how a gradient passes back through it: it returns its result and, for each
argument, a function from the result's gradient to the argument's.
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

    def back_to_a(g: Array) -> Array:
        return g @ b.T

    def back_to_b(g: Array) -> Array:
        return a.T @ g

    return a @ b, back_to_a, back_to_b


@differentiable
def add(a: Array, b: Array | float) -> tuple[Array, Vjp, Vjp]:
    def back_to_a(g: Array) -> Array:
        return _sum_to(g, np.shape(a))

    def back_to_b(g: Array) -> Array:
        return _sum_to(g, np.shape(b))

    return a + b, back_to_a, back_to_b


@differentiable
def multiply(a: Array, b: Array | float) -> tuple[Array, Vjp, Vjp]:
    def back_to_a(g: Array) -> Array:
        return _sum_to(g * b, np.shape(a))

    def back_to_b(g: Array) -> Array:
        return _sum_to(g * a, np.shape(b))

    return a * b, back_to_a, back_to_b


@differentiable
def power(x: Array, exponent: float) -> tuple[Array, Vjp]:
    def back(g: Array) -> Array:
        if exponent == 0:
            # The derivative is zero at zero too, and not zero times infinity.
            return g * np.zeros_like(x)
        return g * exponent * x ** (exponent - 1)

    return x**exponent, back


@differentiable
def relu(x: Array) -> tuple[Array, Vjp]:
    def back(g: Array) -> Array:
        return g * (x > 0)

    return np.maximum(x, 0), back


@differentiable
def total(x: Array, axis: int | None = None) -> tuple[Array, Vjp]:
    if axis is not None and not x.ndim:
        raise ValueError("an array of no dimensions has no axis to sum along")

    def back(g: Array) -> Array:
        if axis is not None:
            g = np.expand_dims(g, axis)
        return np.broadcast_to(g, x.shape)

    return np.sum(x, axis), back


@differentiable
def flatten(x: Array) -> tuple[Array, Vjp]:
    def back(g: Array) -> Array:
        return g.reshape(x.shape)

    return x.reshape(len(x), prod(x.shape[1:])), back


@differentiable
def conv2d(x: Array, weight: Array, bias: Array) -> tuple[Array, Vjp, Vjp, Vjp]:
    check_shapes("conv2d", x, weight, bias)
    kernel = weight.shape[2:]
    windows = _windows(x, kernel)
    # Windows (image, channel, row, column, i, j) times filters (filter, channel, i, j).
    products = np.tensordot(windows, weight, axes=([1, 4, 5], [1, 2, 3]))
    result = products.transpose(0, 3, 1, 2) + bias[:, None, None]

    def back_to_x(g: Array) -> Array:
        # The gradient, with a border of zeros, is convolved with the flipped filters.
        rows, columns = kernel[0] - 1, kernel[1] - 1
        padded = np.pad(g, ((0, 0), (0, 0), (rows, rows), (columns, columns)))
        flipped = weight[:, :, ::-1, ::-1]
        products = np.tensordot(_windows(padded, kernel), flipped, axes=([1, 4, 5], [0, 2, 3]))
        return products.transpose(0, 3, 1, 2)

    def back_to_weight(g: Array) -> Array:
        return np.tensordot(g, windows, axes=([0, 2, 3], [0, 2, 3]))

    def back_to_bias(g: Array) -> Array:
        return g.sum(axis=(0, 2, 3))

    return result, back_to_x, back_to_weight, back_to_bias


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
        # Every element of a window has an equal share; what is in no window has none.
        repeated = np.repeat(np.repeat(g, size, 2), size, 3)
        spread = np.zeros_like(x)
        spread[:, :, : rows * size, : columns * size] = repeated / size**2
        return spread

    return blocks.mean(axis=(3, 5)), back


@differentiable
def cross_entropy(scores: Array, labels: Array) -> tuple[Array, Vjp]:
    check_shapes("cross_entropy", scores, labels)
    classes = scores.shape[1]
    outside = [label for label in labels.tolist() if not 0 <= label < classes]
    if outside:
        raise ValueError(f"cross_entropy has labels from 0 to {classes - 1}, and not {outside[0]}")
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))

    def back(g: Array) -> Array:
        # Probabilities, less 1 at the label.
        difference = np.exp(log_probabilities)
        difference[rows, labels] -= 1
        return g * difference

    return -log_probabilities[rows, labels].sum(), back


def count_correct(scores: Array, labels: Array) -> Array:
    check_shapes("count_correct", scores, labels)
    is_correct = scores.argmax(axis=1) == labels
    return np.asarray(is_correct.sum())


def split(x: Array, lengths: Sequence[int]) -> tuple[Array, ...]:
    check_lengths(x, lengths)
    bounds = accumulate(lengths, initial=0)
    return tuple(x[start:stop] for start, stop in pairwise(bounds))


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
    updated = []
    for p, g in zip(parameters, gradients, strict=True):
        check_equal((p, g), "sgd")
        # Not in place: arrays that share memory would see each other's updates.
        updated.append(np.asarray(p - float(rate) * g, p.dtype))
    return tuple(updated)


def sgd_while_finite(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float, guard: Array
) -> tuple[tuple[Array, ...], Array]:
    updated = sgd(parameters, gradients, rate)
    squares = np.sum([np.square(gradient).sum() for gradient in gradients])
    # 0 times what is not finite is NaN, which the guard keeps.
    guard = guard + np.asarray(0 * squares, guard.dtype)
    is_refused = np.isnan(guard).any()
    return tuple(map(np.copy, parameters)) if is_refused else updated, guard


def _windows(x: Array, kernel: tuple[int, ...]) -> Array:
    """Return views of images: for each row and column the window of the kernel's size there."""
    rows_and_columns: Any = (2, 3)
    return sliding_window_view(x, kernel, rows_and_columns)


def _sum_to(g: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the dimensions along which an argument of this shape was broadcast."""
    if g.shape == shape:
        return g
    added_dimensions = tuple(range(g.ndim - len(shape)))
    summed = g.sum(axis=added_dimensions)
    stretched = tuple(i for i, n in enumerate(shape) if n == 1 < summed.shape[i])
    return summed.sum(axis=stretched, keepdims=True)
