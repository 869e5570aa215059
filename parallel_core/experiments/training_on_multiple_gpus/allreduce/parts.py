"""What adding up different parts on different devices is made of, and what it gains over adding all up on one.

Dividing, copying, adding and joining are each timed in isolation, alternately with the sums themselves. The same sum
with all parts added up on one device divides, copies and joins alike: only the place of the additions differs.
"""

from collections.abc import Sequence
from functools import partial, reduce
from operator import itemgetter

import numpy as np

from backends import Array
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import (
    added,
    joined,
    native,
    on_one_root,
    parts_of,
    sharded,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidth import case_name
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import (
    Operation,
    loaded,
    measure_each,
    summing,
    time_repeated,
)

__all__ = ["ONE_ROOT", "size_of_parts", "time_parts"]

LARGEST = 2**24
"""Bytes of a vector, at most: larger ones show the same, and take most of a budget."""
SPREAD_ROOTS, ONE_ROOT = "parts on spread roots", "parts on one root"
SUMS = {SPREAD_ROOTS: sharded, ONE_ROOT: on_one_root, "the native sum of the same": native}


def size_of_parts(sizes: Sequence[int]) -> int:
    """Return the largest of the sizes which is not too large for its parts to be timed too."""
    return max((size for size in sizes if size <= LARGEST), default=min(sizes))


def time_parts(trial: Trial, size: int, seconds: float) -> None:
    """Time the sums of parts on spread roots and on one, the native one, and what the parts take in isolation."""
    backend, zeros = trial.backend, np.zeros(size // 4, dtype=np.float32)
    devices, places = backend.devices, range(len(backend.devices))
    vectors = loaded(backend, zeros)
    parts = [parts_of(backend, vector, len(devices)) for vector in loaded(backend, zeros)]

    def gathered(place: int, source: int, part: int) -> Array:
        own = parts[source][part]
        return own if source == place else backend.copy_to(own, devices[place])

    # What was copied before, so that adding and joining copy nothing.
    arrived = [[gathered(root, source, root) for source in places] for root in places]
    whole = [[backend.copy_to(parts[place][part], devices[place]) for part in places] for place in places]
    crossing = [(place, root) for root in places for place in places if place != root]

    def divide() -> tuple[Array, ...]:
        return tuple(part for vector in vectors for part in parts_of(backend, vector, len(devices)))

    def copy() -> tuple[Array, ...]:
        there = [backend.copy_to(parts[place][root], devices[root]) for place, root in crossing]
        return (*there, *(backend.copy_to(arrived[root][root], devices[place]) for place, root in crossing))

    def add() -> tuple[Array, ...]:
        return tuple(reduce(partial(added, backend), terms) for terms in arrived)

    def join() -> tuple[Array, ...]:
        return tuple(joined(backend, own) for own in whole)

    operations: dict[str, Operation] = {name: summing(backend, algorithm, zeros) for name, algorithm in SUMS.items()}
    operations |= {"dividing alone": divide, "copying alone": copy, "adding alone": add, "joining alone": join}
    takes = {name: partial(measure_each, backend, operation) for name, operation in operations.items()}
    time_repeated(trial, takes, size, seconds)
    for name in operations:
        trial.found_by(f"{name.replace(' ', '_')}_seconds", itemgetter(case_name(name, size)))
    one, spread = (case_name(name, size) for name in (ONE_ROOT, SPREAD_ROOTS))
    trial.found_by("spread_roots_speedup", lambda times: times[one] / times[spread])
