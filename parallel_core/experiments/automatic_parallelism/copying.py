"""Products whose results are copied to another device, with sizes that make both take about the same time."""

from functools import partial
from typing import Annotated

from backends import Array, Backend, Device
from parallel_core.experiments.experiment import Parameter
from parallel_core.experiments.measuring import time_in_turn
from parallel_core.experiments.products import PRODUCTS, normal_matrix, products, size_for_run
from parallel_core.measurement.progress import tell

__all__ = ["Copies", "calibrate", "copy_as_units", "copy_each", "copy_into"]

Copies = Annotated[
    int | None,
    Parameter("Copies of each result. Default: so many that copying takes as long as computing.", maximum=1000),
]
LARGEST_SIZE = 8192
CACHED_BYTES = 2**23
"""Results and buffers of this size stay in a cache while they are copied again."""


def copy_into(backend: Backend, buffer: Array, result: Array, device: Device, copies: int) -> Array:
    """Launch copies of a result to a buffer on the device; return the buffer as it will then be."""
    for _ in range(copies):
        buffer = backend.copy_to(result, device, out=buffer)
    return buffer


def copy_each(backend: Backend, results: list[Array], device: Device, buffers: list[Array], copies: int) -> None:
    """Launch copies of every result into its buffer on the device; the buffers are replaced by the copies."""
    for index, result in enumerate(results):
        buffers[index] = copy_into(backend, buffers[index], result, device, copies)


def copy_as_units(
    backend: Backend, results: list[Array], device: Device, buffers: list[Array], copies: int, size: int
) -> None:
    """Launch the same copies with little queued between them: those of as many results at once as caches hold."""
    together = max(1, CACHED_BYTES // (2 * 4 * size**2))
    for first in range(0, len(results), together):
        own = slice(first, first + together)
        copied = copy_into(backend, tuple(buffers[own]), tuple(results[own]), device, copies)
        buffers[own] = [copied[index] for index in range(len(results[own]))]


def calibrate(
    backend: Backend, destination: Device, size: int | None, copies: int | None, budget: float
) -> tuple[int, int]:
    """Choose the size and the number of copies with which computing and copying take about the same time.

    Copies go from the first device to the destination. It takes about the budget of seconds at the most.
    """
    chosen = size or min(LARGEST_SIZE, size_for_run(backend))
    if copies is not None:
        return chosen, copies
    tell("choosing the copies", 0.0)
    ratio = partial(_time_ratio, backend, destination, budget / 3)
    # Where even a single copy takes longer (a GPU behind a bus), larger matrices shift the balance to computing.
    if size is None and (once := ratio(chosen, 1)) < 1:
        chosen = min(LARGEST_SIZE, round(chosen / once / 8) * 8)
    # Many copies of one result are faster apiece than few, for it stays in the cache: estimate, then correct.
    copies = 8
    for estimate in range(2):
        tell("choosing the copies", (1 + estimate) / 3)
        copies = max(1, round(copies * ratio(chosen, copies)))
    return chosen, copies


def _time_ratio(backend: Backend, destination: Device, budget: float, size: int, copies: int) -> float:
    """Measure how many times longer the products take than the copies, on a tenth of the products."""
    x = normal_matrix(backend, size, backend.devices[0])
    results = products(backend, x, PRODUCTS // 10)
    buffers = [backend.copy_to(result, destination) for result in results]
    run_alone, copy_alone = time_in_turn(
        backend,
        {
            "run": partial(products, backend, x, PRODUCTS // 10),
            "copy": partial(copy_each, backend, results, destination, buffers, copies),
        },
        rounds=3,
        budget=budget,
    ).values()
    return run_alone.median / copy_alone.median
