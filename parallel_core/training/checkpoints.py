"""Checkpoints: write a training to a file, and continue it in the same framework or another one.

A training is continued only if its numbers will be those of a training without interruption. A
checkpoint holds the parameters in NumPy, the settings, the progress and the state of the generator.
Its file is a NumPy archive, whose checksums are verified when it is read.
"""

import io
import json
import platform
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np

from backends import Array, Backend
from backends.registry import package_version
from parallel_core.system import files
from parallel_core.system.errors import MeasurementError, RequestError
from parallel_core.training.batches import CompletedSteps, Settings, shuffled
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import shapes, start_of

FILE = "checkpoint.npz"
"""The name of a checkpoint's file in its directory."""
FORMAT = "parallel-core checkpoint"
SCHEMA = 1
STATE_ARRAY = "training"
"""The name of the uint8 array that holds the state as JSON."""
LAYERS = len(shapes()) // 2
PARAMETERS = tuple(
    f"{layer}.{kind}" for layer, kind in product(range(1, LAYERS + 1), ("weight", "bias"))
)
"""The names of the arrays of the parameters: `1.weight`, `1.bias`, `2.weight`, …"""
FIXED_OPTIONS = {
    "batch_size": "--batch-size",
    "learning_rate": "--lr",
    "limit": "--limit",
    "seed": "--seed",
    "width": "--width",
    "initial_scale": "--initial-scale",
}
"""The options of settings that must not change, by setting.

The setting `exchange` may change, for it changes no numbers.
"""


class CheckpointError(MeasurementError):
    """A checkpoint cannot be read or written; the message says what to do."""


class Generator(msgspec.Struct, frozen=True):
    """The state of NumPy's generator after it drew the order of the current epoch."""

    state: str
    """The bit generator's state as JSON text, because its numbers have 128 bits."""
    order: int
    """The CRC-32 of the order as int64."""


class Written(msgspec.Struct, frozen=True):
    """The backend that wrote a checkpoint, and the versions of all software that took part."""

    backend: str
    version: str
    parallel_core: str
    numpy: str
    python: str


class TrainingState(msgspec.Struct, frozen=True):
    """A checkpoint without its arrays; the file holds it as JSON."""

    format: str
    schema: int
    settings: Settings
    epoch: int
    """The number of the current epoch, from 1; it repeats `progress`, for readers of the file."""
    step: int
    """The number of completed steps of that epoch; it repeats `progress`, too."""
    progress: CompletedSteps = msgspec.field(name="position")
    generator: Generator
    data: int
    """The CRC-32 of the training images and labels."""
    written: Written


@dataclass(frozen=True)
class Checkpoint:
    """A training that can be continued.

    The parameters have the shapes of `lenet.shapes`, float32.
    """

    state: TrainingState
    parameters: tuple[np.ndarray, ...]

    @property
    def origin(self) -> str:
        """The progress and the writer: `after 120 steps, written by torch 2.8`."""
        steps = len(self.state.progress.losses)
        written = self.state.written
        return f"after {steps:,} steps, written by {written.backend} {written.version}"


def checkpoint_of(
    backend: Backend,
    parameters: tuple[np.ndarray, ...],
    settings: Settings,
    data: Dataset,
    progress: CompletedSteps,
) -> Checkpoint:
    """Make the checkpoint of a training; the parameters are those after its progress."""
    # PyTorch's version is a subclass of str, which msgspec does not encode.
    backend_version = str(backend.version)
    written = Written(
        backend=backend.name,
        version=backend_version,
        parallel_core=package_version(),
        numpy=np.__version__,
        python=platform.python_version(),
    )
    state = TrainingState(
        format=FORMAT,
        schema=SCHEMA,
        settings=settings,
        epoch=progress.epoch,
        step=progress.step,
        progress=progress,
        generator=generator_of(settings, progress.epoch, data),
        data=data.checksum,
        written=written,
    )
    return Checkpoint(state, parameters)


def generator_of(settings: Settings, epoch: int, data: Dataset) -> Generator:
    """Draw the order of an epoch's images, and return the state of its generator."""
    order, generator = shuffled(settings.seed, epoch, len(data.train_labels))
    state = json.dumps(generator.bit_generator.state, sort_keys=True)
    order_as_int64 = order.astype("<i8").tobytes()
    return Generator(state, crc32(order_as_int64))


@dataclass(frozen=True)
class Checkpointing:
    """The checkpoint to continue from, and the function that writes new ones."""

    keep: Callable[[Checkpoint], object] | None = None
    """A function that writes a checkpoint; None in a process that writes none."""
    every: int | None = None
    """The number of steps after which a checkpoint is written; None: only after each epoch."""
    resumed: Checkpoint | None = None
    """The checkpoint to continue from; None for a training from the beginning."""

    @property
    def start(self) -> CompletedSteps:
        """The steps that were completed before this run."""
        if self.resumed is None:
            return CompletedSteps()
        return self.resumed.state.progress

    def settings(self, wanted: Settings) -> Settings:
        """Return the wanted settings, with the checkpoint's scale, epochs and limit if none are
        wanted.
        """
        if self.resumed is None:
            return wanted
        before = self.resumed.state.settings
        wanted = replace(wanted, initial_scale=wanted.initial_scale or before.initial_scale)
        if wanted.epochs is not None:
            return wanted
        limit = before.limit if wanted.limit is None else wanted.limit
        return replace(wanted, epochs=before.epochs, limit=limit)

    def parameters(self, settings: Settings) -> tuple[np.ndarray, ...]:
        """Return the parameters that the training begins with: the checkpoint's, or new ones."""
        if self.resumed is not None:
            return self.resumed.parameters
        return start_of(settings)

    def write(
        self,
        backend: Backend,
        params: Sequence[Array],
        settings: Settings,
        data: Dataset,
        progress: CompletedSteps,
    ) -> None:
        """Write a checkpoint of a training whose launched steps are done, if this process does."""
        if self.keep is not None:
            parameters = backend.to_numpy(params[0])
            self.keep(checkpoint_of(backend, parameters, settings, data, progress))


