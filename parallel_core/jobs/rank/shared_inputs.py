"""Checkpoints and data of several processes: rank 0 reads and writes the files, which other hosts may not see."""

from collections.abc import Callable

from backends import Backend
from backends.process_groups import Group, GroupedBackend, agree, broadcast
from parallel_core.training.checkpoints import Checkpointing, from_bytes, to_bytes
from parallel_core.training.dataset import Dataset

__all__ = ["agree_on_data", "checkpointing_of"]


def checkpointing_of(backend: Backend, read: Callable[[], Checkpointing | None]) -> Checkpointing | None:
    """Return what `read` returns. Of several processes only rank 0 calls it, and sends its checkpoint to the others."""
    if not isinstance(backend, GroupedBackend):
        return read()
    group = backend.group
    own = read() if group.rank == 0 else None
    content = broadcast(group, to_bytes(own.resumed) if own and own.resumed else b"")
    every = broadcast(group, str(own.every or 0).encode() if own else b"")
    if group.rank == 0:
        return own
    if not every:
        return None
    return Checkpointing(None, int(every) or None, from_bytes(content, "rank 0") if content else None)


def agree_on_data(group: Group, data: Dataset) -> None:
    """Compare all ranks' data by number and content; raises DisagreementError, in every rank, if they differ.

    The path of the data may differ from host to host.
    """
    description = {
        "the number of training images": len(data.train_labels),
        "the number of test images": len(data.test_labels),
        "the checksum of the training images": f"{data.checksum:08x}",
    }
    agree(group, description)
