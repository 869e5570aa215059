"""Gradients are right, are the caller's own, and are of the sum over the global batch."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Array, Backend
from backends.numpy import ops as numpy_ops
from backends.protocol import Ops
from parallel_core.training.lenet import initial_parameters, loss_and_gradients
from tests.backends.protocol.arrays import assert_close, assert_equal, computed, drawn, full

Parameters = tuple[np.ndarray, ...]
Fn = Callable[[Ops, Array], Array]


def lenet_inputs(rows: int) -> tuple[Parameters, np.ndarray, np.ndarray]:
    """Make parameters, images and labels for LeNet."""
    generator = np.random.default_rng(1)
    parameters = []
    for parameter in initial_parameters():
        is_weight = parameter.ndim > 1
        # Larger numbers than the book's, so that gradients are large enough to compare.
        larger = 5 * parameter if is_weight else generator.uniform(-0.1, 0.1, parameter.shape)
        parameters.append(larger.astype(np.float32))
    images = generator.random((rows, 1, 28, 28), dtype=np.float32)
    labels = generator.integers(0, 10, rows, dtype=np.int32)
    return tuple(parameters), images, labels


def weighted(ops: Ops, x: Array, weights: Array) -> Array:
    """Sum the products of elements and weights."""
    return ops.total(ops.multiply(x, weights))


def squared(ops: Ops, x: Array) -> Array:
    """Sum the squares of an array's elements."""
    return weighted(ops, x, x)


def chain(ops: Ops, p: Array) -> Array:
    """Sum an array behind 1,500 additions, deeper than Python's recursion goes."""
    x = p[0]
    for _ in range(1500):
        x = ops.add(x, 0.0)
    return ops.total(x)


