"""Arrays of one number, arrays that are drawn, work that takes a while, and comparisons, for tests
of all that a backend does.
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


def drawn(
    *shapes: tuple[int, ...], dtype: str = "float32", low: float = 1, seed: int = 3
) -> tuple[np.ndarray, ...]:
    """Draw arrays of these shapes, with numbers from `low` to 2."""
    generator = np.random.default_rng(seed)
    return tuple(np.asarray(generator.uniform(low, 2, shape)).astype(dtype) for shape in shapes)


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


def wait_by(backend: Backend, verb: str, x: Array) -> None:
    """Wait for a value by the verb `wait` or `to_numpy`, or for everything by `waitall`."""
    if verb == "waitall":
        backend.waitall()
    else:
        getattr(backend, verb)(x)


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
