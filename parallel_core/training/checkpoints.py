"""Write a training to a file, and continue it in the same framework or another one: only if the
numbers stay the same.

The same means those of a training that was not interrupted. A checkpoint holds the parameters in
NumPy, the progress, and what is needed to continue the training. Its file is a NumPy archive, all
of which is checked when it is read.
"""

import io
import json
import platform
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np

from backends import Array, Backend
from backends.registry import package_version
from parallel_core.system import files
from parallel_core.system.errors import MeasurementError, RequestError
from parallel_core.training.batches import CompletedSteps, Settings, shuffled, steps_of
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters, shapes

FILE = "checkpoint.npz"
"""Its name in its directory."""
FORMAT = "parallel-core checkpoint"
SCHEMA = 1
STATE_ARRAY = "training"
"""The name of the array of bytes, uint8, that is the state in JSON."""
PARAMETERS = tuple(
    f"{layer}.{kind}" for layer in range(1, len(shapes()) // 2 + 1) for kind in ("weight", "bias")
)
"""The names of the arrays that are the parameters, layer by layer."""
FIXED_OPTIONS = {
    "batch_size": "--batch-size",
    "learning_rate": "--lr",
    "limit": "--limit",
    "seed": "--seed",
    "width": "--width",
}
"""Settings that must not change, with their options. How gradients are exchanged changes no
number.
"""


class CheckpointError(MeasurementError):
    """A checkpoint cannot be read or written; its text says what to do."""


class Generator(msgspec.Struct, frozen=True):
    """NumPy's generator after it drew the order of the current epoch, and the CRC-32 of that order
    as int64.
    """

    state: str
    """JSON of the bit generator's: its numbers have 128 bits."""
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

    `epoch`, from 1, is the current one, and `step` steps of it are done: both repeat `progress`,
    for readers. `data` is the CRC-32 of the training images and labels.
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
    """A training that can be continued.

    The parameters have the shapes of `lenet.shapes`, float32.
    """

    state: TrainingState
    parameters: tuple[np.ndarray, ...]

    @property
    def origin(self) -> str:
        """The state of the training, and who wrote it."""
        written = self.state.written
        return (
            f"after {len(self.state.progress.losses):,} steps, written by {written.backend} "
            f"{written.version}"
        )


def checkpoint_of(
    backend: Backend,
    parameters: tuple[np.ndarray, ...],
    settings: Settings,
    data: Dataset,
    progress: CompletedSteps,
) -> Checkpoint:
    """Make the checkpoint of a training.

    The parameters are one device's, all of whose steps are done.
    """
    # PyTorch's version is more than a text.
    versions = str(backend.version), package_version(), np.__version__, platform.python_version()
    generator = generator_of(settings, progress.epoch, data)
    written = Written(backend.name, *versions)
    epoch, step = progress.epoch, progress.step
    state = TrainingState(
        FORMAT, SCHEMA, settings, epoch, step, progress, generator, data.checksum, written
    )
    return Checkpoint(state, parameters)


def generator_of(settings: Settings, epoch: int, data: Dataset) -> Generator:
    """Draw an epoch's order and return the generator that drew it."""
    order, generator = shuffled(settings.seed, epoch, len(data.train_labels))
    return Generator(
        json.dumps(generator.bit_generator.state, sort_keys=True),
        crc32(order.astype("<i8").tobytes()),
    )


@dataclass(frozen=True)
class Checkpointing:
    """The checkpoint to continue from, and what to do with each new one.

    `resumed` is None for a training from the beginning. `keep` writes a checkpoint, and is None in
    a process that is to write nothing. It is called after each epoch, and with `every` after so
    many steps of one.
    """

    keep: Callable[[Checkpoint], object] | None = None
    every: int | None = None
    resumed: Checkpoint | None = None

    @property
    def start(self) -> CompletedSteps:
        """The steps that are done before."""
        return self.resumed.state.progress if self.resumed else CompletedSteps()

    def settings(self, wanted: Settings) -> Settings:
        """Return the settings of a training, with the checkpoint's length if none is given."""
        if self.resumed is None or wanted.epochs is not None:
            return wanted
        before = self.resumed.state.settings
        limit = before.limit if wanted.limit is None else wanted.limit
        return replace(wanted, epochs=before.epochs, limit=limit)

    def parameters(self, settings: Settings) -> tuple[np.ndarray, ...]:
        """Return the parameters that the training begins with."""
        return (
            self.resumed.parameters
            if self.resumed
            else initial_parameters(settings.seed, settings.width)
        )

    def write(
        self,
        backend: Backend,
        params: Sequence[Array],
        settings: Settings,
        data: Dataset,
        progress: CompletedSteps,
    ) -> None:
        """Keep the checkpoint of a training, all of whose steps are done, if any is to be kept."""
        if self.keep:
            self.keep(checkpoint_of(backend, backend.to_numpy(params[0]), settings, data, progress))


def check_resumable(checkpoint: Checkpoint, settings: Settings, data: Dataset) -> None:
    """Raise RequestError if settings, data or NumPy's order differ from those of the checkpoint.

    There may be more epochs than before. Raises CheckpointError if the checkpoint's epochs have
    another length.
    """
    state = checkpoint.state
    for name, option in FIXED_OPTIONS.items():
        values = (getattr(state.settings, name), getattr(settings, name))
        before, now = ("left out" if value is None else value for value in values)
        if before != now:
            raise RequestError(f"the checkpoint was trained with {option} {before}, and not {now}")
    begun = len(state.progress.epochs) + bool(state.step)
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
            "checkpoint was "
            "trained with: install that one"
        )
    steps = steps_of(data, settings)
    if state.step >= steps or any(len(epoch.losses) != steps for epoch in state.progress.epochs):
        raise CheckpointError(
            f"the checkpoint's epochs do not have {steps} steps: remove it and start afresh"
        )


