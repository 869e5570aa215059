"""Sum the devices' arrays where they lie, each device its own shard of all of them: an allreduce in one memory.

Logical CPU devices share one memory, so nothing has to travel. Of n devices each adds up one n-th of every array and
writes the sum back to all: reduce-scatter and all-gather in one pass, which reads and writes every array once. It goes
in blocks that fit a core's cache, so that the sum is still there when it is written to the other arrays.
"""

from collections.abc import Sequence
from typing import Any

from backends.fold_arrays__splitting import row_ranges

__all__ = ["check_equal", "sum_shard"]

BLOCK_BYTES = 2**19
"""With several arrays in a cache of 1 MiB a core; a quarter or twice of it is slower by a quarter."""


def check_equal(terms: Sequence[Any]) -> None:
    """Raise ValueError where arrays that are to be summed differ in shape or dtype."""
    first, *others = terms
    for term in others:
        if first.shape != term.shape or first.dtype != term.dtype:
            raise ValueError(
                f"allreduce needs equal arrays, not {tuple(first.shape)} {first.dtype} "
                f"and {tuple(term.shape)} {term.dtype}"
            )


def sum_shard(vectors: Sequence[Any], shard: int, shards: int) -> None:
    """Replace one of `shards` shards of every vector by the vectors' sum there.

    The vectors, one per device, are views of arrays in one memory: of NumPy or PyTorch, equal in length and dtype.
    """
    first, *others = vectors
    own = row_ranges(len(first), shards)[shard]
    length = max(1, BLOCK_BYTES // first.itemsize)
    for start in range(own.start, own.stop, length):
        block = slice(start, min(start + length, own.stop))
        total = first[block]
        for other in others:
            total += other[block]
        for other in others:
            other[block] = total
