"""The bytes of a checkpoint: a NumPy archive of the parameters and the state, all of it checked when it is read."""

import io
import zipfile
from typing import NoReturn

import msgspec
import numpy as np

from parallel_core.errors import MeasurementError
from parallel_core.training.checkpoints.checkpoint import (
    CHECKPOINT_FORMAT,
    CHECKPOINT_SCHEMA,
    Checkpoint,
    TrainingState,
    parameter_names,
)
from parallel_core.training.lenet import shapes

__all__ = ["STATE_ARRAY", "CheckpointError", "from_bytes", "to_bytes"]

STATE_ARRAY = "training"
"""The name of the array of bytes, uint8, that is the state in JSON."""


class CheckpointError(MeasurementError):
    """A checkpoint cannot be read or written; its text says what to do."""


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return the file's content."""
    text = msgspec.json.format(msgspec.json.encode(checkpoint.state), indent=1)
    arrays = dict(zip(parameter_names(len(checkpoint.parameters)), checkpoint.parameters, strict=True))
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
            text = _read_array(archive, STATE_ARRAY)
            state = _read_state(text.tobytes(), source)
            wanted = shapes(state.settings.width)
            arrays = tuple(_read_array(archive, name) for name in parameter_names(len(wanted)))
    except CheckpointError:
        raise
    # On bytes that are not theirs, msgspec, zipfile and NumPy raise nearly every kind of error.
    except Exception as error:
        reason = str(error).strip("'\"") or type(error).__name__
        _refuse(source, f"is no whole checkpoint ({reason})")
    for name, array, shape in zip(parameter_names(len(wanted)), arrays, wanted, strict=True):
        if array.dtype != np.float32 or array.shape != shape:
            _refuse(source, f"has {name} as {array.dtype} {array.shape}, not float32 {shape}")
        if not np.isfinite(array).all():
            _refuse(source, f"has numbers in {name} that are not finite")
    return Checkpoint(state, arrays)


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read one array of an archive; its checksum is verified first."""
    entry = archive.getinfo(f"{name}.npy")
    # A damaged size could ask for more memory than there is.
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise ValueError(f"{name} is compressed")
    return np.asarray(np.load(io.BytesIO(archive.read(entry)), allow_pickle=False))


def _read_state(text: bytes, source: str) -> TrainingState:
    """Read the state and check that it agrees with itself."""
    head = msgspec.json.decode(text)
    if not isinstance(head, dict) or head.get("format") != CHECKPOINT_FORMAT:
        _refuse(source, "is not a checkpoint of parallel-core")
    if head.get("schema") != CHECKPOINT_SCHEMA:
        _refuse(
            source,
            f"has schema {head.get('schema')}, and this version reads {CHECKPOINT_SCHEMA}",
            "update parallel-core",
        )
    state = msgspec.convert(head, TrainingState)
    progress = state.progress
    numbers = [epoch.number for epoch in progress.epochs]
    if (state.epoch, state.step) != (progress.epoch, progress.step) or numbers != list(range(1, progress.epoch)):
        raise ValueError(f"its epochs and steps contradict each other at epoch {state.epoch}, step {state.step}")
    if not state.settings.width >= 1 or state.settings.batch_size < 1:
        raise ValueError(f"its settings are impossible: {state.settings}")
    return state


def _refuse(
    source: str, reason: str, remedy: str = "take another copy of it, or remove it and start afresh"
) -> NoReturn:
    raise CheckpointError(f"{source} {reason}: {remedy}")
