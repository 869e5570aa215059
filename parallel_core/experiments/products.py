"""The book's `run`: products of one matrix with itself that do not depend on each other."""

from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from backends import Array, Backend, Device
from parallel_core.measurement.progress import tell
from parallel_core.measurement.timing import measure

__all__ = [
    "normal_matrix",
    "product_seconds",
    "products",
    "products_as_unit",
    "size_for",
    "size_for_run",
]


PRODUCTS = 50
RUN_SECONDS = 0.2
"""About how long a chosen size makes a device take for them."""
MOST_IN_UNIT = 500
"""Operations in one unit at the most: a framework may take milliseconds for each to make a unit of them."""


def products(backend: Backend, x: Array, count: int = PRODUCTS) -> list[Array]:
    """Launch independent products of one matrix with itself, on the matrix's device."""
    return [backend.launch(backend.ops.matmul, x, x) for _ in range(count)]


def products_as_unit(backend: Backend, x: Array, count: int = PRODUCTS) -> Callable[[], object]:
    """Return what launches the same products as one unit, with nothing queued between them; many as several units."""
    matmul = backend.ops.matmul
    lengths = [min(MOST_IN_UNIT, count - first) for first in range(0, count, MOST_IN_UNIT)]
    units = {length: backend.ops.as_unit(partial(_multiply, matmul, length)) for length in set(lengths)}
    return lambda: [backend.launch(units[length], x) for length in lengths]


def _multiply(matmul: Callable[..., Array], count: int, matrix: Array) -> Array:
    return tuple(matmul(matrix, matrix) for _ in range(count))


def normal_matrix(backend: Backend, size: int, device: Device, seed: int = 0) -> Array:
    """Load a size × size matrix of standard normal float32, drawn by NumPy so that all frameworks get the same."""
    return backend.asarray(np.random.default_rng(seed).standard_normal((size, size), dtype=np.float32), device)


def product_seconds(backend: Backend, size: int, device: Device, count: int = 5) -> float:
    """Measure the seconds that one size × size product takes on a device, the median of a few tries.

    Not the fastest: what is chosen by it must fit into a budget on a busy machine too.
    """
    launch = partial(products, backend, normal_matrix(backend, size, device), count)
    measure(backend, launch)
    return median(measure(backend, launch)[1] for _ in range(5)) / count


def size_for_run(backend: Backend, share: float = 1.0) -> int:
    """Choose the matrix size with which the first device takes about 0.2 s, or a share of that, for all products."""
    return size_for(backend, share * RUN_SECONDS, PRODUCTS, backend.devices[0])


def size_for(backend: Backend, seconds: float, count: int, device: Device) -> int:
    """Choose the matrix size, a multiple of 8, at which `count` products take about `seconds` on a device."""
    size = 128
    # A product's time grows with the cube of its size, roughly; the second and third estimates correct the first.
    for estimate in range(3):
        tell("choosing a size", estimate / 3)
        taken = count * product_seconds(backend, size, device)
        size = max(8, round(size * (seconds / taken) ** (1 / 3) / 8) * 8)
    return size
