"""Functions as one unit: the same values as the function itself, in memory of their own, for
arguments of any kind.
"""

from collections.abc import Callable
from typing import NamedTuple

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
        square = ops.power(ops.relu(p[1]), 2)
        return ops.multiply(p[0], p[1]), (square, ops.add(x, p[0]))

    return compute


def total_of_second(ops: Ops) -> Fn:
    """Make a function that uses only the second of its arguments."""
    return lambda x, y: ops.total(y, 0)


def twice_the_total(ops: Ops) -> Fn:
    """Make a function whose result has no dimensions."""

    def compute(x: Array) -> Array:
        total, same_total = ops.total(x), ops.total(x)
        return ops.add(total, same_total)

    return compute


def one_result_twice(ops: Ops) -> Fn:
    """Make a function that returns one array as two results."""

    def compute(x: Array) -> Array:
        y = ops.add(x, 1.0)
        return y, y

    return compute


class Work(NamedTuple):
    """A function that is made of a backend's ops, and the shapes of its arguments.

    An argument that is a tuple of arrays has a tuple of shapes.
    """

    make: Callable[[Ops], Fn]
    shapes: tuple[object, ...]


WORK: dict[str, Work] = {
    "products": Work(seven_products, shapes=((5, 5),)),
    "increments": Work(increments, shapes=((1, 2),)),
    "a network": Work(network, shapes=(((4, 1, 3, 3), (4,)), (3, 1, 12, 12))),
    "nested values": Work(nested_values, shapes=(((3, 3), (3, 3)), (3, 3))),
    "an unused argument": Work(total_of_second, shapes=((2,), (3, 4))),
    "no dimensions": Work(twice_the_total, shapes=((2, 3),)),
    "no elements": Work(lambda ops: lambda x: ops.add(x, 2.0), shapes=((0, 3),)),
    "parts": Work(lambda ops: lambda x: ops.split(x, (2, 3)), shapes=((5,),)),
    "zeros": Work(lambda ops: ops.zeros_like, shapes=((5,),)),
    # The following are no plain compositions of operations.
    "an argument": Work(lambda ops: lambda x, y: y, shapes=((2,), (3,))),
    "one result twice": Work(one_result_twice, shapes=((2,),)),
    "a concatenation": Work(lambda ops: lambda x, y: ops.concatenate((x, y)), shapes=((2,), (3,))),
    "a copy": Work(lambda ops: ops.to_host, shapes=((2,),)),
    "a step": Work(step, shapes=(((3, 2),), (3, 2))),
}


def load_random(backend: Backend, shapes: object, seed: int) -> Array:
    """Load an array of random numbers on the second device, or a tuple of them for several shapes.

    A tuple of whole numbers is a shape, and any other tuple holds shapes.
    """
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
    fn = WORK[name].make(backend.ops)
    unit = backend.ops.as_unit(fn)
    for seed in range(3):
        expected = computed(backend, fn, *load_random(backend, WORK[name].shapes, seed))
        result = computed(backend, unit, *load_random(backend, WORK[name].shapes, seed))
        for array, expected_array in zip(tree_leaves(result), tree_leaves(expected), strict=True):
            np.testing.assert_array_equal(array, expected_array)
            assert array.dtype == expected_array.dtype


def test_a_unit_takes_other_shapes_dtypes_and_devices(backend: Backend) -> None:
    unit = backend.ops.as_unit(lambda x, y: backend.ops.matmul(x, y))
    calls = [(2, "float32", 0), (3, "float32", 0), (2, "float64", 0), (2, "float32", 1)]
    calls_twice = [*calls, *calls]
    for rows, dtype, position in calls_twice:
        device, other_device = backend.devices[position], backend.devices[1 - position]
        x = np.arange(rows * 2, dtype=dtype).reshape(rows, 2)

        product = backend.launch(unit, backend.asarray(x, device), backend.asarray(x.T, device))

        in_numpy = backend.to_numpy(product)
        np.testing.assert_array_equal(in_numpy, x @ x.T)
        assert in_numpy.dtype == dtype
        # The product lies where its arguments do: a sum takes arrays on different devices only.
        zeros = backend.asarray(np.zeros((rows, rows), dtype=dtype), other_device)
        backend.wait(backend.allreduce([product, zeros]))


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
    first_pair, second_pair = backend.launch(unit, x), backend.launch(unit, x)
    untouched = [first_pair[0], first_pair[1], second_pair[0], second_pair[1]]
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
    x = backend.asarray(np.array([1, 3], dtype=np.float32), backend.devices[0])
    for _ in range(2):
        value, (gradient,) = computed(backend, differentiate, (x,))
        assert value == 10
        np.testing.assert_array_equal(gradient, [2, 6])
        # In between the unit is launched by itself.
        backend.launch(square, x)
