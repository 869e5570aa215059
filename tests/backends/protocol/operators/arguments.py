"""Functions applied to NumPy's arrays, which are loaded on the last device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends import Array, Backend, ComputationError
from backends.protocol import HostArray
from tests.backends.protocol.arrays import computed


def on_device(backend: Backend, *values: HostArray) -> list[Array]:
    """Load arrays on the last device."""
    return [backend.asarray(value, backend.devices[-1]) for value in values]


def applied(backend: Backend, fn: Callable[..., Array], *values: HostArray) -> Any:
    """Launch a function of arrays on the last device, and return its result as NumPy."""
    return computed(backend, fn, *on_device(backend, *values))


def assert_fails(backend: Backend, fn: Callable[..., Array], *values: HostArray) -> None:
    """Assert that a launched function fails as a computation."""
    with pytest.raises(ComputationError, match=backend.name):
        applied(backend, fn, *values)


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Make an array of ones."""
    return np.ones(shape, dtype)
