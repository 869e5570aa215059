"""Gradients are right, are the caller's own, and are of the sum over the global batch."""

import numpy as np
import pytest

import backends
from backends import Array, Backend
from parallel_core.lenet import initial_parameters, loss_and_gradients


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


def test_pooling_drops_what_is_left_over(backend: Backend) -> None:
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    pooled = backend.launch(lambda images: backend.ops.avg_pool2d(images, 2), backend.asarray(x, backend.devices[0]))
    np.testing.assert_array_equal(backend.to_numpy(pooled)[0, 0], [[3, 5], [13, 15]])
