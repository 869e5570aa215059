"""Are the sums NumPy's? Asked on fresh numbers and apart from the timing, as nccl-tests does. And which sizes fit?"""

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from backends import Backend
from backends.arrays import row_ranges
from parallel_core.errors import RequestError
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS, on_one_root
from parallel_core.experiments.training_on_multiple_gpus.allreduce.parts import ONE_ROOT
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.progress import tell
from parallel_core.system.formatting import parse_sizes, write_size
from parallel_core.system.machine import describe_machine

__all__ = ["ALL_SIZES", "ITEM", "error_of_sum", "error_of_sums", "sizes_to_time"]

ALL_SIZES = "4KiB..256MiB"
"""Those that are timed by default, as far as memory and budget last."""
ITEM = 4
"""Bytes of a float32."""
BLOCK = 2**18
"""Elements that are compared at once: few enough to stay in the cache, and to need little memory."""
HELD_AT_ONCE = 6
"""Vectors per device that exist at the same time, at most: drawn ones, loaded ones, their parts and sums."""
CHECKED = {**ALGORITHMS, ONE_ROOT: on_one_root}


def error_of_sums(backend: Backend, algorithms: Sequence[str], length: int) -> float:
    """Sum uniform float32 vectors by each algorithm; return the largest relative error on any device, NaN for NaN."""
    generator = np.random.default_rng(length)
    terms = [generator.random(length, dtype=np.float32) for _ in backend.devices]
    expected = reduce(partial(np.add, dtype=np.float64), terms)
    errors = []
    for name in algorithms:
        tell(f"check of {name}, {write_size(ITEM * length)}", 0.0)
        vectors = [backend.asarray(term, device) for term, device in zip(terms, backend.devices, strict=True)]
        errors += [error_of_sum(backend.to_numpy(total), expected) for total in CHECKED[name](backend, vectors)]
    return largest_of(errors)


def error_of_sum(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest relative error of a sum of vectors, block by block."""
    if actual.shape != expected.shape:
        return float("inf")
    return largest_of(
        relative_error(actual[rows], expected[rows]) for rows in row_ranges(len(actual), 1 + len(actual) // BLOCK)
    )


def sizes_to_time(sizes: Sequence[int] | None, devices: int) -> tuple[int, ...]:
    """Round sizes down to whole elements, one at least; return them once each, in ascending order.

    By default they are all whose vectors this machine can hold on so many devices. Raises RequestError if there is
    none, and for vectors that it cannot hold.
    """
    memory = describe_machine()["memory_bytes"]
    if sizes is None:
        return tuple(size for size in parse_sizes(ALL_SIZES) if HELD_AT_ONCE * devices * size <= memory)
    if not sizes:
        raise RequestError("no size is given")
    whole = tuple(sorted({max(1, size // ITEM) * ITEM for size in sizes}))
    needed = HELD_AT_ONCE * devices * whole[-1]
    if needed > memory:
        raise RequestError(
            f"vectors of {write_size(whole[-1])} on {devices} devices take about {needed / 1e9:.3g} GB of memory, "
            f"and this machine has {memory / 1e9:.3g} GB: choose smaller --sizes"
        )
    return whole
