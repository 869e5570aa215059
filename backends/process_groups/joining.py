"""Join a group: find the framework's engine between processes, meet the other ranks, and compare what everyone is."""

from collections.abc import Callable

import numpy as np

from backends.errors import BackendError
from backends.process_groups.agreement import agree
from backends.process_groups.group import Group
from backends.process_groups.grouped_backend import GroupedBackend
from backends.process_groups.messages import gather
from backends.process_groups.rendezvous import Rendezvous
from backends.protocol import Backend
from backends.registry import offered, package_version

__all__ = ["check_group", "join"]


def check_group(name: str) -> None:
    """Raise BackendError, in one line, if a backend has no engine between processes."""
    _find(name)


def join(local: Backend, where: Rendezvous, on_exchange: Callable[[int], object] = lambda _: None) -> GroupedBackend:
    """Meet the other processes and return the backend of all of them.

    Blocks until all are there. Raises BackendError for a backend that cannot join, GroupError if a process does not
    come, and DisagreementError if they run different programs.
    """
    if len({device.kind for device in local.devices}) > 1 or any(d.stream is not None for d in local.devices):
        raise BackendError(
            f"{', '.join(map(str, local.devices))} cannot be a process's share: let each have only CPUs, or whole GPUs"
        )
    group = _find(local.name)(local, where)
    statement = {
        "parallel-core": package_version(),
        local.name: local.version,
        "numpy": np.__version__,
        "the kind of device": local.devices[0].kind,
    }
    agree(group, statement)
    counts = [int(text) for text in gather(group, str(len(local.devices)).encode())]
    return GroupedBackend(local, group, counts, on_exchange)


def _find(name: str) -> Callable[[Backend, Rendezvous], Group]:
    known = offered("group")
    if name not in known:
        raise BackendError(f"{name} has no engine between processes (known: {', '.join(known)})")
    make: Callable[[Backend, Rendezvous], Group] = known[name]()
    return make
