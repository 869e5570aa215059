"""Gradients are right, are the caller's own, and are of the sum over the global batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Array, Backend
from backends.protocol import Ops
from parallel_core.training.lenet import initial_parameters, loss_and_gradients


def lenet_inputs(rows: int) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    # Larger weights than the book's: gradients large enough to compare.
    parameters = tuple(
        (5 * p if p.ndim > 1 else generator.uniform(-0.1, 0.1, p.shape)).astype(np.float32)
        for p in initial_parameters()
    )
    images = generator.random((rows, 1, 28, 28), dtype=np.float32)
    return parameters, images, generator.integers(0, 10, rows, dtype=np.int32)


def test_numpy_s_derivatives_are_the_limits_of_differences() -> None:
    ops = backends.load("numpy", devices=1).ops
    parameters, images, labels = lenet_inputs(2)
    exact = [p.astype(np.float64) for p in parameters]
    evaluate = loss_and_gradients(ops)
    _, gradients = evaluate(tuple(exact), images.astype(np.float64), labels)
    generator = np.random.default_rng(2)
    for parameter, gradient in zip(exact, gradients, strict=True):
        place = tuple(generator.integers(0, n) for n in parameter.shape)
        step, value = 1e-6, parameter[place]
        parameter[place] = value + step
        above = evaluate(tuple(exact), images.astype(np.float64), labels)[0]
        parameter[place] = value - step
        below = evaluate(tuple(exact), images.astype(np.float64), labels)[0]
        parameter[place] = value
        assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-7)


def test_losses_and_gradients_equal_numpy_s(backend: Backend) -> None:
    parameters, images, labels = lenet_inputs(7)
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    expected_loss, expected = loss_and_gradients(reference.ops)(parameters, images, labels)
    device = backend.devices[1]
    loaded: list[Array] = [backend.asarray(x, device) for x in (parameters, images, labels)]
    loss, gradients = backend.to_numpy(backend.launch(loss_and_gradients(backend.ops), *loaded))
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    for found, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def test_a_second_gradient_does_not_overwrite_the_first(backend: Backend) -> None:
    differentiate = backend.ops.value_and_grad(lambda p, x: backend.ops.total(backend.ops.matmul(x, p[0])))
    device = backend.devices[0]
    parameters = backend.asarray((np.ones((2, 1), dtype=np.float32),), device)
    xs = [backend.asarray(np.full((1, 2), value, dtype=np.float32), device) for value in (1, 5)]
    first, second = (backend.launch(differentiate, parameters, x) for x in xs)
    np.testing.assert_array_equal(backend.to_numpy(second[1])[0], [[5], [5]])
    np.testing.assert_array_equal(backend.to_numpy(first[1])[0], [[1], [1]])


def test_a_parameter_that_is_used_twice_gets_both_gradients(backend: Backend) -> None:
    ops = backend.ops
    square = ops.value_and_grad(lambda p, x: ops.total(ops.matmul(ops.matmul(x, p[0]), p[0])))
    w = np.arange(4, dtype=np.float32).reshape(2, 2)
    x = np.ones((1, 2), dtype=np.float32)
    device = backend.devices[0]
    result = backend.launch(square, backend.asarray((w,), device), backend.asarray(x, device))
    by_w = np.outer(x, (w @ np.ones((2, 1))).ravel()) + np.outer(x @ w, np.ones(2))
    np.testing.assert_allclose(backend.to_numpy(result[1])[0], by_w, rtol=1e-6)


def test_a_shard_without_rows_gives_zeros(backend: Backend) -> None:
    parameters, images, labels = lenet_inputs(1)
    device = backend.devices[2]
    loaded = [backend.asarray(x, device) for x in (parameters, images[:0], labels[:0])]
    loss, gradients = backend.to_numpy(backend.launch(loss_and_gradients(backend.ops), *loaded))
    assert float(loss) == 0
    assert [g.shape for g in gradients] == [p.shape for p in parameters]
    assert not any(g.any() for g in gradients)


def normalised(ops: Ops, x: Array, scale: Array, shift: Array) -> Array:
    """Normalise the columns of x (n, c), with the book's formula."""
    share = 1 / x.shape[0]
    centred = ops.add(x, ops.multiply(ops.total(x, 0), -share))
    variance = ops.multiply(ops.total(ops.power(centred, 2), 0), share)
    return ops.add(ops.multiply(ops.multiply(centred, ops.power(ops.add(variance, 1e-5), -0.5)), scale), shift)


