"""Whether a training may go on from a checkpoint: only where the numbers will be those of an undisturbed one."""

from collections.abc import Callable
from dataclasses import dataclass

from parallel_core.errors import RequestError
from parallel_core.training.batches import Settings, steps_of
from parallel_core.training.checkpoints.checkpoint import Checkpoint, generator_of
from parallel_core.training.checkpoints.file_format import CheckpointError
from parallel_core.training.dataset import Dataset

__all__ = ["Checkpointing", "check_resumable"]


# By the names of their options. How gradients are exchanged changes no number.
FIXED = {
    "batch_size": "--batch-size",
    "learning_rate": "--lr",
    "limit": "--limit",
    "seed": "--seed",
    "width": "--width",
}


def check_resumable(checkpoint: Checkpoint, settings: Settings, data: Dataset) -> None:
    """Raise RequestError where settings, data or NumPy's order differ from those of the checkpoint.

    More epochs may be asked for than before. Raises CheckpointError where the checkpoint is of another epoch's length.
    """
    state = checkpoint.state
    for name, option in FIXED.items():
        before, now = getattr(state.settings, name), getattr(settings, name)
        if before != now:
            raise RequestError(f"the checkpoint was trained with {option} {_told(before)}, and not {_told(now)}")
    begun = len(state.progress.epochs) + bool(state.step)
    if settings.epochs < begun:
        raise RequestError(f"the checkpoint is in epoch {begun}: --epochs {settings.epochs} lies behind it")
    if state.data != data.checksum:
        raise RequestError(f"the checkpoint was trained on other images than these ({data.source}): look at --data-dir")
    if state.generator != generator_of(settings, state.epoch, data):
        raise RequestError(
            f"this NumPy draws another order of images than NumPy {state.written.numpy}, which the checkpoint was "
            "trained with: install that one"
        )
    steps = steps_of(data, settings)
    lengths = [len(epoch.losses) for epoch in state.progress.epochs]
    if state.step >= steps or any(length != steps for length in lengths):
        raise CheckpointError(f"the checkpoint's epochs do not have {steps} steps: remove it and start afresh")


def _told(value: object) -> str:
    return "left out" if value is None else str(value)


@dataclass(frozen=True)
class Checkpointing:
    """Where to go on from, and what to do with each new checkpoint.

    `resumed` is None for a training from the beginning. `keep` writes a checkpoint, and is None in a process
    that is to write nothing. One is kept after each epoch, and with `every` after so many steps of one.
    """

    keep: Callable[[Checkpoint], object] | None
    every: int | None = None
    resumed: Checkpoint | None = None
