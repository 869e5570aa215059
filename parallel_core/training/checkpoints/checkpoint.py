"""A checkpoint as a value: the parameters in NumPy, the progress, and what is needed to continue the training."""

import json
import platform
from dataclasses import dataclass
from zlib import crc32

import msgspec
import numpy as np

from backends import Backend
from backends.registry import package_version
from parallel_core.training.batches import Settings, shuffled
from parallel_core.training.dataset import Dataset
from parallel_core.training.progress import CompletedSteps

__all__ = [
    "CHECKPOINT_FORMAT",
    "CHECKPOINT_SCHEMA",
    "Checkpoint",
    "Generator",
    "TrainingState",
    "Written",
    "checkpoint_of",
    "generator_of",
    "parameter_names",
]

CHECKPOINT_FORMAT = "parallel-core checkpoint"
CHECKPOINT_SCHEMA = 1


class Generator(msgspec.Struct, frozen=True):
    """NumPy's generator after it drew the order of the current epoch, and the CRC-32 of that order as int64.

    `state` is that of the bit generator, in JSON: its numbers have 128 bits.
    """

    state: str
    order: int


class Written(msgspec.Struct, frozen=True):
    """The backend that wrote a checkpoint, and the versions of all that took part."""

    backend: str
    version: str
    parallel_core: str
    numpy: str
    python: str


class TrainingState(msgspec.Struct, frozen=True):
    """All of a checkpoint but the arrays; in the file it is JSON.

    `epoch`, from 1, is the current one, and `step` steps of it are done: both repeat `progress`, for readers. `data` is
    the CRC-32 of the training images and labels.
    """

    format: str
    schema: int
    settings: Settings
    epoch: int
    step: int
    progress: CompletedSteps = msgspec.field(name="position")
    generator: Generator
    data: int
    written: Written


@dataclass(frozen=True)
class Checkpoint:
    """A training that can be continued. The parameters have the shapes of `lenet.shapes`, float32."""

    state: TrainingState
    parameters: tuple[np.ndarray, ...]

    @property
    def origin(self) -> str:
        """How far the training was, and who wrote it."""
        written = self.state.written
        return f"after {len(self.state.progress.losses):,} steps, written by {written.backend} {written.version}"


def parameter_names(parameters: int) -> tuple[str, ...]:
    """Return the parameters' names: `1.weight`, `1.bias`, `2.weight`, …, layer by layer."""
    return tuple(f"{place // 2 + 1}.{('weight', 'bias')[place % 2]}" for place in range(parameters))


def checkpoint_of(
    backend: Backend, parameters: tuple[np.ndarray, ...], settings: Settings, data: Dataset, progress: CompletedSteps
) -> Checkpoint:
    """Make the checkpoint of a training; the parameters are one device's, all of whose steps are done."""
    state = TrainingState(
        format=CHECKPOINT_FORMAT,
        schema=CHECKPOINT_SCHEMA,
        settings=settings,
        epoch=progress.epoch,
        step=progress.step,
        progress=progress,
        generator=generator_of(settings, progress.epoch, data),
        data=data.checksum,
        written=Written(
            # PyTorch's version is more than a text.
            backend.name,
            str(backend.version),
            package_version(),
            np.__version__,
            platform.python_version(),
        ),
    )
    return Checkpoint(state, parameters)


def generator_of(settings: Settings, epoch: int, data: Dataset) -> Generator:
    """Draw an epoch's order and return the generator that drew it."""
    order, generator = shuffled(settings.seed, epoch, len(data.train_labels))
    return Generator(json.dumps(generator.bit_generator.state, sort_keys=True), crc32(order.astype("<i8").tobytes()))
