"""Training that is kept in a file and gone on with, in the same framework or another one."""

from parallel_core.checkpoints.checkpoint import Checkpoint, Written, checkpoint_of
from parallel_core.checkpoints.checkpointing import Checkpointing
from parallel_core.checkpoints.directory import FILE, open_directory, write_checkpoint
from parallel_core.checkpoints.reading import CheckpointError, from_bytes
from parallel_core.checkpoints.resuming import check_resumable
from parallel_core.checkpoints.writing import to_bytes

__all__ = [
    "FILE",
    "Checkpoint",
    "CheckpointError",
    "Checkpointing",
    "Written",
    "check_resumable",
    "checkpoint_of",
    "from_bytes",
    "open_directory",
    "to_bytes",
    "write_checkpoint",
]
