"""What a training does with checkpoints, and whether it may go on from one: only if the numbers stay the same.

The same means those of a training that was not interrupted.
"""

from collections.abc import Callable
from dataclasses import dataclass

from parallel_core.errors import RequestError
from parallel_core.training.batches import Settings, steps_of
from parallel_core.training.checkpoints.checkpoint import Checkpoint, generator_of
from parallel_core.training.checkpoints.file_format import CheckpointError
from parallel_core.training.dataset import Dataset

__all__ = ["Checkpointing", "check_resumable"]

FIXED_OPTIONS = {
    "batch_size": "--batch-size",
    "learning_rate": "--lr",
    "limit": "--limit",
    "seed": "--seed",
    "width": "--width",
}
"""Settings that must not change, with their options. How gradients are exchanged changes no number."""


@dataclass(frozen=True)
class Checkpointing:
    """The checkpoint to continue from, and what to do with each new one.

    `resumed` is None for a training from the beginning. `keep` writes a checkpoint, and is None in a process that is
    to write nothing. It is called after each epoch, and with `every` after so many steps of one.
    """

    keep: Callable[[Checkpoint], object] | None
    every: int | None = None
    resumed: Checkpoint | None = None


def check_resumable(checkpoint: Checkpoint, settings: Settings, data: Dataset) -> None:
    """Raise RequestError if settings, data or NumPy's order differ from those of the checkpoint.

    There may be more epochs than before. Raises CheckpointError if the checkpoint's epochs have another length.
    """
    state = checkpoint.state
    for name, option in FIXED_OPTIONS.items():
        before, now = (
            "left out" if value is None else value for value in (getattr(state.settings, name), getattr(settings, name))
        )
        if before != now:
            raise RequestError(f"the checkpoint was trained with {option} {before}, and not {now}")
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
