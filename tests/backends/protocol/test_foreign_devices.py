"""What a backend was not loaded with is refused: other devices, arrays on them, and what is no
device at all.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import backends
from backends import Array, Backend, Device
from tests.backends.protocol.arrays import assert_equal, full
from tests.backends.protocol.test_errors import refuse, skip_unless_arrays_know_devices

FOREIGN = Device("cpu", 9)
NO_DEVICES: tuple[Any, ...] = (
    None,
    1,
    "cpu:1",
    ["cpu:1"],
    {},
    {"cpu"},
    np.ones(2),
    Device,
    FOREIGN,
    Device("gpu", 7),
)
"""Objects that are passed where a device is asked for."""

WITH_DEVICE: dict[str, Callable[[Backend, Array, Any], object]] = {
    "load": lambda backend, x, device: backend.asarray(np.ones(2), device),
    "shard": lambda backend, x, device: backend.split_and_load(np.ones(2), [device]),
    "copy": lambda backend, x, device: backend.copy_to(x, device),
    "copy with out": lambda backend, x, device: backend.copy_to(x, device, out=x),
}
WITH_VALUE: dict[str, Callable[[Backend, Array, Array], object]] = {
    "launch": lambda backend, x, y: backend.launch(backend.ops.relu, y),
    "launch on a tuple": lambda backend, x, y: backend.launch(lambda pair: pair[0], (y, y)),
    "copy from": lambda backend, x, y: backend.copy_to(y, backend.devices[0]),
    "copy from, within": lambda backend, x, y: backend.copy_to((x, (y,)), backend.devices[0]),
    "copy to its memory": lambda backend, x, y: backend.copy_to(x, backend.devices[0], out=y),
    "copy to its memory, within": lambda backend, x, y: backend.copy_to(
        (x, x), backend.devices[0], out=(x, y)
    ),
    "sum with": lambda backend, x, y: backend.allreduce([x, y]),
    "sum of": lambda backend, x, y: backend.allreduce([y]),
    "sum within": lambda backend, x, y: backend.allreduce([(x, y)]),
}
"""Requests with a value `y` on a foreign device, and a value `x` on the backend's first device."""


@pytest.mark.parametrize("verb", WITH_DEVICE)
def test_what_is_none_of_the_devices_is_refused_by_its_name_or_type(
    backend: Backend, verb: str
) -> None:
    for device in NO_DEVICES:
        line = refuse(backend, partial(WITH_DEVICE[verb], device=device))
        name_or_type = str(device) if isinstance(device, Device) else type(device).__name__
        assert name_or_type in line
        assert str(backend.devices[-1]) in line


@pytest.mark.parametrize("devices", [[], 3, None, {}, "cpu:1", np.ones(2)])
def test_shards_are_for_several_devices(backend: Backend, devices: Any) -> None:
    refuse(backend, lambda backend, _: backend.split_and_load(np.ones(2), devices))


@pytest.mark.parametrize("verb", WITH_VALUE)
def test_an_array_on_a_device_of_another_backend_is_refused_by_that_device_s_name(
    backend: Backend, verb: str
) -> None:
    skip_unless_arrays_know_devices(backend)
    other = backends.load(backend.name, str(FOREIGN), "cpu", backend.engine, 1)
    y = full(other, 1, 2, 2)
    assert str(FOREIGN) in refuse(backend, partial(WITH_VALUE[verb], y=y))
    assert_equal(other, y, np.ones((2, 2)))


@pytest.mark.parametrize("within", [False, True])
def test_a_copy_is_not_written_to_a_value_on_another_device_than_it_goes_to(
    backend: Backend, within: bool
) -> None:
    skip_unless_arrays_know_devices(backend)
    first, second, _ = backend.devices
    y = full(backend, 1, 2, 2, device=1)

    def copy_to_other_device(backend: Backend, x: Array) -> object:
        if within:
            return backend.copy_to((x,), first, out=(y,))
        return backend.copy_to(x, first, out=y)

    line = refuse(backend, copy_to_other_device)
    assert str(first) in line
    assert str(second) in line
