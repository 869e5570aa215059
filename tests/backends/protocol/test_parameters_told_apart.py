"""Each position among the parameters has a gradient of its own, whatever array is there, and `rest` has none."""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Array, Backend, BackendError
from backends.protocol import Ops

ONES = np.ones(2, np.float32)


def product(ops: Ops) -> Callable[..., Array]:
    def total_product(parameters: Array, *rest: Array) -> Array:
        result = parameters[0]
        for factor in (*parameters[1:], *rest):
            result = ops.multiply(result, factor)
        return ops.total(result)

    return ops.value_and_grad(total_product)


def load(backend: Backend, *values: float) -> list[Array]:
    return [backend.asarray(value * ONES, backend.devices[1]) for value in values]


def gradients(backend: Backend, result: Array) -> list[float]:
    value, found = backend.to_numpy(result)
    assert value.shape == ()
    return [float(x[0]) for x in found]


def test_a_parameter_among_the_rest_is_a_constant_there(backend: Backend) -> None:
    (three,) = load(backend, 3)
    for _ in range(2):
        assert gradients(backend, backend.launch(product(backend.ops), (three,), three)) == [3]


def test_an_array_passed_twice_has_two_gradients(backend: Backend) -> None:
    two, three = load(backend, 2, 3)
    assert gradients(backend, backend.launch(product(backend.ops), (three, two, three))) == [6, 9, 6]


def test_an_unused_parameter_has_zeros(backend: Backend) -> None:
    ops, (two, three) = backend.ops, load(backend, 2, 3)
    number = backend.asarray(np.array(5, np.float32), backend.devices[1])
    doubles = backend.asarray(np.ones((3, 1)), backend.devices[1])
    square = ops.value_and_grad(lambda p: ops.total(ops.multiply(p[1], p[1])))
    value, found = backend.to_numpy(backend.launch(square, (two, three, number, doubles)))
    assert (float(value), value.dtype) == (18, np.float32)
    assert [x.tolist() for x in found] == [[0, 0], [6, 6], 0, [[0], [0], [0]]]
    assert [x.dtype for x in found] == ["float32", "float32", "float32", "float64"]


def test_what_an_unused_parameter_holds_does_not_matter(backend: Backend) -> None:
    ops, (three,) = backend.ops, load(backend, 3)
    nan = backend.asarray(np.full((), np.nan, np.float32), backend.devices[1])
    value, found = backend.to_numpy(backend.launch(ops.value_and_grad(lambda p: ops.total(p[0])), (three, nan)))
    assert (float(value), found[0].tolist(), float(found[1])) == (6, [1, 1], 0)


def test_a_parameter_may_have_no_dimensions(backend: Backend) -> None:
    ops = backend.ops
    square = ops.value_and_grad(lambda p: ops.multiply(p[0], p[0]))
    value, found = backend.to_numpy(
        backend.launch(square, (backend.asarray(np.array(3, np.float32), backend.devices[0]),))
    )
    assert (float(value), found[0].tolist(), found[0].shape) == (9, 6, ())


def test_no_parameters_are_an_error(backend: Backend) -> None:
    ops, (three,) = backend.ops, load(backend, 3)
    with pytest.raises(BackendError):
        backend.wait(backend.launch(ops.value_and_grad(lambda _, x: ops.total(x)), (), three))


@pytest.mark.parametrize("consumed", [0, 1, 2])
def test_gradients_and_value_share_no_memory(backend: Backend, consumed: int) -> None:
    ops = backend.ops
    shift = backend.asarray(np.array(1, np.float32), backend.devices[1])
    parameters = (*load(backend, 2, 3), shift)
    differentiate = ops.value_and_grad(lambda p: ops.add(ops.total(ops.add(p[0], p[1])), p[2]))
    value, found = backend.launch(differentiate, parameters)
    backend.wait(backend.launch(ops.sgd, (found[consumed],), (parameters[consumed],), 1.0))
    left = [x.tolist() for place, x in enumerate(backend.to_numpy(found)) if place != consumed]
    assert left == [x for place, x in enumerate(([1, 1], [1, 1], 1)) if place != consumed]
    assert float(backend.to_numpy(value)) == 11
    assert backend.to_numpy(parameters[0]).tolist() == [2, 2]


def test_a_value_that_is_a_parameter_is_a_copy_of_it(backend: Backend) -> None:
    ops = backend.ops
    x, step = (backend.asarray((np.array(n, np.float32),), backend.devices[1]) for n in (3, 1))
    value, _ = backend.launch(ops.value_and_grad(lambda p: p[0]), x)
    backend.wait(backend.launch(ops.sgd, x, step, 1.0))
    assert float(backend.to_numpy(value)) == 3


def test_parameters_that_were_updated_are_told_apart_as_well(backend: Backend) -> None:
    ops, device = backend.ops, backend.devices[0]
    parameters = backend.asarray((3 * ONES,), device)
    guard = backend.asarray(np.ones(1, np.float32), device)
    zeros = backend.asarray((0 * ONES,), device)
    for _ in range(2):
        parameters, guard = backend.launch(ops.sgd_while_finite, parameters, zeros, 1.0, guard)
        result = backend.launch(product(ops), (parameters[0], parameters[0]), parameters[0])
        assert gradients(backend, result) == [9, 9]
