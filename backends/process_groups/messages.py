"""Messages between processes, all composed of one sum: a barrier, a broadcast, a gather.

A byte travels as a float32, which holds it exactly, and the processes that send nothing add zeros. That takes four
times the bytes, of messages that are short and few, and needs nothing but the sum that every engine has.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from backends.process_groups.group import Group

__all__ = ["SumOnHost", "barrier", "broadcast", "gather", "gather_by"]

SumOnHost: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Sums a float32 array over all processes, and blocks."""


def barrier(group: Group) -> None:
    """Block until all processes are here."""
    group.sum_on_host(np.zeros(1, dtype=np.float32))


def broadcast(group: Group, content: bytes) -> bytes:
    """Give rank 0's bytes to every process; what the other processes pass is ignored."""
    mine = np.frombuffer(content if group.rank == 0 else b"", np.uint8)
    # A float32 is exact up to 2**24 only.
    high, low = group.sum_on_host(np.array(divmod(mine.size, 2**16), dtype=np.float32))
    return _sum_bytes(group.sum_on_host, mine, 0, int(high) * 2**16 + int(low))


def gather(group: Group, content: bytes) -> tuple[bytes, ...]:
    """Give every process what each of them passes, by rank."""
    return gather_by(group.sum_on_host, group.rank, group.size, content)


def gather_by(sum_on_host: SumOnHost, rank: int, size: int, content: bytes) -> tuple[bytes, ...]:
    """Gather by a sum, without a group."""
    lengths = np.zeros(size, dtype=np.float32)
    lengths[rank] = len(content)
    ends = np.cumsum(sum_on_host(lengths).astype(np.int64))
    starts = ends - np.diff(ends, prepend=0)
    joined = _sum_bytes(sum_on_host, np.frombuffer(content, np.uint8), int(starts[rank]), int(ends[-1]))
    return tuple(joined[start:end] for start, end in zip(starts, ends, strict=True))


def _sum_bytes(sum_on_host: SumOnHost, mine: np.ndarray, start: int, length: int) -> bytes:
    # Lengths are rounded up, because an engine may need to prepare each new one.
    numbers = np.zeros(1 << max(4, (length - 1).bit_length()), dtype=np.float32)
    numbers[start : start + mine.size] = mine
    return sum_on_host(numbers)[:length].astype(np.uint8).tobytes()
