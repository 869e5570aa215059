"""A group whose processes are threads of one: for what is composed of sums, whichever engine makes them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, final

import numpy as np

from backends import Array
from backends.arrays import tree_map
from backends.process_groups import Group

Returned = TypeVar("Returned")


@final
class ThreadGroup:
    """One of the threads that `together` starts."""

    transport = "threads"

    def __init__(self, rank: int, meeting: "Meeting") -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting
        self.hosts = tuple(f"host {rank}" for rank in range(meeting.size))

    def sum(self, x: Array) -> Array:
        return tree_map(lambda leaf: self._meeting.sum(self.rank, leaf), x)

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        assert x.dtype == np.float32
        return self._meeting.sum(self.rank, x)

    def waitall(self) -> None:
        pass

    def close(self) -> None:
        pass


@final
class Meeting:
    """Where threads add up their arrays."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._all_here = threading.Barrier(size, timeout=60)
        self._arrays: dict[int, np.ndarray] = {}

    def sum(self, rank: int, x: np.ndarray) -> np.ndarray:
        self._arrays[rank] = x
        self._all_here.wait()
        assert len({array.shape for array in self._arrays.values()}) == 1
        total = np.sum(list(self._arrays.values()), axis=0, dtype=x.dtype)
        self._all_here.wait()
        return total


def together(size: int, program: Callable[[Group], Returned]) -> list[Returned]:
    """Run a program in each process of a group; return what they returned, by rank."""
    meeting = Meeting(size)
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(lambda rank: program(ThreadGroup(rank, meeting)), range(size)))
