"""How a training keeps checkpoints, as the experiment sees it."""

from collections.abc import Callable
from dataclasses import dataclass

from parallel_core.training.checkpoints.checkpoint import Checkpoint

__all__ = ["Checkpointing"]


@dataclass(frozen=True)
class Checkpointing:
    """Where to go on from, and what to do with each new checkpoint.

    `resumed` is None for a training from the beginning. `keep` writes a checkpoint, and is None in a process
    that is to write nothing. One is kept after each epoch, and with `every` after so many steps of one.
    """

    keep: Callable[[Checkpoint], object] | None
    every: int | None = None
    resumed: Checkpoint | None = None
