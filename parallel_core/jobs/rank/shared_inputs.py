"""Checkpoints of several processes: rank 0 reads and writes them, for the others may not see its files."""

from collections.abc import Callable

from backends import Backend
from backends.process_groups import GroupedBackend, broadcast
from parallel_core.training.checkpoints import Checkpointing, from_bytes, to_bytes

__all__ = ["checkpointing_of"]


def checkpointing_of(backend: Backend, read: Callable[[], Checkpointing | None]) -> Checkpointing | None:
    """Return what `read` does, which only rank 0 of several processes calls; the others get its checkpoint sent."""
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
