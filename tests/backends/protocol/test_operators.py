"""Operators at the edges of what they take: labels, no rows, one dimension or none, numbers, shared parameters."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Array, Backend, ComputationError, Ops

LABELS = ("uint8", "int32", "int64")


def on_device(backend: Backend, *values: np.ndarray) -> list[Array]:
    return [backend.asarray(value, backend.devices[1]) for value in values]


def log_softmax(scores: np.ndarray) -> np.ndarray:
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))


@given(
    rows=st.integers(1, 5), classes=st.sampled_from([2, 10, 300]), dtype=st.sampled_from(LABELS), seed=st.integers(0, 9)
)
@pytest.mark.parametrize("floating", ["float32", "float64"])
def test_labels_of_every_integer_dtype_count(
    backend: Backend, rows: int, classes: int, dtype: str, seed: int, floating: str
) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((rows, classes)).astype(floating)
    labels = generator.integers(0, min(classes, np.iinfo(dtype).max + 1), rows).astype(dtype)
    loss = backend.to_numpy(backend.launch(backend.ops.cross_entropy, *on_device(backend, scores, labels)))
    assert (loss.dtype, loss.shape) == (scores.dtype, ())
    expected = -log_softmax(scores.astype("float64"))[np.arange(rows), labels].sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
    right = backend.launch(backend.ops.count_correct, *on_device(backend, scores, scores.argmax(1).astype("int64")))
    assert backend.to_numpy(right) == rows
    found = backend.to_numpy(backend.launch(backend.ops.count_correct, *on_device(backend, scores, labels)))
    assert found.shape == ()
    assert found == np.count_nonzero(scores.argmax(1) == labels)


def test_a_label_that_only_looks_alike_in_a_short_dtype_is_wrong(backend: Backend) -> None:
    scores = np.zeros((2, 301), dtype=np.float32)
    scores[:, 300] = 1
    labels = np.array([300 % 256, 44], dtype=np.uint8)
    assert backend.to_numpy(backend.launch(backend.ops.count_correct, *on_device(backend, scores, labels))) == 0


@pytest.mark.parametrize(
    ("label", "dtype"), [(3, "int32"), (-1, "int64"), (-3, "int32"), (255, "uint8"), (-100, "int64"), (2**40, "int64")]
)
def test_a_label_of_no_class_counts_as_wrong_and_has_no_loss(backend: Backend, label: int, dtype: str) -> None:
    scores = np.array([[0, 0, 1], [0, 0, 1]], dtype=np.float32)
    values = on_device(backend, scores, np.array([2, label], dtype=dtype))
    assert backend.to_numpy(backend.launch(backend.ops.count_correct, *values)) == 1
    with pytest.raises(ComputationError, match=backend.name):
        backend.to_numpy(backend.launch(backend.ops.cross_entropy, *values))


def test_a_label_of_no_class_has_no_gradient(backend: Backend) -> None:
    differentiate = backend.ops.value_and_grad(lambda p, labels: backend.ops.cross_entropy(p[0], labels))
    scores, labels = on_device(backend, np.ones((1, 3), dtype=np.float32), np.array([3]))
    with pytest.raises(ComputationError, match=backend.name):
        backend.to_numpy(backend.launch(differentiate, (scores,), labels))


@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple))
def test_flattening_keeps_the_rows(backend: Backend, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    flat = backend.to_numpy(backend.launch(backend.ops.flatten, *on_device(backend, x)))
    np.testing.assert_array_equal(flat, x.reshape(shape[0], np.prod(shape[1:], dtype=int)))
    assert flat.shape == (shape[0], np.prod(shape[1:], dtype=int))


OPERATORS: dict[str, tuple[Callable[[Ops, Array, float], Array], Callable[[np.ndarray, float], np.ndarray]]] = {
    "add": (lambda ops, x, number: ops.add(x, number), np.add),
    "multiply": (lambda ops, x, number: ops.multiply(x, number), np.multiply),
    "power": (lambda ops, x, number: ops.power(x, number), np.power),
    "relu": (lambda ops, x, _: ops.relu(x), lambda x, _: np.maximum(x, 0)),
    "total": (lambda ops, x, _: ops.total(x), lambda x, _: np.sum(x)),
    "total of the last axis": (
        lambda ops, x, _: ops.total(x, len(x.shape) - 1 if x.shape else None),
        lambda x, _: np.sum(x, -1 if x.shape else None),
    ),
}
"""What each does in the backend, and in NumPy."""
NUMBERS: tuple[Any, ...] = (2, 0.5, np.float32(0.5), np.float64(0.5), np.int64(2))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_beside_an_array_changes_no_dtype(backend: Backend, name: str, dtype: str) -> None:
    operator, in_numpy = OPERATORS[name]
    for shape, number in product([(), (3,), (2, 1)], NUMBERS):
        x = np.full(shape, 2, dtype=dtype)
        computed = backend.launch(lambda x, k=number: operator(backend.ops, x, k), *on_device(backend, x))
        found, expected = backend.to_numpy(computed), np.asarray(in_numpy(x, float(number)))
        assert (found.dtype.name, found.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def labels(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


MISFITS: dict[str, tuple[Callable[..., Array], list[tuple[np.ndarray, ...]]]] = {
    "matmul": (
        lambda ops, *x: ops.matmul(*x),
        [(ones(*first), ones(*second)) for first, second in product([(), (2,), (2, 2), (1, 2, 2)], repeat=2)],
    ),
    "conv2d": (
        lambda ops, *x: ops.conv2d(*x),
        [
            *((ones(1, 1, 4, 4), ones(2, 1, 2, 2), ones(*bias)) for bias in ((), (1,), (3,), (2, 1), (1, 2))),
            *((ones(*images), ones(2, 2, 2, 2), ones(2)) for images in ((2, 4, 4), (1, 1, 4, 4), (1, 4, 4, 4))),
            *((ones(1, 1, 2, 4), ones(*filters), ones(2)) for filters in ((2, 1, 3, 3), (2, 1, 2), (2, 2))),
            (ones(1, 1, 4), ones(2, 1, 2), ones(2)),
        ],
    ),
    "avg_pool2d": (
        lambda ops, x: ops.avg_pool2d(x, 2),
        [(ones(*shape),) for shape in ((4, 4), (1, 4, 4), (1, 1, 1, 4))],
    ),
    "windows of no size": (lambda ops, x: ops.avg_pool2d(x, 0), [(ones(1, 1, 4, 4),)]),
    "total": (lambda ops, x: ops.total(x, 1), [(ones(),), (ones(2),)]),
    "total of one number": (lambda ops, x: ops.total(x, 0), [(ones(),)]),
    "add": (lambda ops, *x: ops.add(*x), [(ones(2), ones(3)), (ones(2, 3), ones(2))]),
    "multiply": (lambda ops, *x: ops.multiply(*x), [(ones(2), ones(3)), (ones(2, 3), ones(2))]),
    "flatten": (lambda ops, x: ops.flatten(x), [(ones(),)]),
    "split": (lambda ops, x: ops.split(x, (1, 2)), [(ones(*shape),) for shape in ((), (2,), (4,), (3, 1))]),
    "split backwards": (lambda ops, x: ops.split(x, (3, -1)), [(ones(2),)]),
    "concatenate": (lambda ops, *x: ops.concatenate(x), [(ones(), ones()), (ones(1, 2),), (ones(2), ones(1, 2))]),
    "value_and_grad": (lambda ops, x: ops.value_and_grad(lambda p: p[0])((x,)), [(ones(1),), (ones(2, 2),)]),
    "no parameter": (lambda ops, x: ops.value_and_grad(lambda _, x: ops.total(x))((), x), [(ones(2),)]),
    **{
        f"{name} of two dtypes": (
            lambda ops, *x, name=name: getattr(ops, name)(*x),
            [(ones(3, 3), ones(3, 3).astype("float64"))],
        )
        for name in ("add", "multiply", "matmul")
    },
    **{
        name: (
            lambda ops, *x, name=name: getattr(ops, name)(*x),
            [
                *((ones(3, 4), labels(*shape)) for shape in ((), (1,), (2,), (4,), (3, 1), (1, 3))),
                *((ones(*shape), labels(1)) for shape in ((), (4,), (3, 1), (1, 4, 2))),
                (ones(3, 4, 2), labels(3, 2)),
            ],
        )
        for name in ("cross_entropy", "count_correct")
    },
}
FITTING = ((2, 2), (2, 2))
"""The only shapes above that fit."""


@pytest.mark.parametrize("name", MISFITS)
def test_shapes_that_do_not_fit_are_errors(load: Callable[[int], Backend], name: str) -> None:
    op, arguments = MISFITS[name]
    for arrays in arguments:
        if tuple(x.shape for x in arrays) == FITTING:
            continue
        backend = load(1)
        loaded = [backend.asarray(x, backend.devices[0]) for x in arrays]
        with pytest.raises(ComputationError, match=backend.name):
            backend.wait(backend.launch(partial(op, backend.ops), *loaded))
            pytest.fail(f"{name} takes {[x.shape for x in arrays]}")


def test_pooling_drops_what_is_left_over(backend: Backend) -> None:
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    pooled = backend.launch(lambda images: backend.ops.avg_pool2d(images, 2), *on_device(backend, x))
    np.testing.assert_array_equal(backend.to_numpy(pooled)[0, 0], [[3, 5], [13, 15]])
