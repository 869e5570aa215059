"""Operators at the edges of what they take: labels, lengths of zero, and numbers beside arrays."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Array, Backend, Ops
from tests.backends.protocol.operators.arguments import applied, assert_fails, ones


@given(
    rows=st.integers(1, 5),
    classes=st.sampled_from([2, 10, 300]),
    dtype=st.sampled_from(["uint8", "int32", "int64"]),
    seed=st.integers(0, 9),
)
@pytest.mark.parametrize("floating", ["float32", "float64"])
def test_labels_of_every_integer_dtype_count(
    backend: Backend, rows: int, classes: int, dtype: str, seed: int, floating: str
) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((rows, classes)).astype(floating)
    most_classes = min(classes, np.iinfo(dtype).max + 1)
    labels = generator.integers(0, most_classes, rows).astype(dtype)
    right_labels = scores.argmax(1).astype("int64")

    loss = applied(backend, backend.ops.cross_entropy, scores, labels)
    correct = applied(backend, backend.ops.count_correct, scores, labels)
    all_correct = applied(backend, backend.ops.count_correct, scores, right_labels)

    assert (loss.dtype, loss.shape) == (scores.dtype, ())
    exact_scores = scores.astype("float64")
    log_sums = np.log(np.exp(exact_scores).sum(axis=1))
    scores_at_labels = exact_scores[np.arange(rows), labels]
    expected_loss = (log_sums - scores_at_labels).sum()
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-5)
    assert all_correct == rows
    assert correct.shape == ()
    assert correct == np.count_nonzero(right_labels == labels)


def test_a_label_that_only_looks_alike_in_a_short_dtype_is_wrong(backend: Backend) -> None:
    right_class = 300
    scores = np.zeros((2, 301), dtype=np.float32)
    scores[:, right_class] = 1
    # The labels are what the right class would be as a uint8.
    labels = np.full(2, right_class % 256, dtype=np.uint8)
    assert applied(backend, backend.ops.count_correct, scores, labels) == 0


@pytest.mark.parametrize(
    ("label", "dtype"),
    [(3, "int32"), (-1, "int64"), (-3, "int32"), (255, "uint8"), (-100, "int64"), (2**40, "int64")],
)
def test_a_label_of_no_class_counts_as_wrong_and_has_no_loss(
    backend: Backend, label: int, dtype: str
) -> None:
    ops, scores = backend.ops, np.float32([[0, 0, 1], [0, 0, 1]])
    labels = np.array([2, label], dtype=dtype)
    assert applied(backend, ops.count_correct, scores, labels) == 1
    assert_fails(backend, ops.cross_entropy, scores, labels)


def test_a_label_of_no_class_has_no_gradient(backend: Backend) -> None:
    differentiate = backend.ops.value_and_grad(
        lambda p, labels: backend.ops.cross_entropy(p[0], labels)
    )
    assert_fails(backend, differentiate, (ones(1, 3),), np.array([3]))


@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple))
def test_flattening_keeps_the_rows(backend: Backend, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    columns = np.prod(shape[1:], dtype=int)
    flat = applied(backend, backend.ops.flatten, x)
    assert flat.shape == (len(x), columns)
    np.testing.assert_array_equal(flat, x.reshape(len(x), columns))


def test_pooling_drops_what_is_left_over(backend: Backend) -> None:
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    pooled = applied(backend, lambda images: backend.ops.avg_pool2d(images, 2), x)
    np.testing.assert_array_equal(pooled[0, 0], [[3, 5], [13, 15]])


def total_of_last_axis(ops: Ops, x: Array, _: float) -> Array:
    """Add up an array over its last axis, or whole if it has none."""
    return ops.total(x, len(x.shape) - 1 if x.shape else None)


Operator = tuple[Callable[[Ops, Array, float], Array], Callable[[np.ndarray, float], Any]]
OPERATORS: dict[str, Operator] = {
    "add": (lambda ops, x, number: ops.add(x, number), np.add),
    "multiply": (lambda ops, x, number: ops.multiply(x, number), np.multiply),
    "power": (lambda ops, x, number: ops.power(x, number), np.power),
    "relu": (lambda ops, x, _: ops.relu(x), lambda x, _: np.maximum(x, 0)),
    "total": (lambda ops, x, _: ops.total(x), lambda x, _: np.sum(x)),
    "total of the last axis": (
        total_of_last_axis,
        lambda x, _: np.sum(x, -1 if x.shape else None),
    ),
}
"""Operators of an array and a number, which some ignore, and the same of NumPy's arrays."""
NUMBERS: tuple[Any, ...] = (2, 0.5, np.float32(0.5), np.float64(0.5), np.int64(2))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_beside_an_array_changes_no_dtype(backend: Backend, name: str, dtype: str) -> None:
    of_backend, in_numpy = OPERATORS[name]
    for shape, number in product([(), (3,), (2, 1)], NUMBERS):
        x = np.full(shape, 2, dtype=dtype)

        def apply(x: Array, number: float = number) -> Array:
            return of_backend(backend.ops, x, number)

        result = applied(backend, apply, x)
        expected = np.asarray(in_numpy(x, float(number)))
        assert (result.dtype.name, result.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