def check_resumable(checkpoint: Checkpoint, settings: Settings, data: Dataset) -> None:
    """Raise RequestError if settings, data or NumPy's order differ from those of the checkpoint.

    There may be more epochs than before.
    """
    state = checkpoint.state
    for name, option in FIXED_OPTIONS.items():
        before, now = getattr(state.settings, name), getattr(settings, name)
        if before != now:
            before = "left out" if before is None else before
            now = "left out" if now is None else now
            raise RequestError(f"the checkpoint was trained with {option} {before}, and not {now}")
    begun = len(state.progress.epochs)
    if state.step:
        begun += 1
    if settings.last_epoch < begun:
        raise RequestError(
            f"the checkpoint is in epoch {begun}: --epochs {settings.last_epoch} lies behind it"
        )
    if state.data != data.checksum:
        raise RequestError(
            f"the checkpoint was trained on other images than these ({data.source}): look at "
            "--data-dir"
        )
    if state.generator != generator_of(settings, state.epoch, data):
        raise RequestError(
            f"this NumPy draws another order of images than NumPy {state.written.numpy}, which the "
            "checkpoint was trained with: install that one"
        )


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return the content of a checkpoint's file."""
    text = msgspec.json.format(msgspec.json.encode(checkpoint.state), indent=1)
    arrays = dict(zip(PARAMETERS, checkpoint.parameters, strict=True))
    stream = io.BytesIO()
    # savez takes arrays as keyword arguments. None of the names is one of its own arguments.
    np.savez(stream, **{STATE_ARRAY: np.frombuffer(text, np.uint8), **arrays})
    return stream.getvalue()


def from_bytes(content: bytes, source: str) -> Checkpoint:
    """Read a checkpoint from the content of a file; `source` is the file's name in messages.

    Raises CheckpointError if it is not a whole checkpoint. Nothing in it is executed: arrays of
    objects are refused.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            state = _read_state(_read_array(archive, STATE_ARRAY).tobytes())
            arrays = tuple(_read_array(archive, name) for name in PARAMETERS)
    # For other bytes, msgspec, zipfile and NumPy raise nearly every kind of error.
    except Exception as error:
        reason = str(error).strip("'\"") or type(error).__name__
        raise CheckpointError(
            f"{source} is no whole checkpoint ({reason}): take another copy of it, or remove it "
            "and start afresh"
        ) from error
    return Checkpoint(state, arrays)


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read one array of an archive, whose checksum zipfile verifies."""
    entry = archive.getinfo(f"{name}.npy")
    # A damaged size could ask for more memory than there is.
    is_stored = entry.compress_type == zipfile.ZIP_STORED
    if not is_stored or entry.file_size != entry.compress_size:
        raise ValueError(f"{name} is compressed")
    return np.asarray(np.load(io.BytesIO(archive.read(entry)), allow_pickle=False))


def _read_state(text: bytes) -> TrainingState:
    """Read the state from JSON; raises ValueError for another schema."""
    # The schema is checked before the fields, because another schema may have other fields.
    decoded = msgspec.json.decode(text)
    if decoded["format"] != FORMAT or decoded["schema"] != SCHEMA:
        raise ValueError(
            f"it is {decoded['format']!r} of schema {decoded['schema']}; read here: {FORMAT!r} of "
            f"{SCHEMA}"
        )
    return msgspec.convert(decoded, TrainingState)


def open_directory(directory: Path, resume: bool) -> Checkpoint | None:
    """Make a directory for checkpoints, and return the checkpoint in it; None if there is none.

    Raises RequestError if the directory cannot be written to, or holds a checkpoint that is not to
    be resumed, and CheckpointError if the checkpoint cannot be read.
    """
    path = directory / FILE
    files.make_folder(directory)
    files.check_writable(path)
    exists = path.exists()
    if exists and not resume:
        raise RequestError(f"{path} exists: add --resume to go on from it, or remove it")
    files.remove_unfinished(path)
    if not exists:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}: give yourself access to it"
        ) from error
    return from_bytes(content, str(path))


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all.

    If that fails, raises CheckpointError, and an older checkpoint stays as it was.
    """
    path = directory / FILE
    content = to_bytes(checkpoint)
    try:
        files.write_whole(path, lambda stream: stream.write(content))
    except OSError as error:
        kept = "the older one is whole" if path.exists() else "there is no older one"
        raise CheckpointError(
            f"cannot write {path} ({len(content):,} bytes): {error.strerror or error}; {kept}: "
            "make room there, then go on with --resume"
        ) from error
