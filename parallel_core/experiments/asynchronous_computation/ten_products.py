"""Dispatch and completion: Python returns from a product long before the product exists.

Ten normal matrices are drawn by NumPy, so that every framework multiplies the same ones; drawing and
loading them is not timed, only the products are.
"""

from functools import partial

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.measuring import Units, largest_error, take_in_turn
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import measure

__all__ = ["PRODUCTS_CASE", "REPEATS", "as_unit", "compare_with_numpy", "draw", "error_of_products", "multiply"]

PRODUCTS_CASE = "10 products"

REPEATS = 10


def draw(size: int) -> list[np.ndarray]:
    """Draw ten size × size matrices of standard normal float32."""
    return list(np.random.default_rng(0).standard_normal((REPEATS, size, size), dtype=np.float32))


def multiply(backend: Backend, matrices: list[Array]) -> list[Array]:
    """Launch the product of every matrix with itself."""
    return [backend.launch(backend.ops.matmul, a, a) for a in matrices]


def as_unit(backend: Backend, matrices: list[Array]) -> Units:
    """Return the same products as one unit, which is the bare time of their case."""
    matmul = backend.ops.matmul
    multiply_all = backend.ops.as_unit(lambda *each: tuple(matmul(a, a) for a in each))
    return Units({PRODUCTS_CASE: partial(backend.launch, multiply_all, *matrices)}, {PRODUCTS_CASE: (PRODUCTS_CASE,)})


def error_of_products(backend: Backend, loaded: list[Array], drawn: list[np.ndarray]) -> float:
    """Return the largest relative error of the products of loaded matrices, against NumPy's of the drawn ones."""
    return largest_error(map(backend.to_numpy, multiply(backend, loaded)), [a @ a for a in drawn])


def compare_with_numpy(
    backend: Backend, reference: Backend, size: int, rounds: int, budget: float
) -> tuple[tuple[Case, Case], float]:
    """Time ten products in NumPy and in a backend; return both cases and the largest relative error.

    `reference` is the NumPy backend, on as many threads as one of the backend's devices has.
    """
    drawn = draw(size)
    loaded = [backend.asarray(a, backend.devices[0]) for a in drawn]
    in_numpy, in_backend = take_in_turn(
        backend,
        {
            "10 products in NumPy": partial(measure, reference, partial(multiply, reference, drawn)),
            PRODUCTS_CASE: partial(measure, backend, partial(multiply, backend, loaded)),
        },
        rounds,
        units=as_unit(backend, loaded),
        budget=budget,
    ).values()
    tell("checking the products", 0.0)
    return (in_numpy, in_backend), error_of_products(backend, loaded, drawn)