def test_elementwise_operations_and_their_gradients_equal_numpy_s(backend: Backend) -> None:
    def evaluation(ops: Ops) -> Array:
        # Times what comes from above: a vector-Jacobian product.
        return ops.value_and_grad(lambda p, upstream: ops.total(ops.multiply(normalised(ops, *p), upstream)))

    generator = np.random.default_rng(5)
    parameters = tuple(generator.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (4,), (1, 4)))
    upstream = generator.standard_normal((6, 4)).astype(np.float32)
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    expected_value, expected = evaluation(reference.ops)(parameters, upstream)
    device = backend.devices[1]
    loaded = [backend.asarray(x, device) for x in (parameters, upstream)]
    value, gradients = backend.to_numpy(backend.launch(evaluation(backend.ops), *loaded))
    assert float(value) == pytest.approx(float(expected_value), rel=1e-4)
    for found, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings", "shapes"),
    [
        ("multiply", (), ((3, 4), (4,))),
        ("multiply", (), ((1, 4), (3, 1))),
        ("power", (-0.5,), ((3, 4),)),
        ("total", (0,), ((3, 4),)),
        ("total", (1,), ((3, 4),)),
    ],
)
def test_numpy_s_elementwise_derivatives_are_the_limits_of_differences(
    name: str, settings: tuple[float, ...], shapes: tuple[tuple[int, ...], ...]
) -> None:
    ops = backends.load("numpy", devices=1).ops
    generator = np.random.default_rng(3)
    parameters = tuple(generator.uniform(1, 2, shape) for shape in shapes)
    weights = generator.uniform(1, 2, getattr(ops, name)(*parameters, *settings).shape)
    evaluate = ops.value_and_grad(lambda p: ops.total(ops.multiply(getattr(ops, name)(*p, *settings), weights)))
    _, gradients = evaluate(parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        for place in np.ndindex(parameter.shape):
            step, value = 1e-6, parameter[place]
            parameter[place] = value + step
            above = evaluate(parameters)[0]
            parameter[place] = value - step
            below = evaluate(parameters)[0]
            parameter[place] = value
            assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=1e-6)


def test_elementwise_operations_equal_numpy_s(backend: Backend) -> None:
    x = np.random.default_rng(4).uniform(1, 2, (3, 4)).astype(np.float32)
    ops, loaded = backend.ops, backend.asarray(x, backend.devices[0])
    for fn, expected in [
        (lambda x: ops.multiply(x, -2.0), -2 * x),
        (lambda x: ops.multiply(x, ops.total(x, 0)), x * x.sum(0)),
        (lambda x: ops.power(x, -0.5), x**-0.5),
        (lambda x: ops.total(x, 1), x.sum(1)),
        (lambda x: ops.total(x), x.sum()),
    ]:
        found = backend.to_numpy(backend.launch(fn, loaded))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_derivative_of_relu_at_zero_is_zero(backend: Backend) -> None:
    differentiate = backend.ops.value_and_grad(lambda p: backend.ops.total(backend.ops.relu(p[0])))
    x = backend.asarray((np.array([-1, 0, 1], dtype=np.float32),), backend.devices[0])
    np.testing.assert_array_equal(backend.to_numpy(backend.launch(differentiate, x))[1][0], [0, 0, 1])


@given(
    elements=st.lists(st.integers(-3, 3), min_size=1, max_size=4),
    exponent=st.sampled_from([0, 0.0, np.int64(0), 1, 2, 3.0]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_the_derivative_of_a_whole_power_is_right_at_zero_too(
    backend: Backend, elements: list[int], exponent: float, dtype: str
) -> None:
    ops, x = backend.ops, np.array(elements, dtype)
    differentiate = ops.value_and_grad(lambda p: ops.total(ops.multiply(ops.power(p[0], exponent), 2.0)))
    value, (found,) = backend.to_numpy(backend.launch(differentiate, backend.asarray((x,), backend.devices[0])))
    np.testing.assert_allclose(value, 2 * (x**exponent).sum(), rtol=1e-6)
    np.testing.assert_allclose(found, 2 * exponent * x ** max(exponent - 1, 0), rtol=1e-6)
    assert found.dtype == dtype


def test_pooling_drops_what_is_left_over(backend: Backend) -> None:
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    pooled = backend.launch(lambda images: backend.ops.avg_pool2d(images, 2), backend.asarray(x, backend.devices[0]))
    np.testing.assert_array_equal(backend.to_numpy(pooled)[0, 0], [[3, 5], [13, 15]])
