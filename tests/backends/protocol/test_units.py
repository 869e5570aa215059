"""Functions as one unit: the same values as the function itself, in memory of their own, for
arguments of any kind.
"""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Array, Backend, Ops
from backends.arrays import tree_leaves
from tests.backends.protocol.arrays import assert_equal, full
from tests.backends.protocol.test_memory import consume

Fn = Callable[..., Array]


def increments(ops: Ops) -> Fn:
    def increment(x: Array) -> Array:
        for _ in range(100):
            x = ops.add(x, 1.0)
        return x

    return increment


def step(ops: Ops) -> Fn:
    descend = ops.value_and_grad(lambda p, x: ops.total(ops.multiply(p[0], x)))

    def update(p: tuple[Array, ...], x: Array) -> Array:
        value, gradients = descend(p, x)
        return ops.add(ops.sgd(p, gradients, 0.5)[0], value)

    return update


WORK: dict[str, tuple[Callable[[Ops], Fn], tuple[object, ...]]] = {
    "products": (lambda ops: lambda x: tuple(ops.matmul(x, x) for _ in range(7)), ((5, 5),)),
    "increments": (increments, ((1, 2),)),
    "a network": (
        lambda ops: lambda w, x: ops.flatten(ops.avg_pool2d(ops.relu(ops.conv2d(x, *w)), 2)),
        (((4, 1, 3, 3), (4,)), (3, 1, 12, 12)),
    ),
    "nested values": (
        lambda ops: (
            lambda p, x: (
                ops.multiply(p[0], p[1]),
                (ops.power(ops.relu(p[1]), 2), ops.add(x, p[0])),
            )
        ),
        (((3, 3), (3, 3)), (3, 3)),
    ),
    "an unused argument": (lambda ops: lambda x, y: ops.total(y, 0), ((2,), (3, 4))),
    "no dimensions": (lambda ops: lambda x: ops.add(ops.total(x), ops.total(x)), ((2, 3),)),
    "no elements": (lambda ops: lambda x: ops.add(x, 2.0), ((0, 3),)),
    "parts": (lambda ops: lambda x: ops.split(x, (2, 3)), ((5,),)),
    "zeros": (lambda ops: ops.zeros_like, ((5,),)),
    # What is no plain composition.
    "an argument": (lambda ops: lambda x, y: y, ((2,), (3,))),
    "one result twice": (lambda ops: lambda x: (lambda y: (y, y))(ops.add(x, 1.0)), ((2,),)),
    "a concatenation": (lambda ops: lambda x, y: ops.concatenate((x, y)), ((2,), (3,))),
    "a copy": (lambda ops: ops.to_host, ((2,),)),
    "a step": (step, (((3, 2),), (3, 2))),
}


def loaded(backend: Backend, shapes: object, seed: int = 0, device: int = 1) -> Array:
    generator = np.random.default_rng(seed)

    def load(shape: object) -> Array:
        assert isinstance(shape, tuple)
        if all(isinstance(length, int) for length in shape):
            return backend.asarray(
                generator.standard_normal(shape).astype(np.float32), backend.devices[device]
            )
        return tuple(load(one) for one in shape)

    return load(shapes)


@pytest.mark.parametrize("name", WORK)
def test_a_unit_computes_what_its_function_does(backend: Backend, name: str) -> None:
    make, shapes = WORK[name]
    fn = make(backend.ops)
    unit = backend.ops.as_unit(fn)
    for seed in range(3):
        expected = backend.to_numpy(backend.launch(fn, *loaded(backend, shapes, seed)))
        found = backend.to_numpy(backend.launch(unit, *loaded(backend, shapes, seed)))
        for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype


def test_a_unit_takes_other_shapes_dtypes_and_devices(backend: Backend) -> None:
    unit = backend.ops.as_unit(lambda x, y: backend.ops.matmul(x, y))
    for rows, dtype, place in [
        (2, "float32", 0),
        (3, "float32", 0),
        (2, "float64", 0),
        (2, "float32", 1),
    ] * 2:
        x = np.arange(rows * 2, dtype=dtype).reshape(rows, 2)
        args = [backend.asarray(values, backend.devices[place]) for values in (x, x.T)]
        found = backend.launch(unit, *args)
        np.testing.assert_array_equal(backend.to_numpy(found), x @ x.T)
        assert backend.to_numpy(found).dtype == dtype
        # Sums are of arrays on different devices: it lies where its arguments do.
        elsewhere = backend.asarray(np.zeros((rows, rows), dtype=dtype), backend.devices[1 - place])
        backend.wait(backend.allreduce([found, elsewhere]))


def test_one_array_may_be_several_arguments(backend: Backend) -> None:
    unit = backend.ops.as_unit(lambda x, y: backend.ops.add(backend.ops.multiply(x, 2.0), y))
    one, other = (full(backend, number, 2) for number in (1, 5))
    for args, expected in [((one, one), 3), ((one, other), 7), ((other, one), 11)] * 2:
        assert_equal(backend, backend.launch(unit, *args), [expected] * 2)


def test_results_of_a_unit_are_the_callers_own(backend: Backend) -> None:
    unit = backend.ops.as_unit(lambda x: tuple(backend.ops.matmul(x, x) for _ in range(2)))
    x = full(backend, 1, 3, 3)
    first, second = (backend.launch(unit, x) for _ in range(2))
    values = [result[place] for result in (first, second) for place in range(2)]
    for place, value in enumerate(values):
        consume(backend, value, (3, 3))
        for untouched in values[place + 1 :]:
            assert_equal(backend, untouched, np.full((3, 3), 3))
    assert_equal(backend, x, np.ones((3, 3)))
    assert_equal(backend, backend.launch(unit, x)[0], np.full((3, 3), 3))


def test_a_unit_can_be_differentiated(backend: Backend) -> None:
    ops = backend.ops
    square = ops.as_unit(lambda x: ops.multiply(x, x))
    descend = ops.value_and_grad(lambda p: ops.total(square(p[0])))
    x = backend.asarray(np.array([1, 3], dtype=np.float32), backend.devices[0])
    for _ in range(2):
        value, (gradient,) = backend.to_numpy(backend.launch(descend, (x,)))
        assert value == 10
        np.testing.assert_array_equal(gradient, [2, 6])
        backend.launch(square, x)
