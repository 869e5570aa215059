"""Who may share memory with whom: what is consumed changes nothing that was made, read or launched
before.
"""

from collections.abc import Callable

import numpy as np
import psutil
import pytest

from backends import Array, Backend, Ops
from backends.arrays import tree_leaves
from tests.backends.protocol.arrays import assert_equal, full, products

IMAGES = 3, 3, 1, 1

FUNCTIONS: dict[str, Callable[[Ops, Array], Array]] = {
    "matmul": lambda ops, x: ops.matmul(ops.flatten(x), ops.flatten(x)),
    "add": lambda ops, x: ops.add(x, 0.0),
    "multiply": lambda ops, x: ops.multiply(x, 1.0),
    "power": lambda ops, x: ops.power(x, 1),
    "relu": lambda ops, x: ops.relu(x),
    "total of one": lambda ops, x: ops.total(x, 3),
    "total of all": lambda ops, x: ops.total(x),
    "avg_pool2d": lambda ops, x: ops.avg_pool2d(x, 1),
    "to_host": lambda ops, x: ops.to_host(x),
    "zeros_like": lambda ops, x: ops.zeros_like(x),
    "concatenate": lambda ops, x: ops.concatenate((ops.total(ops.flatten(x), 0),)),
    "value and gradients": lambda ops, x: ops.value_and_grad(
        lambda p: ops.total(ops.add(p[0], p[0]))
    )((x,)),
}
"""Functions of images whose results could be their argument itself, or share its memory."""


def consume(backend: Backend, x: Array, shape: tuple[int, ...]) -> None:
    """Overwrite an array on the first device by sevens."""
    backend.copy_to(full(backend, 7, *shape), backend.devices[0], out=x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_keeps_its_contents_when_its_argument_is_consumed(
    backend: Backend, name: str
) -> None:
    x = full(backend, 1, *IMAGES)
    result = backend.launch(lambda x: FUNCTIONS[name](backend.ops, x), x)
    contents_before = tree_leaves(backend.to_numpy(result))

    consume(backend, x, IMAGES)

    contents_after = tree_leaves(backend.to_numpy(result))
    for after, before in zip(contents_after, contents_before, strict=True):
        np.testing.assert_array_equal(after, before)


# The result of `to_host` lies on no device, so nothing on the first device can be copied to it.
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "to_host"])
def test_an_argument_keeps_its_contents_when_a_result_is_consumed(
    backend: Backend, name: str
) -> None:
    x = full(backend, 1, *IMAGES)
    result = backend.launch(lambda x: FUNCTIONS[name](backend.ops, x), x)
    has_gradient = name == "value and gradients"
    arrays = (result[0], result[1][0]) if has_gradient else (result,)
    for array in arrays:
        consume(backend, array, backend.to_numpy(array).shape)
    backend.waitall()

    assert_equal(backend, x, np.ones(IMAGES))


def flattened(ops: Ops, p: Array) -> tuple[Array, Array]:
    """Return two parameters as matrices: views of their memory."""
    return ops.flatten(p[0]), ops.flatten(p[1])


def weigh(ops: Ops, x: Array) -> Array:
    """Sum the products of elements and these elements plus two."""
    return ops.total(ops.multiply(x, ops.add(x, 2.0)))


def add_second_between_firsts(ops: Ops, p: Array) -> Array:
    """Add the total of the first parameter, that of the second one, and the first one's again."""
    second_and_first = ops.add(ops.total(p[1]), ops.total(p[0]))
    return ops.add(ops.total(p[0]), second_and_first)


def add_to_a_sum(ops: Ops, p: Array) -> Array:
    """Weigh the sum of the flattened parameters and once more the first one."""
    total = ops.add(*flattened(ops, p))
    return weigh(ops, ops.add(total, ops.flatten(p[0])))


def add_a_view_of_a_sum(ops: Ops, p: Array) -> Array:
    """Weigh the sum of the flattened first parameter and the flattened second one plus one."""
    return weigh(ops, ops.add(*flattened(ops, (p[0], ops.add(p[1], 1.0)))))


