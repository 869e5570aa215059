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
from backends.devices import HOST, Device
from backends.errors import BackendError
from backends.process_groups.group import Group, agree, gather
from backends.process_groups.rendezvous import Rendezvous
from backends.protocol import Array, Backend, DelegatingBackend
from backends.registry import offered, package_version


@final
class GroupedBackend(DelegatingBackend):
    """A backend of this process, `inner`, in a group; `device_counts` are the devices of each rank.

    `on_exchange(n)` is called when the n-th allreduce is launched.
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
        return (
            f"{self.inner.scheduler}; sums over {self.group.size} processes by "
            f"{self.group.transport}"
        )

    def waitall(self) -> None:
        # This process's devices come first: if one of them failed, the sums only show that.
        self.inner.waitall()
        self.group.waitall()

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        counts = self.device_counts
        if tuple(devices) != self.devices:
            raise BackendError("the shares of several processes are of all their devices")
        devices_before = sum(counts[: self.group.rank])
        shares = row_ranges(len(x), sum(counts))[devices_before:]
        return tuple(
            self.inner.asarray(x[rows], device)
            for rows, device in zip(shares, devices, strict=False)
        )

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        # A single value too: the backend refuses what cannot be summed.
        sums = self.inner.allreduce(xs)
        self.exchanges += 1
        self.on_exchange(self.exchanges)
        devices = [self._device_of(x, number) for number, x in enumerate(sums)]
        # The group's engine takes a value on this process's first device.
        home = self.devices[0]
        is_there = home in devices
        local = sums[devices.index(home)] if is_there else self.inner.copy_to(sums[0], home)
        total = self.group.sum(local)
        return tuple(
            total if x is local else self.inner.copy_to(total, device, out=x)
            for device, x in zip(devices, sums, strict=True)
        )

    def _device_of(self, x: Array, number: int) -> Device:
        """Return the device of a value; if arrays do not know theirs, the device of this number."""
        device_of = getattr(self.inner, "device_of", lambda _: None)
        device = next(map(device_of, tree_leaves(x)), None)
        # A method of this name may be a plug-in's, for something else.
        if isinstance(device, Device) and device in (*self.devices, HOST):
            return device
        return self.devices[number]


def check_group(name: str) -> None:
    """Raise BackendError, in one line, if a backend has no engine between processes."""
    _find(name)


def join(
    local: Backend, where: Rendezvous, on_exchange: Callable[[int], object] = lambda _: None
) -> GroupedBackend:
    """Meet the other processes and return the backend of all of them.

    Blocks until all are there. Raises BackendError for a backend that cannot join, GroupError if a
    process does not come, and DisagreementError if they run different programs.
    """
    kinds = {device.kind for device in local.devices}
    has_streams = any(device.stream is not None for device in local.devices)
    if len(kinds) > 1 or has_streams:
        raise BackendError(
            f"{', '.join(map(str, local.devices))} cannot be a process's share: let each have only "
            "CPUs, or whole GPUs"
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
    """Return the function that joins a backend to its group."""
    offers = offered("group")
    if name not in offers:
        raise BackendError(
            f"{name} runs in one process here: on several, use {' or '.join(offers)}"
        )
    joins: Callable[[Backend, Rendezvous], Group] = offers[name]()
    return joins
