"""Updates take any number of arrays, of several dtypes and of any shape, and give NumPy's numbers."""

from typing import Any

import numpy as np
import pytest

from backends import Array, Backend

SHAPES = ((), (3,), (2, 2), (0, 3), (1, 2, 1, 2))


def drawn(count: int, dtypes: tuple[str, ...] = ("float32",), seed: int = 0) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    return tuple(
        np.asarray(generator.uniform(-1, 1, SHAPES[i % len(SHAPES)])).astype(dtypes[i % len(dtypes)])
        for i in range(count)
    )


def check(found: tuple[np.ndarray, ...], expected: list[np.ndarray]) -> None:
    for one, wanted in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


def load(backend: Backend, *values: tuple[np.ndarray, ...]) -> list[Array]:
    return [backend.asarray(value, backend.devices[1]) for value in values]


# MXNet's operators overran their memory from 51 and from 61 arrays on.
@pytest.mark.parametrize("count", [1, 8, 49, 50, 51, 59, 60, 61, 100, 130])
def test_any_number_of_arrays_is_updated(backend: Backend, count: int) -> None:
    parameters, gradients = drawn(count), drawn(count, seed=1)
    updated = backend.launch(backend.ops.sgd, *load(backend, parameters, gradients), 0.5)
    check(backend.to_numpy(updated), [p - np.float32(0.5) * g for p, g in zip(parameters, gradients, strict=True)])


@pytest.mark.parametrize("last", [0.5, np.nan, np.inf])
@pytest.mark.parametrize("count", [1, 8, 49, 50, 51, 59, 60, 61, 100, 130])
def test_any_number_of_arrays_is_updated_while_finite(backend: Backend, count: int, last: float) -> None:
    parameters, gradients = drawn(count), (*drawn(count - 1, seed=1), np.full(SHAPES[(count - 1) % 5], last, "f4"))
    loaded = load(backend, parameters, gradients, (np.ones(1, np.float32),))
    update = backend.ops.sgd_while_finite
    updated, guard = backend.to_numpy(backend.launch(lambda p, g, one: update(p, g, 0.5, one[0]), *loaded))
    finite = all(np.isfinite(g).all() for g in gradients)
    rate = np.float32(0.5 if finite else 0)
    check(updated, [p - rate * g if rate else p for p, g in zip(parameters, gradients, strict=True)])
    np.testing.assert_array_equal(guard, [1 if finite else np.nan])


@pytest.mark.parametrize("dtypes", [("float64",), ("float32", "float64"), ("float64", "float32", "float32")])
@pytest.mark.parametrize("guard", [1.0, np.nan])
def test_dtypes_are_kept_and_may_be_mixed(backend: Backend, dtypes: tuple[str, ...], guard: float) -> None:
    parameters, gradients = drawn(12, dtypes), drawn(12, dtypes, seed=1)
    expected = [p - np.asarray(0.25).astype(p.dtype) * g for p, g in zip(parameters, gradients, strict=True)]
    check(backend.to_numpy(backend.launch(backend.ops.sgd, *load(backend, parameters, gradients), 0.25)), expected)
    loaded = load(backend, parameters, gradients, (np.full(1, guard, np.float32),))
    update = backend.ops.sgd_while_finite
    updated, told = backend.to_numpy(backend.launch(lambda p, g, one: update(p, g, 0.25, one[0]), *loaded))
    check(updated, list(parameters) if np.isnan(guard) else expected)
    assert (told.shape, told.dtype) == ((1,), np.float32)
    np.testing.assert_array_equal(told, [guard])


def test_squares_that_float64_can_hold_are_finite(backend: Backend) -> None:
    loaded = load(backend, (np.ones(2),), (np.full(2, 1e30),), (np.ones(1, np.float32),))
    update = backend.ops.sgd_while_finite
    updated, guard = backend.to_numpy(backend.launch(lambda p, g, one: update(p, g, 1e-30, one[0]), *loaded))
    np.testing.assert_allclose(updated[0], [0, 0], atol=1e-12)
    np.testing.assert_array_equal(guard, [1])


def test_numbers_may_be_numpy_s(backend: Backend) -> None:
    (x,) = load(backend, (np.full(2, 4, np.float32), np.ones(2, np.float32)))
    ops: Any = backend.ops
    rate = np.float32(0.5)
    computed = backend.launch(lambda x: (ops.add(x[0], rate), ops.multiply(x[0], rate), ops.power(x[0], rate)), x)
    check(backend.to_numpy(computed), [np.full(2, n, np.float32) for n in (4.5, 2, 2)])
    updated = backend.launch(lambda x: ops.sgd((x[0],), (x[1],), rate), x)
    check(backend.to_numpy(updated), [np.full(2, 3.5, np.float32)])
