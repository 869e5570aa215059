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
    """One of the threads that `together` starts; `sum_up` adds up an array of each."""

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
    """Run a program in each process of a group; return what they returned, by rank."""
    all_here = threading.Barrier(size, timeout=60)
    arrays: dict[int, np.ndarray] = {}

    def sum_up(rank: int, x: np.ndarray) -> np.ndarray:
        arrays[rank] = x
        all_here.wait()
        assert len({array.shape for array in arrays.values()}) == 1
        total = np.sum(list(arrays.values()), axis=0, dtype=x.dtype)
        all_here.wait()
        return total

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(lambda rank: program(ThreadGroup(rank, size, sum_up)), range(size)))
