"""What adding up different parts on different devices is made of, and what it gains over adding all up on one.

Dividing, copying, adding and joining are each timed alone, beside the sums themselves, in turn. The same sum with all
parts added up on one device divides, copies and joins alike: only the place of the additions differs.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import (
    Allreduce,
    added,
    joined,
    native,
    on_one_root,
    parts_of,
    sharded,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import Operation, measure_each, time_repeated
from parallel_core.measurement.result import Case

__all__ = [
    "ADDING",
    "COPYING",
    "DIVIDING",
    "JOINING",
    "NATIVE_SUM",
    "ONE_ROOT",
    "SPREAD_ROOTS",
    "size_of_parts",
    "time_parts",
]

LARGEST = 2**24
"""Bytes of a vector, at most: larger ones show the same, and take most of a budget."""
SPREAD_ROOTS, ONE_ROOT, NATIVE_SUM = "parts on spread roots", "parts on one root", "the native sum of the same"
DIVIDING, COPYING, ADDING, JOINING = "dividing alone", "copying alone", "adding alone", "joining alone"


def size_of_parts(sizes: Mapping[int, object]) -> int:
    """Return the largest of the sizes that were timed which is not too large for its parts to be timed too."""
    return max((size for size in sizes if size <= LARGEST), default=min(sizes))


def time_parts(backend: Backend, size: int, rounds: int, budget: float) -> dict[str, Case]:
    """Time the sums of parts on spread roots and on one, the native one, and what the parts take alone.

    `size` is that of a vector of float32, in bytes. For rounds that fit the budget of seconds see `time_repeated`.
    """
    zeros = np.zeros(size // 4, dtype=np.float32)
    devices = backend.devices
    parts = [parts_of(backend, backend.asarray(zeros, device), len(devices)) for device in devices]
    # Parts that were copied before, so that adding them copies nothing.
    arrived = [
        [
            mine[k] if device == home else backend.copy_to(mine[k], home)
            for device, mine in zip(devices, parts, strict=True)
        ]
        for k, home in enumerate(devices)
    ]
    whole = [
        [backend.copy_to(mine[k], device) for k in range(len(devices))]
        for device, mine in zip(devices, parts, strict=True)
    ]
    vectors = [backend.asarray(zeros, device) for device in devices]

    def divide() -> tuple[Array, ...]:
        return tuple(part for vector in vectors for part in parts_of(backend, vector, len(devices)))

    def copy() -> tuple[Array, ...]:
        there = [
            backend.copy_to(mine[k], home)
            for k, home in enumerate(devices)
            for device, mine in zip(devices, parts, strict=True)
            if device != home
        ]
        back = [
            backend.copy_to(arrived[k][k], device)
            for k, home in enumerate(devices)
            for device in devices
            if device != home
        ]
        return (*there, *back)

    def add() -> tuple[Array, ...]:
        totals = []
        for terms in arrived:
            total, *others = terms
            for other in others:
                total = added(backend, total, other)
            totals.append(total)
        return tuple(totals)

    def join() -> tuple[Array, ...]:
        return tuple(joined(backend, own) for own in whole)

    sums: dict[str, Allreduce] = {SPREAD_ROOTS: sharded, ONE_ROOT: on_one_root, NATIVE_SUM: native}
    operations: dict[str, Operation] = {name: _summing(backend, algorithm, zeros) for name, algorithm in sums.items()}
    operations |= {DIVIDING: divide, COPYING: copy, ADDING: add, JOINING: join}
    takes = {name: partial(measure_each, backend, operation) for name, operation in operations.items()}
    return time_repeated(backend, takes, size, rounds, budget)


def _summing(backend: Backend, algorithm: Allreduce, zeros: np.ndarray) -> Operation:
    vectors = tuple(backend.asarray(zeros, device) for device in backend.devices)

    def reduce() -> tuple[Array, ...]:
        nonlocal vectors
        vectors = algorithm(backend, vectors)
        return vectors

    return reduce
