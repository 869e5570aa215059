"""A group whose processes are threads of one: for what is composed of sums, whichever engine makes
them.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar, final

import numpy as np

from backends import Array
from backends.arrays import tree_map
from backends.process_groups import Group

Returned = TypeVar("Returned")


@final
class ThreadGroup:
    """A group, as one of its threads sees it. `sum_up(rank, x)` adds up an array of each thread."""

    transport = "threads"

    def __init__(
        self, rank: int, size: int, sum_up: Callable[[int, np.ndarray], np.ndarray]
    ) -> None:
        self.rank = rank
        self.size = size
        self.hosts = tuple(f"host {number}" for number in range(size))
        self._sum = partial(sum_up, rank)

    def sum(self, x: Array) -> Array:
        return tree_map(self._sum, x)

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        assert x.dtype == np.float32
        return self._sum(x)

    def waitall(self) -> None:
        pass

    def close(self) -> None:
        pass


def together(size: int, program: Callable[[Group], Returned]) -> list[Returned]:
    """Run a program in a thread for each rank of a group; return what they returned, by rank."""
    barrier = threading.Barrier(size, timeout=60)
    array_of_rank: dict[int, np.ndarray] = {}

    def sum_up(rank: int, x: np.ndarray) -> np.ndarray:
        array_of_rank[rank] = x
        barrier.wait()
        arrays = list(array_of_rank.values())
        assert len({array.shape for array in arrays}) == 1
        total = np.sum(arrays, axis=0, dtype=x.dtype)
        # Nobody replaces an array before all have summed.
        barrier.wait()
        return total

    def run(rank: int) -> Returned:
        return program(ThreadGroup(rank, size, sum_up))

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))
