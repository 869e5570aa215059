"""The book's `run`: products of one matrix with itself that do not depend on each other."""

from backends import Array, Backend

__all__ = ["PRODUCTS", "products"]

PRODUCTS = 50


def products(backend: Backend, x: Array, count: int = PRODUCTS) -> list[Array]:
    """Launch independent products of one matrix with itself, on the matrix's device."""
    return [backend.launch(backend.ops.matmul, x, x) for _ in range(count)]
