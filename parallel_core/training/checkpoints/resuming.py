"""What a training does with checkpoints, and whether it may go on from one: only if the numbers stay the same.

The same means those of a training that was not interrupted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from backends import Array, Backend
from parallel_core.errors import RequestError
from parallel_core.training.batches import Settings, steps_of
from parallel_core.training.checkpoints.checkpoint import Checkpoint, checkpoint_of, generator_of
from parallel_core.training.checkpoints.file_format import CheckpointError
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import continue_training, ignore
from parallel_core.training.progress import CompletedSteps

__all__ = ["Checkpointing", "check_resumable", "continue_and_keep"]

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

    keep: Callable[[Checkpoint], object] | None = None
    every: int | None = None
    resumed: Checkpoint | None = None

    @property
    def start(self) -> CompletedSteps:
        """The steps that are done before."""
        return self.resumed.state.progress if self.resumed else CompletedSteps()

    def parameters(self, settings: Settings) -> tuple[np.ndarray, ...]:
        """Return the parameters that the training begins with."""
        return self.resumed.parameters if self.resumed else initial_parameters(settings.seed, settings.width)


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


def continue_and_keep(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    settings: Settings,
    checkpoints: Checkpointing,
    on_batch: Callable[[int, int], object] = ignore,
) -> Iterator[CompletedSteps]:
    """Continue a training from where its checkpoint was, and keep new ones; see `continue_training`."""
    start, every = checkpoints.start, checkpoints.every
    for progress in continue_training(backend, params, data, settings, on_batch, start, every):
        if checkpoints.keep:
            checkpoints.keep(checkpoint_of(backend, backend.to_numpy(params[0]), settings, data, progress))
        yield progress
