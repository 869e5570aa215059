"""A backend that is one of several processes: the same verbs, whose sums go over all devices of all
of them.

Every process runs the same program on separate devices. Two verbs concern all processes:
`split_and_load` takes this process's share of the rows, and `allreduce` adds the sum over processes
to the sum over its own devices.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from backends.arrays import row_ranges, tree_leaves
from backends.base import DelegatingBackend
from backends.devices import HOST, Device
from backends.errors import BackendError
from backends.process_groups.group import Group, agree, gather
from backends.process_groups.rendezvous import Rendezvous
from backends.protocol import Array, Backend
from backends.registry import offered, package_version


@final
class GroupedBackend(DelegatingBackend):
    """A backend of this process, `inner`, in a group of processes.

    `device_counts` are the numbers of devices of each rank. `on_exchange(n)` is called when the
    n-th allreduce is launched.
    """

    def __init__(
        self,
        inner: Backend,
        group: Group,
        device_counts: Sequence[int],
        on_exchange: Callable[[int], object],
    ) -> None:
        super().__init__(inner)
        self.group, self.device_counts, self.on_exchange = group, tuple(device_counts), on_exchange
        self.exchanges = 0

    @property
    def scheduler(self) -> str:
        """Return the queue that does the work, and the engine that sums over processes."""
        return (
            f"{self.inner.scheduler}; sums over {self.group.size} processes by "
            f"{self.group.transport}"
        )

    def waitall(self) -> None:
        """Block until all work and all sums over processes are done."""
        # This process's devices come first: if one of them failed, the sums only show that.
        self.inner.waitall()
        self.group.waitall()

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        """Divide rows over the devices of all processes, and load this process's share."""
        counts = self.device_counts
        if tuple(devices) != self.devices:
            raise BackendError("the shares of several processes are of all their devices")
        first = sum(counts[: self.group.rank])
        rows_of_all_devices = row_ranges(len(x), sum(counts))
        rows_of_own_devices = rows_of_all_devices[first : first + len(devices)]
        return tuple(
            self.inner.asarray(x[rows], device)
            for rows, device in zip(rows_of_own_devices, devices, strict=True)
        )

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Sum over the devices of all processes, and return the sum on each device of this one."""
        # The backend sums a single value too, because it refuses what cannot be summed.
        sums = self.inner.allreduce(xs)
        self.exchanges += 1
        self.on_exchange(self.exchanges)
        devices = [self._device_of(x, number) for number, x in enumerate(sums)]
        # The group's engine takes a value on this process's first device.
        first_device = self.devices[0]
        if first_device in devices:
            local = sums[devices.index(first_device)]
        else:
            local = self.inner.copy_to(sums[0], first_device)
        total = self.group.sum(local)
        totals = []
        for device, x in zip(devices, sums, strict=True):
            is_total = x is local
            totals.append(total if is_total else self.inner.copy_to(total, device, out=x))
        return tuple(totals)

    def _device_of(self, x: Array, number: int) -> Device:
        """Return the device of a value; if arrays do not know theirs, the device of this number."""
        device_of = getattr(self.inner, "device_of", lambda _: None)
        first_array = next(tree_leaves(x), None)
        device = None if first_array is None else device_of(first_array)
        # A method of this name may be a plug-in's, for something else.
        if isinstance(device, Device) and device in (*self.devices, HOST):
            return device
        return self.devices[number]


def grouped(backend: Backend) -> GroupedBackend | None:
    """Return a backend as one of several processes; None if its process is alone."""
    return backend if isinstance(backend, GroupedBackend) else None


def check_group(name: str) -> None:
    """Raise BackendError, in one line, if a backend has no engine between processes."""
    _find(name)


def join(
    local: Backend, where: Rendezvous, on_exchange: Callable[[int], object] = lambda _: None
) -> GroupedBackend:
    """Meet the other processes and return a backend whose sums go over all of them.

    Blocks until all have come. Raises BackendError for a backend that cannot join, GroupError if a
    process does not come, and DisagreementError if the processes run different versions.
    """
    kinds = {device.kind for device in local.devices}
    has_streams = any(device.stream is not None for device in local.devices)
    if len(kinds) > 1 or has_streams:
        device_names = ", ".join(map(str, local.devices))
        raise BackendError(
            f"{device_names} cannot be a process's share: let each have only CPUs, or whole GPUs"
        )
    join_group = _find(local.name)
    group = join_group(local, where)
    statement = {
        "parallel-core": package_version(),
        local.name: local.version,
        "numpy": np.__version__,
        "the kind of device": local.devices[0].kind,
    }
    agree(group, statement)
    own_count = str(len(local.devices)).encode()
    device_counts = [int(count) for count in gather(group, own_count)]
    return GroupedBackend(local, group, device_counts, on_exchange)


def _find(name: str) -> Callable[[Backend, Rendezvous], Group]:
    """Return the function that joins a backend to its group; raises BackendError without one."""
    importers = offered("group")
    if name not in importers:
        raise BackendError(
            f"{name} runs in one process here: on several, use {' or '.join(importers)}"
        )
    return importers[name]()
