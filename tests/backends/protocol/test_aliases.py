"""What was launched before a value is consumed reads what was there before, by whatever name it reads the memory."""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Array, Backend

Names = Callable[[Backend, Array], Array]
NAMES: dict[str, Names] = {
    "the array": lambda _, x: x,
    "a part": lambda backend, x: backend.launch(lambda y: backend.ops.split(y, (2, 2)), x)[0],
    "a part, counted from the end": lambda backend, x: backend.launch(lambda y: backend.ops.split(y, (2, 2)), x)[-2],
    "all parts": lambda backend, x: backend.launch(lambda y: backend.ops.split(y, (2, 2)), x),
    "flattened": lambda backend, x: backend.launch(backend.ops.flatten, x),
    "a part, flattened": lambda backend, x: backend.launch(
        backend.ops.flatten, backend.launch(lambda y: backend.ops.split(y, (2, 2)), x)[0]
    ),
    "an item of a tuple": lambda backend, x: backend.launch(lambda y: (0 * y, (y,)), x)[-1][0],
}


def loaded(backend: Backend, value: float, device: int = 0) -> Array:
    return backend.asarray(np.full(4, value, np.float32), backend.devices[device])


def keep_busy(backend: Backend, device: int) -> None:
    """Occupy what copies to a device, for some milliseconds."""
    x = np.full((300, 300), 1 / 300, np.float32)
    busy = product = backend.asarray(x, backend.devices[0])
    for _ in range(10):
        product = backend.launch(backend.ops.matmul, product, busy)
    backend.copy_to(product, backend.devices[device])


def values_of(backend: Backend, x: Array) -> set[float]:
    found = backend.to_numpy(x)
    return set(np.concatenate([np.ravel(part) for part in found] if isinstance(found, tuple) else [found.ravel()]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["out", "allreduce", "sgd"])
def test_a_copy_by_any_name_is_of_what_was_there_before(backend: Backend, name: str, how: str) -> None:
    x, other = loaded(backend, 5), loaded(backend, 7, 1)
    named = NAMES[name](backend, x)
    keep_busy(backend, 2)
    copy = backend.copy_to(named, backend.devices[2])
    if how == "out":
        expected, after = 7, backend.copy_to(other, backend.devices[0], out=x)
    elif how == "allreduce":
        expected, after = 12, backend.allreduce([x, other])[0]
    else:
        expected, after = 4, backend.launch(backend.ops.sgd, (x,), (loaded(backend, 1),), 1.0)[0]
    assert values_of(backend, after) == {expected}
    assert values_of(backend, copy) == {5}


@pytest.mark.parametrize("name", ["a part", "a part, counted from the end", "a part, flattened"])
def test_a_copy_of_all_is_of_what_was_there_before_a_part_was_overwritten(backend: Backend, name: str) -> None:
    x = loaded(backend, 5)
    if name == "a part, flattened" and backend.name == "mxnet":
        pytest.skip("its flatten may copy")
    part = NAMES[name](backend, x)
    ones = backend.launch(lambda y: 0 * y + 1, part)
    keep_busy(backend, 2)
    copy = backend.copy_to(x, backend.devices[2])
    assert values_of(backend, backend.copy_to(ones, backend.devices[0], out=part)) == {1}
    assert values_of(backend, copy) == {5}


def test_parts_that_were_not_consumed_stay(backend: Backend) -> None:
    x = loaded(backend, 5)
    parts = backend.launch(lambda y: backend.ops.split(y, (1, 2, 1)), x)
    part = backend.asarray(np.float32([1, 1]), backend.devices[1])
    total, _ = backend.allreduce([parts[1], part])
    assert values_of(backend, total) == {6}
    assert values_of(backend, backend.launch(backend.ops.add, parts[0], parts[-1])) == {10}
