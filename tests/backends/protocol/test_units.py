"""Functions as one unit: the same values as the function itself, in memory of their own, for
arguments of any kind.
"""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Array, Backend, Ops
from backends.arrays import tree_leaves, tree_map
from tests.backends.protocol.arrays import assert_equal, computed, drawn, full
from tests.backends.protocol.test_memory import consume


def increment(ops: Ops, x: Array) -> Array:
    """Add one a hundred times."""
    for _ in range(100):
        x = ops.add(x, 1.0)
    return x


def step(ops: Ops, p: tuple[Array, ...], x: Array) -> Array:
    """Take a training step: the gradient of a loss, and a descent by it."""
    differentiate = ops.value_and_grad(lambda p, x: ops.total(ops.multiply(p[0], x)))
    value, gradients = differentiate(p, x)
    (updated,) = ops.sgd(p, gradients, 0.5)
    return ops.add(updated, value)


def network(ops: Ops, weight_and_bias: Array, images: Array) -> Array:
    """Compute a convolution, a clip, a pooling and a flattening."""
    convolved = ops.conv2d(images, *weight_and_bias)
    pooled = ops.avg_pool2d(ops.relu(convolved), 2)
    return ops.flatten(pooled)


def nested_values(ops: Ops, p: Array, x: Array) -> Array:
    """Return a tuple within a tuple."""
    square = ops.power(ops.relu(p[1]), 2)
    return ops.multiply(p[0], p[1]), (square, ops.add(x, p[0]))


Work = tuple[Callable[..., Array], tuple[object, ...]]
WEIGHT_AND_BIAS = drawn((4, 1, 3, 3), (4,), low=-2)
WORK: dict[str, Work] = {
    "products": (lambda ops, x: tuple(ops.matmul(x, x) for _ in range(7)), drawn((5, 5))),
    # Compilers may add in another order: whole numbers stay exact.
    "increments": (increment, (np.ones((1, 2), np.float32),)),
    "a network": (network, (WEIGHT_AND_BIAS, *drawn((3, 1, 12, 12)))),
    "nested values": (nested_values, (drawn((3, 3), (3, 3), low=-2), *drawn((3, 3)))),
    "an unused argument": (lambda ops, _, y: ops.total(y, 0), drawn((2,), (3, 4))),
    "no dimensions": (lambda ops, x: ops.add(ops.total(x), ops.total(x)), drawn((2, 3))),
    "no elements": (lambda ops, x: ops.add(x, 2.0), drawn((0, 3))),
    "parts": (lambda ops, x: ops.split(x, (2, 3)), drawn((5,))),
    "zeros": (lambda ops, x: ops.zeros_like(x), drawn((5,))),
    # The following are no plain compositions of operations.
    "an argument": (lambda _, x, y: y, drawn((2,), (3,))),
    "one result twice": (lambda ops, x: (ops.add(x, 1.0),) * 2, drawn((2,))),
    "a concatenation": (lambda ops, x, y: ops.concatenate((x, y)), drawn((2,), (3,))),
    "a copy": (lambda ops, x: ops.to_host(x), drawn((2,))),
    "a step": (step, (drawn((3, 2)), *drawn((3, 2)))),
}
"""Functions of a backend's ops and arrays, and the arrays."""


@pytest.mark.parametrize("name", WORK)
def test_a_unit_computes_what_its_function_does(backend: Backend, name: str) -> None:
    work, arguments = WORK[name]

    def fn(*args: Array) -> Array:
        return work(backend.ops, *args)

    unit = backend.ops.as_unit(fn)

    def leaves_of_result(called: Callable[..., Array], factor: int) -> list[np.ndarray]:
        """Call with the arguments, multiplied by a factor, and list the result's arrays."""
        multiplied = tree_map(lambda x: x * np.float32(factor), arguments)
        loaded = [backend.asarray(x, backend.devices[1]) for x in multiplied]
        return list(tree_leaves(computed(backend, called, *loaded)))

    # Later calls of a unit may be other work than the first ones.
    for factor in (1, 2, 3):
        results = leaves_of_result(unit, factor)
        for result, expected in zip(results, leaves_of_result(fn, factor), strict=True):
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == expected.dtype


def test_a_unit_takes_other_shapes_dtypes_and_devices(backend: Backend) -> None:
    unit = backend.ops.as_unit(backend.ops.matmul)
    calls = [(2, "float32", 0), (3, "float32", 0), (2, "float64", 0), (2, "float32", 1)]
    for rows, dtype, position in calls * 2:
        device, other_device = backend.devices[position], backend.devices[1 - position]
        x = np.arange(rows * 2, dtype=dtype).reshape(rows, 2)
        product = backend.launch(unit, backend.asarray(x, device), backend.asarray(x.T, device))
        # The product lies where its arguments do, and has their dtype: a sum takes equal arrays on
        # different devices only.
        zeros = backend.asarray(np.zeros((rows, rows), dtype), other_device)
        total, _ = backend.allreduce([product, zeros])
        assert_equal(backend, total, x @ x.T)


def test_one_array_may_be_several_arguments(backend: Backend) -> None:
    def double_and_add(x: Array, y: Array) -> Array:
        return backend.ops.add(backend.ops.multiply(x, 2.0), y)

    unit = backend.ops.as_unit(double_and_add)
    ones, fives = full(backend, 1, 2), full(backend, 5, 2)
    for _ in range(2):
        assert_equal(backend, backend.launch(unit, ones, ones), [3, 3])
        assert_equal(backend, backend.launch(unit, ones, fives), [7, 7])
        assert_equal(backend, backend.launch(unit, fives, ones), [11, 11])


def test_results_of_a_unit_are_the_callers_own(backend: Backend) -> None:
    def two_squares(x: Array) -> Array:
        return backend.ops.matmul(x, x), backend.ops.matmul(x, x)

    unit = backend.ops.as_unit(two_squares)
    x = full(backend, 1, 3, 3)
    threes = np.full((3, 3), 3)
    untouched = []
    for _ in range(2):
        pair = backend.launch(unit, x)
        untouched += [pair[0], pair[1]]
    while untouched:
        consume(backend, untouched.pop(0), (3, 3))
        for array in untouched:
            assert_equal(backend, array, threes)
    assert_equal(backend, x, np.ones((3, 3)))
    assert_equal(backend, backend.launch(unit, x)[0], threes)


def test_a_unit_can_be_differentiated(backend: Backend) -> None:
    ops = backend.ops
    square = ops.as_unit(lambda x: ops.multiply(x, x))
    differentiate = ops.value_and_grad(lambda p: ops.total(square(p[0])))
    x = backend.asarray(np.float32([1, 3]), backend.devices[0])
    for _ in range(2):
        value, (gradient,) = computed(backend, differentiate, (x,))
        assert value == 10
        np.testing.assert_array_equal(gradient, [2, 6])
        # In between the unit is launched by itself.
        backend.launch(square, x)