def multiply_with_a_view_of_a_product(ops: Ops, p: Array) -> Array:
    """Weigh the product of the flattened first parameter and a flattened product with it."""
    return weigh(ops, ops.multiply(*flattened(ops, (p[0], ops.multiply(p[0], p[1])))))


def use_a_sum_beside_a_product(ops: Ops, p: Array) -> Array:
    """Add the product and the sum of the two parameters, and all elements of that."""
    first, second = flattened(ops, p)
    return ops.total(ops.add(ops.matmul(first, second), ops.add(first, second)))


LOSSES: dict[str, Callable[[Ops, Array], Array]] = {
    "add": lambda ops, p: ops.total(ops.add(p[0], p[1])),
    "add views": lambda ops, p: ops.total(ops.add(*flattened(ops, p))),
    "add views and weigh": lambda ops, p: weigh(ops, ops.add(*flattened(ops, p))),
    "add twice": add_second_between_firsts,
    "add to a sum": add_to_a_sum,
    "add a view of a sum": add_a_view_of_a_sum,
    "total": lambda ops, p: ops.total(p[0]),
    "two totals": lambda ops, p: ops.add(ops.total(p[0]), ops.total(p[1])),
    "total of a column": lambda ops, p: ops.total(ops.total(ops.add(p[1], p[0]), 1)),
    "multiply": lambda ops, p: ops.total(ops.multiply(*flattened(ops, p))),
    "multiply with a view of a product": multiply_with_a_view_of_a_product,
    "matmul": lambda ops, p: weigh(ops, ops.matmul(*flattened(ops, p))),
    "the second": lambda ops, p: weigh(ops, ops.flatten(p[1])),
    "a shared one": use_a_sum_beside_a_product,
}
"""Functions of two parameters, whose gradients a simple chain rule, or PyTorch's, lets overlap."""


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_share_memory_with_nothing(backend: Backend, name: str, shared: bool) -> None:
    """Both parameters are one array if `shared`; the reference is computed of two arrays."""
    differentiate = backend.ops.value_and_grad(lambda p: LOSSES[name](backend.ops, p))
    results, references = [], []
    for device in range(2):
        first, second = (full(backend, 1, 3, 3, 1, device=device) for _ in range(2))
        parameters = (first, first) if shared else (first, second)
        results.append(backend.launch(differentiate, parameters))
        references.append(backend.launch(differentiate, (first, second)))
    expected_value, expected_gradients = backend.to_numpy(references[0])

    # The sums over the two devices take the memory of the gradients.
    sums = backend.allreduce([result[1] for result in results])

    for sums_on_device in sums:
        in_numpy = backend.to_numpy(sums_on_device)
        for total, gradient in zip(in_numpy, expected_gradients, strict=True):
            np.testing.assert_array_equal(total, 2 * gradient)
    assert_equal(backend, results[0][0], expected_value)


def test_copies_that_replace_one_value_again_and_again_take_the_memory_of_few(
    backend: Backend,
) -> None:
    count, size = 400, 2**20
    bytes_of_copy = 4 * size
    second = backend.devices[1]
    x, matrix = full(backend, 1, size), full(backend, 1, 1500, 1500)
    buffer = backend.copy_to(x, second)
    backend.waitall()
    process = psutil.Process()
    bytes_before = process.memory_info().rss

    def add_zero(x: Array, y: Array) -> Array:
        zero = backend.ops.multiply(backend.ops.total(y), 0.0)
        return backend.ops.add(x, zero)

    # All copies wait until the device has computed the products.
    late_x = backend.launch(add_zero, x, products(backend, matrix, 5))
    for _ in range(count):
        buffer = backend.copy_to(late_x, second, out=buffer)
    backend.waitall()

    further_bytes = process.memory_info().rss - bytes_before
    assert further_bytes < count / 2 * bytes_of_copy


def test_a_single_shard_does_not_share_memory_with_its_source(backend: Backend) -> None:
    x = np.ones(2, np.float32)
    (shard,) = backend.split_and_load(x, backend.devices[:1])
    x[:] = 7
    assert_equal(backend, shard, [1, 1])
