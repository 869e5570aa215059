"""A small training, and what is needed to stop it anywhere and go on with it elsewhere."""

from functools import cache
from typing import Any

import pytest

import backends
from backends import Backend
from parallel_core import run_data_parallel
from parallel_core.experiments import training_steps
from parallel_core.measurement.result import Result
from parallel_core.training.batches import Settings
from parallel_core.training.checkpoints import Checkpoint, Checkpointing, from_bytes, to_bytes
from parallel_core.training.dataset import synthetic

__all__ = ["DATA", "SETTINGS", "as_read", "left_by_numpy", "numpy", "train"]

DATA = synthetic("a test needs no more", train=100, test=5)
SETTINGS = Settings(epochs=2, batch_size=32)
"""Four steps an epoch, the last of them with fewer images."""


def numpy() -> Backend:
    return backends.load("numpy", 2, threads_per_device=1)


def as_read(content: bytes) -> Checkpoint:
    return from_bytes(content, "file")


def train(
    backend: Backend,
    settings: Settings = SETTINGS,
    *,
    every: int | None = None,
    after: bytes | None = None,
    **options: Any,
) -> tuple[Result, list[bytes]]:
    """Train to the end, from the beginning or after a checkpoint; return the result and all checkpoints."""
    kept: list[bytes] = []
    checkpoints = Checkpointing(lambda one: kept.append(to_bytes(one)), every, as_read(after) if after else None)
    with pytest.MonkeyPatch.context() as patched:
        # What a step takes as units is another test's.
        patched.setattr(training_steps, "BARE_ROUNDS", 1)
        return run_data_parallel(backend, data=DATA, settings=settings, checkpoints=checkpoints, **options), kept


@cache
def left_by_numpy(every: int | None = None) -> tuple[bytes, ...]:
    """Train to the end, once for all tests; return all checkpoints."""
    return tuple(train(numpy(), every=every)[1])