SMOOTH: dict[str, tuple[Fn, Parameters]] = {
    "matmul, twice by one": (
        lambda ops, p: ops.total(ops.matmul(ops.matmul(p[0], p[1]), p[1])),
        drawn((1, 2), (2, 2)),
    ),
    "multiply rows": (
        lambda ops, p: weighted(ops, ops.multiply(p[0], p[1]), p[2]),
        drawn((3, 4), (4,), (3, 4)),
    ),
    "multiply both": (
        lambda ops, p: weighted(ops, ops.multiply(p[0], p[1]), p[2]),
        drawn((1, 4), (3, 1), (3, 4)),
    ),
    "power": (lambda ops, p: weighted(ops, ops.power(p[0], -0.5), p[1]), drawn((3, 4), (3, 4))),
    "total of columns": (
        lambda ops, p: weighted(ops, ops.total(p[0], 0), p[1]),
        drawn((3, 4), (4,)),
    ),
    "total of rows": (lambda ops, p: weighted(ops, ops.total(p[0], 1), p[1]), drawn((3, 4), (3,))),
    "a parameter itself": (lambda ops, p: p[0], drawn(())),
    "a thousand operators": (chain, drawn((2, 2))),
    **{
        f"{dtype} {shape}": (
            lambda ops, p: ops.add(squared(ops, p[0]), ops.multiply(ops.total(p[0]), 0.5)),
            drawn(shape, dtype=dtype),
        )
        for dtype, shape in product(
            ("float32", "float64"), ((), (1,), (3,), (2, 1, 3), (2, 1, 2, 2))
        )
    },
}
CASES: dict[str, tuple[Fn, Parameters]] = {
    **SMOOTH,
    "relu at zero": (lambda ops, p: ops.total(ops.relu(p[0])), (np.float32([-1, 0, 1]),)),
    "unused": (
        lambda ops, p: squared(ops, p[0]),
        (*drawn((2, 2)), *drawn((2, 2), dtype="float64"), np.full((), 3.0)),
    ),
    "unused, not a number": (
        lambda ops, p: ops.total(p[0]),
        (*drawn((2,)), np.full((), np.nan, np.float32)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_numpy_s(backend: Backend, name: str) -> None:
    fn, parameters = CASES[name]
    loaded = backend.asarray(parameters, backend.devices[1])
    differentiate = backend.ops.value_and_grad(lambda p: fn(backend.ops, p))
    value, gradients = computed(backend, differentiate, loaded)
    differentiate_in_numpy = numpy_ops.value_and_grad(lambda p: fn(numpy_ops, p))
    expected_value, expected_gradients = differentiate_in_numpy(parameters)
    assert_close((value, *gradients), (expected_value, *expected_gradients), 1e-3)


def assert_limits_of_differences(
    evaluate: Callable[[Parameters], Array], parameters: Parameters, count: int
) -> None:
    """Assert that gradients are quotients of differences, at a few elements of each parameter."""
    parameters = tuple(x.astype(np.float64) for x in parameters)
    _, gradients = evaluate(parameters)
    generator = np.random.default_rng(2)
    step = 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        elements = parameter.reshape(-1)
        for number in generator.permutation(elements.size)[:count]:
            element = elements[number]
            elements[number] = element + step
            value_above, _ = evaluate(parameters)
            elements[number] = element - step
            value_below, _ = evaluate(parameters)
            elements[number] = element
            quotient = (value_above - value_below) / (2 * step)
            assert gradient.flat[number] == pytest.approx(quotient, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", SMOOTH)
def test_numpy_s_derivatives_are_the_limits_of_differences(name: str) -> None:
    fn, parameters = SMOOTH[name]
    evaluate = numpy_ops.value_and_grad(lambda p: fn(numpy_ops, p))
    assert_limits_of_differences(evaluate, parameters, 4)


def test_numpy_s_derivatives_of_a_network_are_the_limits_of_differences() -> None:
    parameters, images, labels = lenet_inputs(2)
    evaluate, exact = loss_and_gradients(numpy_ops), images.astype(np.float64)
    assert_limits_of_differences(lambda p: evaluate(p, exact, labels), parameters, 1)


@pytest.mark.parametrize("rows", [7, 0])
def test_a_network_s_loss_and_gradients_equal_numpy_s(backend: Backend, rows: int) -> None:
    inputs = lenet_inputs(rows)
    expected_loss, expected_gradients = loss_and_gradients(numpy_ops)(*inputs)
    loaded = [backend.asarray(x, backend.devices[1]) for x in inputs]
    loss, gradients = computed(backend, loss_and_gradients(backend.ops), *loaded)
    assert (loss.dtype, loss.shape) == (np.float32, ())
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    assert_close(gradients, expected_gradients, 1e-3)
    if rows == 0:
        for x in (loss, *gradients):
            assert not np.any(x)


def test_a_second_gradient_does_not_overwrite_the_first(backend: Backend) -> None:
    # The gradient of a product's sum by the second factor is the first factor.
    differentiate = backend.ops.value_and_grad(
        lambda p, x: backend.ops.total(backend.ops.matmul(x, p[0]))
    )
    parameters = (full(backend, 1, 2, 1),)
    ones, fives = full(backend, 1, 1, 2), full(backend, 5, 1, 2)
    first = backend.launch(differentiate, parameters, ones)
    second = backend.launch(differentiate, parameters, fives)
    assert_equal(backend, second[1][0], [[5], [5]])
    assert_equal(backend, first[1][0], [[1], [1]])


X = np.array([[1, 2], [3, 4]], dtype=np.float32)


def test_an_array_that_is_several_parameters_and_one_of_the_rest_is_told_apart(
    backend: Backend,
) -> None:
    ops, x = backend.ops, backend.asarray(X, backend.devices[1])
    for factor in (1.0, 2.0, 3.0):

        def fn(p: Array, rest: Array, factor: float = factor) -> Array:
            terms_of_parameters = ops.add(ops.multiply(squared(ops, p[0]), factor), ops.total(p[1]))
            return ops.add(terms_of_parameters, weighted(ops, p[0], rest))

        _, gradients = computed(backend, ops.value_and_grad(fn), (x, x, x), x)
        expected = (2 * factor + 1) * X, np.ones_like(X), np.zeros_like(X)
        assert_close(gradients, expected)
    assert_equal(backend, x, X)


def test_parameters_that_were_updated_are_told_apart_as_well(backend: Backend) -> None:
    ops, device = backend.ops, backend.devices[1]
    differentiate = ops.value_and_grad(
        lambda p, x: ops.total(ops.multiply(ops.multiply(p[0], p[1]), x))
    )
    three, zero = full(backend, 3, device=1), full(backend, 0, device=1)
    guard = full(backend, 1, 1, device=1)
    parameters = backend.launch(lambda x: (ops.add(x, 0),), three)
    for _ in range(2):
        zero_gradients = (backend.copy_to(zero, device),)
        result = backend.launch(ops.sgd_while_finite, parameters, zero_gradients, 1.0, guard)
        parameters, guard = result[0], result[1]
        x = parameters[0]
        _, gradients = computed(backend, differentiate, (x, x), x)
        assert [float(gradient) for gradient in gradients] == [9, 9]


def test_a_value_that_is_a_parameter_has_memory_of_its_own(backend: Backend) -> None:
    five, seven = full(backend, 5, device=1), full(backend, 7, device=1)
    result = backend.launch(backend.ops.value_and_grad(lambda p: p[0]), (five,))
    backend.copy_to(seven, backend.devices[1], out=five)
    value, (gradient,) = backend.to_numpy(result)
    assert (value, gradient) == (5, 1)


@given(
    elements=st.lists(st.integers(-3, 3), min_size=1, max_size=4),
    exponent=st.sampled_from([0, 0.0, np.int64(0), 1, 2, 3.0]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_the_derivative_of_a_whole_power_is_right_at_zero_too(
    backend: Backend, elements: list[int], exponent: float, dtype: str
) -> None:
    ops, x = backend.ops, np.array(elements, dtype)
    parameters = (backend.asarray(x, backend.devices[0]),)

    def twice_the_power(p: Array) -> Array:
        return ops.total(ops.multiply(ops.power(p[0], exponent), 2.0))

    differentiate = ops.value_and_grad(twice_the_power)
    value, (gradient,) = computed(backend, differentiate, parameters)
    np.testing.assert_allclose(value, 2 * (x**exponent).sum(), rtol=1e-6)
    expected_gradient = 2 * exponent * x ** max(exponent - 1, 0)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6)
    assert gradient.dtype == dtype
