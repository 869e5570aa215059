"""Products whose results are copied to another device, with sizes that make both take about the same time."""

from functools import partial
from typing import Annotated

from backends import Array, Backend, Device
from parallel_core.experiments.experiment import Parameter
from parallel_core.experiments.measuring import time_in_turn
from parallel_core.experiments.products import PRODUCTS, normal_matrix, products

__all__ = ["Copies", "calibrate", "copy_each", "copy_into"]

Copies = Annotated[
    int | None, Parameter("Copies of each result. Default: so many that copying takes as long as computing.")
]
START_SIZE = 800
LARGEST_SIZE = 8192


def copy_into(backend: Backend, buffer: Array, result: Array, device: Device, copies: int) -> Array:
    """Launch copies of a result to a buffer on the device; return the buffer as it will then be."""
    for _ in range(copies):
        buffer = backend.copy_to(result, device, out=buffer)
    return buffer


def copy_each(backend: Backend, results: list[Array], device: Device, buffers: list[Array], copies: int) -> None:
    """Launch copies of every result into its buffer on the device; the buffers are replaced by the copies."""
    for index, result in enumerate(results):
        buffers[index] = copy_into(backend, buffers[index], result, device, copies)


def calibrate(
    backend: Backend, source: Device, destination: Device, size: int | None, copies: int | None
) -> tuple[int, int]:
    """Choose the size and the number of copies with which computing and copying take about the same time."""
    ratio = partial(_time_ratio, backend, source, destination)
    chosen = size or START_SIZE
    # Where even a single copy takes longer (a GPU behind a bus), larger matrices shift the balance to computing.
    while size is None and copies is None and ratio(chosen, 1) < 1 and chosen < LARGEST_SIZE:
        chosen *= 2
    if copies is None:
        # Many copies of one result are faster apiece than few, for it stays in the cache: estimate, then correct.
        copies = 8
        for _ in range(2):
            copies = max(1, round(copies * ratio(chosen, copies)))
    return chosen, copies


def _time_ratio(backend: Backend, source: Device, destination: Device, size: int, copies: int) -> float:
    """Measure how many times longer the products take than the copies, on a tenth of the products."""
    x = normal_matrix(backend, size, source)
    results = products(backend, x, PRODUCTS // 10)
    buffers = [backend.copy_to(result, destination) for result in results]
    run_alone, copy_alone = time_in_turn(
        backend,
        {
            "run": partial(products, backend, x, PRODUCTS // 10),
            "copy": partial(copy_each, backend, results, destination, buffers, copies),
        },
        rounds=3,
    ).values()
    return run_alone.median / copy_alone.median
