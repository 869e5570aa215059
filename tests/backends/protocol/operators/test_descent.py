"""Descent: it keeps shapes and dtypes, refuses gradients of others, and stops for good at a
gradient that is not finite.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backends import Array, Backend, ComputationError
from tests.backends.protocol.arrays import Load, assert_close, computed
from tests.backends.protocol.operators.arguments import on_device, ones

Tensor = tuple[str, tuple[int, ...]]
Parameters = tuple[np.ndarray, ...]
tensors = st.tuples(
    st.sampled_from(["float32", "float64"]), st.lists(st.integers(1, 3), max_size=4).map(tuple)
)
GUARDED = pytest.mark.parametrize("guarded", [False, True])
"""Whether a step is one of `sgd_while_finite`, and not of `sgd`."""


def uniform(tensors: list[Tensor], seed: int) -> Parameters:
    """Draw arrays of these dtypes and shapes."""
    generator = np.random.default_rng(seed)
    return tuple(
        np.asarray(generator.uniform(-1, 1, shape)).astype(dtype) for dtype, shape in tensors
    )


def update(
    backend: Backend,
    guarded: bool,
    parameters: Parameters,
    gradients: Parameters,
    rate: float = 0.5,
) -> Parameters:
    """Return the parameters after a step."""
    p, g, guard = on_device(backend, parameters, gradients, ones(1))
    if not guarded:
        return computed(backend, backend.ops.sgd, p, g, rate)
    updated, new_guard = computed(backend, backend.ops.sgd_while_finite, p, g, rate, guard)
    assert (new_guard.dtype, new_guard.tolist()) == (np.float32, [1])
    return updated


def assert_refused(
    backend: Backend, guarded: bool, parameters: Parameters, gradients: Parameters
) -> None:
    """Assert that a step fails as a computation."""
    with pytest.raises(ComputationError, match=backend.name):
        update(backend, guarded, parameters, gradients)


@GUARDED
@given(tensors=st.lists(tensors, min_size=1, max_size=5), seed=st.integers(0, 99))
def test_parameters_keep_shapes_and_dtypes(
    backend: Backend, guarded: bool, tensors: list[Tensor], seed: int
) -> None:
    parameters, gradients = uniform(tensors, seed), uniform(tensors, seed + 1)
    expected = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        expected.append(np.asarray(parameter - gradient / 2, parameter.dtype))
    assert_close(update(backend, guarded, parameters, gradients), expected)


@GUARDED
@pytest.mark.parametrize("count", [1, 49, 50, 51, 59, 60, 61, 130])
def test_any_number_of_parameters_is_updated(backend: Backend, guarded: bool, count: int) -> None:
    parameters = tuple(np.full((2, 3), k, np.float32) for k in range(count))
    updated = update(backend, guarded, parameters, (ones(2, 3),) * count)
    assert_close(updated, [parameter - np.float32(0.5) for parameter in parameters])


@GUARDED
@pytest.mark.parametrize("rate", [1, 0.5, np.float32(0.5), np.float64(0.5), np.int64(1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rate_is_a_number_of_python_s_or_numpy_s(
    backend: Backend, guarded: bool, rate: float, dtype: str
) -> None:
    parameters = gradients = ones(3, dtype=dtype), ones(dtype=dtype)
    updated = update(backend, guarded, parameters, gradients, rate)
    assert_close(updated, [np.asarray(x - float(rate), x.dtype) for x in parameters])


@GUARDED
@given(
    tensor=tensors,
    other_tensor=tensors,
    before=st.lists(tensors, max_size=2),
    after=st.lists(tensors, max_size=2),
)
def test_a_gradient_of_another_shape_or_dtype_is_an_error(
    load: Load,
    guarded: bool,
    tensor: Tensor,
    other_tensor: Tensor,
    before: list[Tensor],
    after: list[Tensor],
) -> None:
    assume(tensor != other_tensor)
    parameters = uniform([*before, tensor, *after], seed=1)
    gradients = uniform([*before, other_tensor, *after], seed=2)
    assert_refused(load(1), guarded, parameters, gradients)


@GUARDED
@pytest.mark.parametrize(("parameters", "gradients"), [(1, 0), (1, 2), (2, 1), (3, 4)])
def test_gradients_of_another_number_are_an_error(
    load: Load, guarded: bool, parameters: int, gradients: int
) -> None:
    assert_refused(load(1), guarded, (ones(2),) * parameters, (ones(2),) * gradients)


@pytest.mark.parametrize(
    ("dtype", "bad"),
    [
        *product(["float32", "float64"], [np.nan, np.inf, -np.inf]),
        # Its square is too large for the dtype.
        ("float32", 1e30),
    ],
)
def test_a_gradient_that_is_not_finite_changes_nothing_from_then_on(
    backend: Backend, dtype: str, bad: float
) -> None:
    parameters = finite_gradients = np.array(1, dtype), ones(2, 2)
    broken_gradients = np.array(bad, dtype), ones(2, 2)
    updated, guard = on_device(backend, parameters, ones(1))
    guards = [guard]

    for gradients in (finite_gradients, broken_gradients, finite_gradients):
        (loaded_gradients,) = on_device(backend, gradients)
        result = backend.launch(
            backend.ops.sgd_while_finite, updated, loaded_gradients, 0.5, guards[-1]
        )
        updated = result[0]
        guards.append(result[1])

    # Only the first step has changed them.
    expected = [np.asarray(parameter / 2, parameter.dtype) for parameter in parameters]
    assert_close(backend.to_numpy(updated), expected)
    # Guards are not consumed, so the earlier ones can be read.
    expected_guards = [np.float32([number]) for number in (1, 1, np.nan, np.nan)]
    assert_close([backend.to_numpy(guard) for guard in guards], expected_guards)


def test_squares_that_float64_can_hold_are_finite(backend: Backend) -> None:
    parameters, gradients, guard = on_device(backend, (np.ones(2),), (np.full(2, 1e30),), ones(1))
    (updated,), guard = computed(
        backend, backend.ops.sgd_while_finite, parameters, gradients, 1e-30, guard
    )
    np.testing.assert_allclose(updated, [0, 0], atol=1e-12)
    assert guard.tolist() == [1]


@GUARDED
def test_updates_may_be_made_within_a_launched_function(backend: Backend, guarded: bool) -> None:
    ops = backend.ops
    differentiate = ops.value_and_grad(lambda p, x: ops.total(ops.multiply(p[0], x)))

    def step(parameters: Array, x: Array, guard: Array) -> Array:
        _, gradients = differentiate(parameters, x)
        if guarded:
            return ops.sgd_while_finite(parameters, gradients, 0.5, guard)
        return ops.sgd(parameters, gradients, 0.5), guard

    parameters, x, guard = on_device(backend, (ones(),), ones(), ones(1))
    for _ in range(4):
        result = backend.launch(step, parameters, x, guard)
        parameters, guard = result[0], result[1]
    # The gradient is x, which is 1: each step takes a half off the parameter, which began at 1.
    assert_close(backend.to_numpy(parameters), [np.array(-1, np.float32)])
