"""The vectors that are summed: their sizes in whole elements, what memory they take, how exact sums must be."""

from collections.abc import Sequence

from parallel_core.errors import RequestError
from parallel_core.fold_formatting__byte_sizes import write_size
from parallel_core.system.machine import describe_machine

__all__ = ["ITEM", "LARGEST_ERROR", "refuse_more_than_memory", "whole_elements"]

ITEM = 4
"""Bytes of a float32."""
HELD_AT_ONCE = 6
"""So many vectors per device exist at the same time, at most: drawn ones, loaded ones, their parts and sums."""
LARGEST_ERROR = 1e-5


def whole_elements(sizes: Sequence[int]) -> tuple[int, ...]:
    """Round sizes down to whole elements, one at least; return them once each, in ascending order."""
    if not sizes:
        raise RequestError("no size is given")
    return tuple(sorted({max(1, size // ITEM) * ITEM for size in sizes}))


def refuse_more_than_memory(largest: int, devices: int) -> None:
    """Raise RequestError for vectors that this machine cannot hold."""
    needed, memory = HELD_AT_ONCE * devices * largest, describe_machine()["memory_bytes"]
    if needed > memory:
        raise RequestError(
            f"vectors of {write_size(largest)} on {devices} devices take about {needed / 1e9:.3g} GB of memory, "
            f"and this machine has {memory / 1e9:.3g} GB: choose smaller --sizes"
        )
