"""The seam between processes: what a framework's own engine must do for a group of them, and nothing else.

All processes of a group join it, and then call the same functions in the same order. Everything else, such as a barrier
or a gather, is composed of the sum (`messages.py`).
"""

from typing import Protocol

import numpy as np

from backends.errors import ComputationError
from backends.protocol import Array

__all__ = ["Group", "GroupError"]


class GroupError(ComputationError):
    """The group of processes broke: another one is gone, does not answer, or does something else.

    The cause lies in another process, which reports it itself if it still can.
    """


class Group(Protocol):
    """Processes that were joined by a framework's engine; this one is `rank` of `size`."""

    rank: int
    size: int
    transport: str
    """The engine in a word: `gloo`, `nccl`, `dist_sync`."""
    hosts: tuple[str, ...]
    """The name of each rank's host."""

    def sum(self, x: Array) -> Array:
        """Enqueue the sum over all processes of a value on this process's first device; `x` is consumed.

        Arrays of a tuple are one exchange. All processes give equal shapes and dtypes.
        """

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        """Sum a float32 array over all processes, and block until it is computed. Raises GroupError."""

    def waitall(self) -> None:
        """Block until all sums are done. Raises GroupError if one failed."""

    def close(self) -> None:
        """Leave the group in good order, together with all other processes."""
