"""Arrays of one number, work that takes a while, and comparisons, for tests of all that a backend
does.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backends import Array, Backend

Load = Callable[[int], Backend]
"""What the fixture `load` is: it takes a number of devices."""


def full(backend: Backend, number: float, *shape: int, device: int = 0) -> Array:
    """Load a float32 array that holds one number, on the device of this place."""
    return backend.asarray(np.full(shape, number, np.float32), backend.devices[device])


def products(backend: Backend, x: Array, count: int = 10) -> Array:
    """Multiply a square matrix by itself again and again, which occupies its device; return the
    last product.
    """
    y = x
    for _ in range(count):
        y = backend.launch(backend.ops.matmul, y, x)
    return y


def assert_equal(backend: Backend, x: Array, expected: Any) -> None:
    np.testing.assert_array_equal(backend.to_numpy(x), expected)


def assert_close(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float = 1e-5
) -> None:
    assert [(one.dtype, one.shape) for one in found] == [(one.dtype, one.shape) for one in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=tolerance, atol=tolerance / 10 * np.abs(other).max()
        )
