"""The file in a directory that holds the checkpoint."""

from pathlib import Path

from parallel_core.errors import RequestError
from parallel_core.system import files
from parallel_core.training.checkpoints.checkpoint import Checkpoint
from parallel_core.training.checkpoints.file_format import CheckpointError, from_bytes, to_bytes

__all__ = ["FILE", "open_directory", "read_checkpoint", "write_checkpoint"]

FILE = "checkpoint.npz"


def open_directory(directory: Path, resume: bool) -> bytes | None:
    """Make the directory, check that it can be written to, and return the checkpoint in it; None if there is none.

    Raises RequestError if there is one and it is not to be resumed, and CheckpointError if it cannot be read.
    """
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        exists = path.exists()
    except OSError as error:
        raise RequestError(f"cannot make the directory {directory}: {error.strerror}") from error
    if exists and not resume:
        raise RequestError(f"{path} exists: add --resume to go on from it, or remove it")
    files.check_writable(path)
    files.remove_unfinished(path)
    return _read(path) if exists else None


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read the checkpoint in a directory; raises CheckpointError if there is none, or it cannot be read."""
    path = directory / FILE
    if not path.is_file():
        raise CheckpointError(f"there is no {path}: `run data-parallel --checkpoint {directory}` writes one")
    return from_bytes(_read(path), str(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}: give yourself access to it") from error


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all. Raises CheckpointError, and then leaves an older one as it was."""
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
