"""Are the sums NumPy's? Asked on fresh numbers and apart from the timing, as nccl-tests does."""

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

__all__ = [
    "ALL_SIZES",
    "ITEM",
    "LARGEST_ERROR",
    "default_sizes",
    "error_of_sum",
    "error_of_sums",
    "refuse_more_than_memory",
    "whole_elements",
]

ALL_SIZES = "4KiB..256MiB"
"""Those that are timed by default, as far as memory and budget last."""
ITEM = 4
"""Bytes of a float32."""
BLOCK = 2**18
"""Elements that are compared at once: few enough to stay in the cache, and to need little memory."""
HELD_AT_ONCE = 6
"""Vectors per device that exist at the same time, at most: drawn ones, loaded ones, their parts and sums."""
LARGEST_ERROR = 1e-5
CHECKED = {**ALGORITHMS, ONE_ROOT: on_one_root}


def error_of_sums(backend: Backend, algorithms: Sequence[str], length: int) -> float:
    """Sum uniform float32 vectors by each algorithm; return the largest relative error on any device, NaN for NaN."""
    generator = np.random.default_rng(length)
    terms = [generator.random(length, dtype=np.float32) for _ in backend.devices]
    expected = reduce(partial(np.add, dtype=np.float64), terms)
    errors = []
    for name in algorithms:
        tell(f"check of {name}, {write_size(ITEM * length)}", 0.0)
        loaded = [backend.asarray(term, device) for term, device in zip(terms, backend.devices, strict=True)]
        errors += [error_of_sum(backend.to_numpy(total), expected) for total in CHECKED[name](backend, loaded)]
    return largest_of(errors)


def error_of_sum(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest relative error of a sum of vectors, block by block."""
    if actual.shape != expected.shape:
        return float("inf")
    return largest_of(
        relative_error(actual[rows], expected[rows]) for rows in row_ranges(len(actual), 1 + len(actual) // BLOCK)
    )


def whole_elements(sizes: Sequence[int]) -> tuple[int, ...]:
    """Round sizes down to whole elements, one at least; return them once each, in ascending order."""
    if not sizes:
        raise RequestError("no size is given")
    return tuple(sorted({max(1, size // ITEM) * ITEM for size in sizes}))


def default_sizes(devices: int) -> tuple[int, ...]:
    """Return all sizes whose vectors this machine can hold."""
    memory = describe_machine()["memory_bytes"]
    return tuple(size for size in parse_sizes(ALL_SIZES) if _needed(size, devices) <= memory)


def refuse_more_than_memory(largest: int, devices: int) -> None:
    """Raise RequestError for vectors that this machine cannot hold."""
    needed, memory = _needed(largest, devices), describe_machine()["memory_bytes"]
    if needed > memory:
        raise RequestError(
            f"vectors of {write_size(largest)} on {devices} devices take about {needed / 1e9:.3g} GB of memory, "
            f"and this machine has {memory / 1e9:.3g} GB: choose smaller --sizes"
        )


def _needed(size: int, devices: int) -> int:
    return HELD_AT_ONCE * devices * size
