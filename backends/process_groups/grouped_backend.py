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
        # The own devices come first: if one of them failed, the sums only show the consequence.
        self.inner.waitall()
        self.group.waitall()

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        counts = self.device_counts
        if tuple(devices) != self.devices:
            raise BackendError("the shares of several processes are of all their devices")
        first = sum(counts[: self.group.rank])
        own = row_ranges(len(x), sum(counts))[first : first + len(devices)]
        return tuple(
            self.inner.asarray(x[rows], device) for rows, device in zip(own, devices, strict=True)
        )

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        # A single value too: the backend refuses what cannot be summed.
        sums = self.inner.allreduce(xs)
        self.exchanges += 1
        self.on_exchange(self.exchanges)
        placed = [(self._device_of(x, place), x) for place, x in enumerate(sums)]
        first = self.devices[0]
        own = next((x for device, x in placed if device == first), None)
        if own is None:
            own = self.inner.copy_to(sums[0], first)
        total = self.group.sum(own)
        return tuple(
            total if x is own else self.inner.copy_to(total, device, out=x) for device, x in placed
        )

    def _device_of(self, x: Array, place: int) -> Device:
        """Return the device of a value; if arrays do not know it, that of this place among the
        devices.
        """
        device_of = getattr(self.inner, "device_of", lambda _: None)
        device = next(map(device_of, tree_leaves(x)), None)
        # A method of this name may be a plug-in's, for something else.
        return (
            device
            if isinstance(device, Device) and device in (*self.devices, HOST)
            else self.devices[place]
        )


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
    if len({device.kind for device in local.devices}) > 1 or any(
        d.stream is not None for d in local.devices
    ):
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
    known = offered("group")
    if name not in known:
        raise BackendError(f"{name} runs in one process here: on several, use {' or '.join(known)}")
    make: Callable[[Backend, Rendezvous], Group] = known[name]()
    return make