def to_bytes(checkpoint: Checkpoint) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(checkpoint.state), indent=1)
    arrays = dict(zip(PARAMETERS, checkpoint.parameters, strict=True))
    stream = io.BytesIO()
    # savez takes its arrays as keyword arguments; none of these names is another argument's.
    np.savez(stream, **{STATE_ARRAY: np.frombuffer(text, np.uint8), **arrays})
    return stream.getvalue()


def from_bytes(content: bytes, source: str) -> Checkpoint:
    """Read a checkpoint. Raises CheckpointError, which calls it `source`, if it is not a whole one.

    Nothing in it is executed: arrays of objects are refused.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            state = _read_state(_read_array(archive, STATE_ARRAY).tobytes())
            arrays = tuple(_read_array(archive, name) for name in PARAMETERS)
        for name, array, shape in zip(
            PARAMETERS, arrays, shapes(state.settings.width), strict=True
        ):
            if array.dtype != np.float32 or array.shape != shape:
                raise ValueError(f"{name} is {array.dtype} {array.shape}, not float32 {shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"numbers in {name} are not finite")
    # On bytes that are not theirs, msgspec, zipfile and NumPy raise nearly every kind of error.
    except Exception as error:
        reason = str(error).strip("'\"") or type(error).__name__
        raise CheckpointError(
            f"{source} is no whole checkpoint ({reason}): take another copy of it, or remove it "
            "and start afresh"
        ) from error
    return Checkpoint(state, arrays)


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read one array of an archive; its checksum is verified first."""
    entry = archive.getinfo(f"{name}.npy")
    # A damaged size could ask for more memory than there is.
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise ValueError(f"{name} is compressed")
    return np.asarray(np.load(io.BytesIO(archive.read(entry)), allow_pickle=False))


def _read_state(text: bytes) -> TrainingState:
    """Read the state and check that it agrees with itself."""
    # Another schema may have other fields: it is named before they are looked for.
    head = msgspec.json.decode(text)
    if (head["format"], head["schema"]) != (FORMAT, SCHEMA):
        raise ValueError(
            f"it is {head['format']!r} of schema {head['schema']}; read here: {FORMAT!r} of "
            f"{SCHEMA}"
        )
    state = msgspec.convert(head, TrainingState)
    progress = state.progress
    numbers = [epoch.number for epoch in progress.epochs]
    if (state.epoch, state.step) != (progress.epoch, progress.step) or numbers != list(
        range(1, progress.epoch)
    ):
        raise ValueError(
            f"its epochs and steps contradict each other at epoch {state.epoch}, step {state.step}"
        )
    if not state.settings.width >= 1 or state.settings.batch_size < 1:
        raise ValueError(f"its settings are impossible: {state.settings}")
    return state


def open_directory(directory: Path, resume: bool) -> Checkpoint | None:
    """Make the directory, check that it can be written to, and read the checkpoint in it.

    None if there is none. Raises RequestError if there is one and it is not to be resumed, and
    CheckpointError if it cannot be read.
    """
    path = directory / FILE
    files.make_folder(directory)
    files.check_writable(path)
    exists = path.exists()
    if exists and not resume:
        raise RequestError(f"{path} exists: add --resume to go on from it, or remove it")
    files.remove_unfinished(path)
    return read_checkpoint(directory) if exists else None


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read the checkpoint in a directory.

    Raises CheckpointError if there is none, or it cannot be read.
    """
    path = directory / FILE
    if not path.is_file():
        raise CheckpointError(
            f"there is no {path}: `run data-parallel --checkpoint {directory}` writes one"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}: give yourself access to it"
        ) from error
    return from_bytes(content, str(path))


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all.

    Raises CheckpointError, and then leaves an older one as it was.
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
