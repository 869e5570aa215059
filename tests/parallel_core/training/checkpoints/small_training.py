"""A small training, and what is needed to stop it anywhere and go on with it elsewhere."""

from collections.abc import Callable

import backends
from backends import Backend
from parallel_core import run_data_parallel
from parallel_core.measurement.result import Result
from parallel_core.training.batches import Settings
from parallel_core.training.checkpoints import Checkpoint, Checkpointing, from_bytes, to_bytes
from parallel_core.training.dataset import synthetic

__all__ = ["DATA", "SETTINGS", "StoppedError", "kept", "losses_of", "numpy", "resumed", "stop_after"]

DATA = synthetic("a test needs no more", train=100, test=5)
SETTINGS = Settings(epochs=2, batch_size=32)
"""Four steps an epoch, the last of them with fewer images."""


class StoppedError(Exception):
    """The training is killed here."""


def numpy(devices: int = 2) -> Backend:
    return backends.load("numpy", devices, threads_per_device=1)


def stop_after(kept_before: int, into: list[bytes]) -> Callable[[Checkpoint], None]:
    """Keep checkpoints in memory, and end the training at one of them."""

    def keep(checkpoint: Checkpoint) -> None:
        into.append(to_bytes(checkpoint))
        if len(into) == kept_before:
            raise StoppedError

    return keep


def kept(backend: Backend, settings: Settings = SETTINGS, every: int | None = None) -> list[bytes]:
    """Train to the end; return all checkpoints."""
    files: list[bytes] = []
    run_data_parallel(backend, data=DATA, settings=settings, checkpoints=Checkpointing(stop_after(-1, files), every))
    return files


def losses_of(result: Result) -> tuple[float, ...]:
    return tuple(result.series["loss"])


def resumed(backend: Backend, content: bytes, settings: Settings = SETTINGS) -> Result:
    """Go on with a training to its end."""
    checkpoint = from_bytes(content, "checkpoint")
    checkpoints = Checkpointing(stop_after(-1, []), None, checkpoint)
    return run_data_parallel(backend, data=DATA, settings=settings, checkpoints=checkpoints)
