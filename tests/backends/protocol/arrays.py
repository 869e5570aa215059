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
    """Load a float32 array that holds one number, on the device with this position."""
    return backend.asarray(np.full(shape, number, np.float32), backend.devices[device])


def products(backend: Backend, x: Array, count: int = 10) -> Array:
    """Multiply by a square matrix again and again, and return the last product.

    The multiplications occupy the device of the matrix.
    """
    product = x
    for _ in range(count):
        product = backend.launch(backend.ops.matmul, product, x)
    return product


def computed(backend: Backend, fn: Callable[..., Array], *args: Array) -> Any:
    """Launch a function, and return its result as NumPy."""
    return backend.to_numpy(backend.launch(fn, *args))


def assert_equal(backend: Backend, x: Array, expected: Any) -> None:
    """Assert that a value of a backend holds exactly the expected numbers."""
    np.testing.assert_array_equal(backend.to_numpy(x), expected)


def assert_close(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float = 1e-5
) -> None:
    """Assert that arrays have the expected dtypes and shapes, and numbers within a tolerance."""
    for actual, wanted in zip(found, expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        largest = np.abs(wanted).max()
        np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance / 10 * largest)
