"""Functions as one unit: the same values as the function itself, in memory of their own, for
arguments of any kind.
"""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Array, Backend, Ops
from backends.arrays import tree_leaves
from tests.backends.protocol.arrays import assert_equal, computed, full
from tests.backends.protocol.test_memory import consume

Fn = Callable[..., Array]


def increments(ops: Ops) -> Fn:
    """Make a function of a hundred additions."""

    def increment(x: Array) -> Array:
        for _ in range(100):
            x = ops.add(x, 1.0)
        return x

    return increment


def step(ops: Ops) -> Fn:
    """Make a training step: the gradient of a loss, and a descent by it."""
    differentiate = ops.value_and_grad(lambda p, x: ops.total(ops.multiply(p[0], x)))

    def update(p: tuple[Array, ...], x: Array) -> Array:
        value, gradients = differentiate(p, x)
        (updated,) = ops.sgd(p, gradients, 0.5)
        return ops.add(updated, value)

    return update


def seven_products(ops: Ops) -> Fn:
    """Make a function that multiplies a matrix by itself seven times."""
    return lambda x: tuple(ops.matmul(x, x) for _ in range(7))


def network(ops: Ops) -> Fn:
    """Make a convolution with its weight and bias, a clip, a pooling and a flattening."""

    def apply(weight_and_bias: Array, images: Array) -> Array:
        convolved = ops.conv2d(images, *weight_and_bias)
        pooled = ops.avg_pool2d(ops.relu(convolved), 2)
        return ops.flatten(pooled)

    return apply


def nested_values(ops: Ops) -> Fn:
    """Make a function whose result is a tuple within a tuple."""

    def compute(p: Array, x: Array) -> Array:
        squares = ops.power(ops.relu(p[1]), 2)
        return ops.multiply(p[0], p[1]), (squares, ops.add(x, p[0]))

    return compute


def one_result_twice(ops: Ops) -> Fn:
    """Make a function that returns one array as two results."""

    def compute(x: Array) -> Array:
        y = ops.add(x, 1.0)
        return y, y

    return compute


WORK: dict[str, tuple[Callable[[Ops], Fn], tuple[object, ...]]] = {
    "products": (seven_products, ((5, 5),)),
    "increments": (increments, ((1, 2),)),
    "a network": (network, (((4, 1, 3, 3), (4,)), (3, 1, 12, 12))),
    "nested values": (nested_values, (((3, 3), (3, 3)), (3, 3))),
    "an unused argument": (lambda ops: lambda x, y: ops.total(y, 0), ((2,), (3, 4))),
    "no dimensions": (lambda ops: lambda x: ops.add(ops.total(x), ops.total(x)), ((2, 3),)),
    "no elements": (lambda ops: lambda x: ops.add(x, 2.0), ((0, 3),)),
    "parts": (lambda ops: lambda x: ops.split(x, (2, 3)), ((5,),)),
    "zeros": (lambda ops: ops.zeros_like, ((5,),)),
    # The following are no plain compositions of operations.
    "an argument": (lambda ops: lambda x, y: y, ((2,), (3,))),
    "one result twice": (one_result_twice, ((2,),)),
    "a concatenation": (lambda ops: lambda x, y: ops.concatenate((x, y)), ((2,), (3,))),
    "a copy": (lambda ops: ops.to_host, ((2,),)),
    "a step": (step, (((3, 2),), (3, 2))),
}


def loaded(backend: Backend, shapes: object, seed: int) -> Array:
    """Load arrays of random numbers, or tuples of them, for the arguments of a function."""
    generator = np.random.default_rng(seed)

    def load(shape: object) -> Array:
        assert isinstance(shape, tuple)
        is_shape_of_array = all(isinstance(length, int) for length in shape)
        if not is_shape_of_array:
            return tuple(load(item) for item in shape)
        numbers = generator.standard_normal(shape).astype(np.float32)
        return backend.asarray(numbers, backend.devices[1])

    return load(shapes)


@pytest.mark.parametrize("name", WORK)
def test_a_unit_computes_what_its_function_does(backend: Backend, name: str) -> None:
    make, shapes = WORK[name]
    fn = make(backend.ops)
    unit = backend.ops.as_unit(fn)
    for seed in range(3):
        expected = computed(backend, fn, *loaded(backend, shapes, seed))
        found = computed(backend, unit, *loaded(backend, shapes, seed))
        for array, expected_array in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            np.testing.assert_array_equal(array, expected_array)
            assert array.dtype == expected_array.dtype


def test_a_unit_takes_other_shapes_dtypes_and_devices(backend: Backend) -> None:
    unit = backend.ops.as_unit(lambda x, y: backend.ops.matmul(x, y))
    kinds = [(2, "float32", 0), (3, "float32", 0), (2, "float64", 0), (2, "float32", 1)]
    for rows, dtype, position in kinds * 2:
        device, other_device = backend.devices[position], backend.devices[1 - position]
        x = np.arange(rows * 2, dtype=dtype).reshape(rows, 2)
        args = [backend.asarray(x, device), backend.asarray(x.T, device)]

        product = backend.launch(unit, *args)

        np.testing.assert_array_equal(backend.to_numpy(product), x @ x.T)
        assert backend.to_numpy(product).dtype == dtype
        # The product lies where its arguments do: a sum takes arrays on different devices only.
        zeros = backend.asarray(np.zeros((rows, rows), dtype=dtype), other_device)
        backend.wait(backend.allreduce([product, zeros]))


def test_one_array_may_be_several_arguments(backend: Backend) -> None:
    unit = backend.ops.as_unit(lambda x, y: backend.ops.add(backend.ops.multiply(x, 2.0), y))
    ones, fives = full(backend, 1, 2), full(backend, 5, 2)
    for args, expected in [((ones, ones), 3), ((ones, fives), 7), ((fives, ones), 11)] * 2:
        assert_equal(backend, backend.launch(unit, *args), [expected, expected])


def test_results_of_a_unit_are_the_callers_own(backend: Backend) -> None:
    unit = backend.ops.as_unit(lambda x: tuple(backend.ops.matmul(x, x) for _ in range(2)))
    x = full(backend, 1, 3, 3)
    first, second = backend.launch(unit, x), backend.launch(unit, x)
    pending = [first[0], first[1], second[0], second[1]]
    while pending:
        consume(backend, pending.pop(0), (3, 3))
        for untouched in pending:
            assert_equal(backend, untouched, np.full((3, 3), 3))
    assert_equal(backend, x, np.ones((3, 3)))
    assert_equal(backend, backend.launch(unit, x)[0], np.full((3, 3), 3))


def test_a_unit_can_be_differentiated(backend: Backend) -> None:
    ops = backend.ops
    square = ops.as_unit(lambda x: ops.multiply(x, x))
    differentiate = ops.value_and_grad(lambda p: ops.total(square(p[0])))
    x = backend.asarray(np.array([1, 3], dtype=np.float32), backend.devices[0])
    for _ in range(2):
        value, (gradient,) = computed(backend, differentiate, (x,))
        assert value == 10
        np.testing.assert_array_equal(gradient, [2, 6])
        backend.launch(square, x)
