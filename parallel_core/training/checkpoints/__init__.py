"""Write a training to a file, and continue it in the same framework or another one."""

from parallel_core.training.checkpoints.checkpoint import Checkpoint, Written, checkpoint_of
from parallel_core.training.checkpoints.directory import FILE, open_directory, read_checkpoint, write_checkpoint
from parallel_core.training.checkpoints.file_format import CheckpointError, from_bytes, to_bytes
from parallel_core.training.checkpoints.resuming import Checkpointing, check_resumable, continue_and_keep

__all__ = [
    "FILE",
    "Checkpoint",
    "CheckpointError",
    "Checkpointing",
    "Written",
    "check_resumable",
    "checkpoint_of",
    "continue_and_keep",
    "from_bytes",
    "open_directory",
    "read_checkpoint",
    "to_bytes",
    "write_checkpoint",
]
