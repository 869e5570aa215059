"""Descent keeps each parameter's shape and dtype, and stops for good at a gradient that is not finite."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backends import Array, Backend, ComputationError

tensors = st.tuples(st.sampled_from(["float32", "float64"]), st.lists(st.integers(1, 3), max_size=4).map(tuple))
Tensor: TypeAlias = tuple[str, tuple[int, ...]]
GUARD = np.ones(1, dtype=np.float32)
GUARDED = pytest.mark.parametrize("guarded", [False, True])
Parameters: TypeAlias = tuple[np.ndarray, ...]


def uniform(drawn: Sequence[Tensor], seed: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    return tuple(np.asarray(generator.uniform(-1, 1, shape)).astype(dtype) for dtype, shape in drawn)


def assert_close(found: Array, expected: Sequence[np.ndarray]) -> None:
    assert [(one.dtype, one.shape) for one in found] == [(one.dtype, one.shape) for one in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def update(
    backend: Backend, guarded: bool, parameters: Parameters, gradients: Parameters, rate: float = 0.5
) -> Parameters:
    """Descend by one of the two operations."""
    p, g, guard = (backend.asarray(x, backend.devices[-1]) for x in (parameters, gradients, GUARD))
    if not guarded:
        return backend.to_numpy(backend.launch(backend.ops.sgd, p, g, rate))
    updated, guard = backend.to_numpy(backend.launch(backend.ops.sgd_while_finite, p, g, rate, guard))
    assert (guard.dtype, guard.tolist()) == (np.float32, [1])
    return updated


@GUARDED
@given(drawn=st.lists(tensors, min_size=1, max_size=5), seed=st.integers(0, 99))
def test_parameters_keep_their_shapes_and_dtypes(
    backend: Backend, guarded: bool, drawn: list[Tensor], seed: int
) -> None:
    parameters, gradients = uniform(drawn, seed), uniform(drawn, seed + 1)
    expected = [np.asarray(a - b / 2, a.dtype) for a, b in zip(parameters, gradients, strict=True)]
    assert_close(update(backend, guarded, parameters, gradients), expected)


@GUARDED
@pytest.mark.parametrize("count", [1, 49, 50, 51, 59, 60, 61, 130])
def test_any_number_of_parameters_is_updated(backend: Backend, guarded: bool, count: int) -> None:
    parameters = tuple(np.full((2, 3), k, dtype=np.float32) for k in range(count))
    found = update(backend, guarded, parameters, (np.ones((2, 3), np.float32),) * count)
    assert_close(found, [parameter - np.float32(0.5) for parameter in parameters])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing_from_then_on(backend: Backend, dtype: str, bad: float) -> None:
    parameters = (np.array(1, dtype=dtype), np.ones((2, 2), dtype=np.float32))
    broken = (np.array(bad, dtype=dtype), np.ones((2, 2), dtype=np.float32))
    step, device = backend.ops.sgd_while_finite, backend.devices[0]
    value, guards = backend.asarray(parameters, device), [backend.asarray(GUARD, device)]
    for gradients in (parameters, broken, parameters):
        result = backend.launch(step, value, backend.asarray(gradients, device), 0.5, guards[-1])
        value = result[0]
        guards.append(result[1])
    assert_close(backend.to_numpy(value), [np.asarray(x / 2, x.dtype) for x in parameters])
    found = [backend.to_numpy(guard) for guard in guards]
    assert [(guard.dtype, guard.shape) for guard in found] == [(np.float32, (1,))] * 4
    # The guard is not consumed.
    np.testing.assert_array_equal(np.concatenate(found), [1, 1, np.nan, np.nan])


@GUARDED
@pytest.mark.parametrize("rate", [1, 0.5, np.float32(0.5), np.float64(0.5), np.int64(1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rate_is_a_number_of_python_s_or_numpy_s(backend: Backend, guarded: bool, rate: float, dtype: str) -> None:
    ones = (np.ones(3, dtype=dtype), np.ones((), dtype=dtype))
    found = update(backend, guarded, ones, ones, rate)
    assert_close(found, [np.asarray(x - float(rate), x.dtype) for x in ones])


@GUARDED
@given(own=tensors, other=tensors, before=st.lists(tensors, max_size=2), after=st.lists(tensors, max_size=2))
def test_a_gradient_of_another_shape_or_dtype_is_an_error(
    load: Callable[[int], Backend], guarded: bool, own: Tensor, other: Tensor, before: list[Tensor], after: list[Tensor]
) -> None:
    assume(own != other)
    refuse(load(1), guarded, uniform([*before, own, *after], 1), uniform([*before, other, *after], 2))


@GUARDED
@given(drawn=st.lists(tensors, min_size=1, max_size=3), given_count=st.integers(0, 4))
def test_gradients_of_another_number_are_an_error(
    load: Callable[[int], Backend], guarded: bool, drawn: list[Tensor], given_count: int
) -> None:
    assume(given_count != len(drawn))
    refuse(load(1), guarded, uniform(drawn, 1), uniform([*drawn, *drawn, *drawn, *drawn][:given_count], 2))


def refuse(backend: Backend, guarded: bool, parameters: Parameters, gradients: Parameters) -> None:
    with pytest.raises(ComputationError, match=backend.name):
        update(backend, guarded, parameters, gradients)


@GUARDED
def test_updates_may_be_made_within_a_launched_function(backend: Backend, guarded: bool) -> None:
    ops, device = backend.ops, backend.devices[1]

    def step(parameters: Array, x: Array, guard: Array) -> Array:
        _, gradients = ops.value_and_grad(lambda p, x: ops.total(ops.multiply(p[0], x)))(parameters, x)
        if guarded:
            return ops.sgd_while_finite(parameters, gradients, 0.5, guard)
        return ops.sgd(parameters, gradients, 0.5), guard

    value = backend.asarray((np.ones((), dtype=np.float32),), device)
    x, guard = backend.asarray(np.ones((), dtype=np.float32), device), backend.asarray(GUARD, device)
    for _ in range(4):
        result = backend.launch(step, value, x, guard)
        value, guard = result[0], result[1]
    assert_close(backend.to_numpy(value), [np.array(-1, dtype=np.float32)])


def test_squares_that_float64_can_hold_are_finite(backend: Backend) -> None:
    loaded = [backend.asarray((x,), backend.devices[1]) for x in (np.ones(2), np.full(2, 1e30), GUARD)]
    update = backend.ops.sgd_while_finite
    updated, guard = backend.to_numpy(backend.launch(lambda p, g, one: update(p, g, 1e-30, one[0]), *loaded))
    np.testing.assert_allclose(updated[0], [0, 0], atol=1e-12)
    np.testing.assert_array_equal(guard, [1])
