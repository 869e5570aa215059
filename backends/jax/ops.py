"""JAX's functions in the spelling that all backends share.

Importing this module imports jax. The functions are called while a launched function is traced, and
compute nothing by themselves: XLA compiles what they record.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import jax
from jax import lax
from jax import numpy as jnp

from backends.arrays import (
    check_equal,
    check_shapes,
    check_vectors,
    parts_of,
    pooling_windows,
    tree_leaves,
    tree_map,
)
from backends.jax.compiling import collecting_checks, fail_if, kept_in_units, one_by_one

Array: TypeAlias = jax.Array


@kept_in_units
def matmul(a: Array, b: Array) -> Array:
    """Multiply matrices."""
    check_shapes("matmul", a, b)
    _check_dtypes(a, b)
    return lax.dot(a, b)


@kept_in_units
def add(a: Array, b: Array | float) -> Array:
    return a + _operand(a, b)


@kept_in_units
def multiply(a: Array, b: Array | float) -> Array:
    return a * _operand(a, b)


@kept_in_units
def power(x: Array, exponent: float) -> Array:
    """Raise each element to a power."""
    number = float(exponent)
    if number.is_integer():
        # The base may be negative.
        return lax.integer_pow(x, int(number))
    return x**number


@kept_in_units
def relu(x: Array) -> Array:
    return jax.nn.relu(x)


@kept_in_units
def total(x: Array, axis: int | None = None) -> Array:
    return jnp.sum(x, axis, dtype=x.dtype)


def flatten(x: Array) -> Array:
    return x.reshape(len(x), prod(x.shape[1:]))


@kept_in_units
def conv2d(x: Array, weight: Array, bias: Array) -> Array:
    """Correlate images with filters, and add a bias."""
    check_shapes("conv2d", x, weight, bias)
    _check_dtypes(x, weight, bias)
    if weight.shape[2] > x.shape[2] or weight.shape[3] > x.shape[3]:
        raise ValueError(f"conv2d has no windows of {weight.shape[2:]} in images of {x.shape[2:]}")
    return lax.conv_general_dilated(x, weight, (1, 1), "VALID") + bias[:, None, None]


@kept_in_units
def avg_pool2d(x: Array, size: int) -> Array:
    """Average over windows of `size` by `size`."""
    return pooling_windows(x, size).mean(axis=(3, 5))


@kept_in_units
def cross_entropy(scores: Array, labels: Array) -> Array:
    """Sum -log softmax of the scores at the labels; fails for labels that do not exist."""
    check_shapes("cross_entropy", scores, labels)
    classes = scores.shape[1]
    wide_labels = labels.astype("int64")
    is_outside = jnp.any((wide_labels < 0) | (wide_labels >= classes))
    # A compiled program raises nothing: it returns beside its result whether it has failed.
    fail_if(is_outside, f"cross_entropy takes labels from 0 to {classes - 1}")
    log_probabilities = jax.nn.log_softmax(scores, axis=1)
    columns = wide_labels[:, None]
    at_labels = jnp.take_along_axis(log_probabilities, columns, axis=1, mode="clip")
    return -jnp.sum(at_labels)


@kept_in_units
def count_correct(scores: Array, labels: Array) -> Array:
    """Count the rows whose largest score is at the label."""
    check_shapes("count_correct", scores, labels)
    is_correct = jnp.argmax(scores, axis=1) == labels.astype("int64")
    return jnp.sum(is_correct, dtype="int64")


def split(x: Array, lengths: Sequence[int]) -> tuple[Array, ...]:
    """Divide a vector into vectors of these lengths."""
    return parts_of(x, lengths)


def concatenate(vectors: Sequence[Array]) -> Array:
    check_vectors(vectors)
    return jnp.concatenate(tuple(vectors))


def to_host(x: Array) -> Array:
    return jnp.copy(x)


def zeros_like(x: Array) -> Array:
    return tree_map(jnp.zeros_like, x)


def value_and_grad(fn: Callable[..., Array]) -> Callable[..., tuple[Array, tuple[Array, ...]]]:
    """Return the function that gives `fn`'s value and its gradients by the parameters."""

    def value_and_gradients(
        parameters: tuple[Array, ...], *rest: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        return _value_and_gradients(fn, parameters, *rest)

    return value_and_gradients


def _value_and_gradients(
    fn: Callable[..., Array], parameters: tuple[Array, ...], *rest: Array
) -> tuple[Array, tuple[Array, ...]]:
    """Return `fn`'s value and its gradients by the parameters."""
    if not parameters:
        raise ValueError("value_and_grad needs parameters, and got an empty tuple")
    if not all(x.size for x in tree_leaves(rest) if isinstance(x, jax.Array)):
        return jnp.zeros((), parameters[0].dtype), zeros_like(tuple(parameters))

    # Set when `checked` is traced: a message is a text, which no traced function can return.
    messages: list[str] = []

    def checked(parameters: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        """Return `fn`'s value, and whether each of its checks has failed."""
        # Values that are traced to be differentiated cannot be used outside of this function unless
        # they are returned. So the checks are collected here.
        with collecting_checks() as checks:
            value = fn(parameters, *rest)
        messages[:] = [check.message for check in checks]
        return value, tuple(check.failed for check in checks)

    differentiated = jax.value_and_grad(checked, has_aux=True)
    (value, failures), gradients = differentiated(tuple(parameters))
    for failed, message in zip(failures, messages, strict=True):
        fail_if(failed, message)
    # Copied, because the value may be a parameter, and two gradients may be one array.
    return tree_map(jnp.copy, (value, gradients))


def as_unit(fn: Callable[..., Any]) -> Callable[..., Any]:
    return partial(one_by_one, fn)


def sgd(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float
) -> tuple[Array, ...]:
    """Return new parameters, each less its gradient times the rate."""
    updated = []
    for p, g in zip(parameters, gradients, strict=True):
        check_equal((p, g), "sgd")
        updated.append(p - jnp.asarray(rate, p.dtype) * g)
    return tuple(updated)


def sgd_while_finite(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float, guard: Array
) -> tuple[tuple[Array, ...], Array]:
    """Return `sgd`'s result, or the old parameters if the new guard is NaN, and the guard."""
    updated = sgd(parameters, gradients, rate)
    squares = [jnp.sum(jnp.square(gradient)) for gradient in gradients]
    # 0 times an infinite number is NaN, and once the guard is NaN it stays so.
    zeros_or_nan = [(0 * square).astype(guard.dtype) for square in squares]
    new_guard = guard + sum(zeros_or_nan)
    is_refused = jnp.isnan(new_guard).any()
    pairs = zip(parameters, updated, strict=True)
    return tuple(jnp.where(is_refused, old, new) for old, new in pairs), new_guard


def _operand(x: Array, other: Array | float) -> Array | float:
    """Return a second operand as an array; raises ValueError for another dtype."""
    # A number among a launch's arguments is traced as an array whose type is weak.
    is_number = not isinstance(other, jax.Array) or other.weak_type
    if is_number:
        # NumPy's own numbers have a dtype that may win over the array's.
        return jnp.asarray(other, x.dtype)
    _check_dtypes(x, other)
    return other


def _check_dtypes(first: Array, *others: Array) -> None:
    """Raise ValueError if operands have different dtypes."""
    # JAX would compute in the widest dtype.
    for other in others:
        if other.dtype != first.dtype:
            raise ValueError(f"operands need one dtype, not {first.dtype} and {other.dtype}")
