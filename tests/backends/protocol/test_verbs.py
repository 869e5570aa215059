"""What each verb promises, on every backend and engine."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from backends import Array, Backend
from tests.backends.protocol.arrays import assert_equal, computed, full


@pytest.mark.parametrize("target", [0, 1])
def test_a_copy_has_memory_of_its_own_even_on_its_own_device(backend: Backend, target: int) -> None:
    terms = [full(backend, 1, 3, device=device) for device in range(2)]
    copy = backend.copy_to(terms[0], backend.devices[target])
    # The sum takes the memory of its terms.
    for total in backend.allreduce(terms):
        assert_equal(backend, total, [2, 2, 2])
    assert_equal(backend, copy, [1, 1, 1])


class Pair(NamedTuple):
    first: object
    second: object


PASSED_ON: dict[str, Callable[[Array], object]] = {
    "an array": lambda x: x,
    "a list of numbers": lambda _: [1, 2.5],
    "a list of arrays": lambda x: [x, x],
    "nested lists": lambda x: [[x], [1], []],
    "a list in a tuple": lambda x: ([x], [1]),
    "a tuple in a list": lambda x: [(x, 1), (2, 3)],
    "a named tuple of numbers": lambda _: Pair(1, "two"),
    "a named tuple of arrays": lambda x: Pair(x, (x, 1)),
    "a named tuple in a list": lambda x: [Pair([x], Pair(1, x))],
    "an item of a tuple": lambda x: Pair(x, [x]),
    "what is no value": lambda _: ({"x": [1]}, None, "text", len, slice(1, 2), ...),
}
"""Arguments for a launched function, made of an array."""


def form(value: object) -> object:
    """Return a value with a text in place of each array, and the types of its lists and tuples."""
    if isinstance(value, tuple | list):
        return type(value).__name__, [form(item) for item in value]
    is_future = type(value).__name__.endswith(("Future", "Item", "CudaArray"))
    if is_future or hasattr(value, "shape"):
        return "an array"
    return value


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("name", PASSED_ON)
def test_what_is_passed_on_arrives_as_it_is(backend: Backend, name: str, is_late: bool) -> None:
    if backend.name == "jax":
        pytest.skip(
            "JAX traces a function, with arrays in place of numbers, and an equal one not again"
        )
    x = full(backend, 1, 2)
    if is_late:
        # An item of a tuple that may still have to be computed.
        x = backend.launch(lambda y: (y, y + 1), x)[1]
    argument = PASSED_ON[name](x)
    forms_that_arrived = []

    def note(y: Array, value: object) -> Array:
        forms_that_arrived.append(form(value))
        return y

    backend.wait(backend.launch(note, x, argument))
    assert forms_that_arrived[0] == form(argument)


def test_tuples_are_values(backend: Backend) -> None:
    zeros, row_of_one = full(backend, 0, 2), full(backend, 1, 1, 2)
    swapped = backend.launch(lambda pair: (pair[1], (pair[0],)), (zeros, row_of_one))
    copy = backend.copy_to(swapped, backend.devices[-1])
    first, (second,) = backend.to_numpy(copy)
    np.testing.assert_array_equal(first, [[1, 1]])
    np.testing.assert_array_equal(second, [0, 0])
    assert_equal(backend, backend.wait(swapped[1][0]), [0, 0])


def test_vectors_are_split_and_concatenated(backend: Backend) -> None:
    ops = backend.ops
    x = np.arange(10, dtype=np.int64)
    loaded = backend.asarray(x, backend.devices[1])
    parts = backend.launch(lambda whole: ops.split(whole, (3, 0, 5, 2)), loaded)
    parts_in_numpy = [part.tolist() for part in backend.to_numpy(parts)]
    assert parts_in_numpy == [[0, 1, 2], [], [3, 4, 5, 6, 7], [8, 9]]

    joined = computed(backend, ops.concatenate, (parts[2], parts[1], parts[0]))
    assert joined.tolist() == [3, 4, 5, 6, 7, 0, 1, 2]
    assert joined.dtype == x.dtype
