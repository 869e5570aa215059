"""A backend that is one of several processes: the same verbs, whose sums go over all devices of all of them.

Every process runs the same program on devices of its own. Two verbs know of the others: `split_and_load` takes this
process's share of the rows, and `allreduce` adds the sum over processes to the sum over its own devices.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from backends.arrays import row_ranges
from backends.devices import Device
from backends.errors import BackendError
from backends.process_groups.group import Group
from backends.protocol import Array, Backend, HostArray

__all__ = ["GroupedBackend"]


@final
class GroupedBackend:
    """A backend of this process, `local`, in a group; `device_counts` are the devices of each rank.

    `on_exchange(n)` is called when the n-th allreduce is launched.
    """

    def __init__(
        self, local: Backend, group: Group, device_counts: Sequence[int], on_exchange: Callable[[int], object]
    ) -> None:
        self.local, self.group, self.device_counts, self.on_exchange = local, group, tuple(device_counts), on_exchange
        self.name, self.version, self.engine, self.ops = local.name, local.version, local.engine, local.ops
        self.devices, self.cores = local.devices, local.cores
        self.threads_per_device, self.workers_per_device = local.threads_per_device, local.workers_per_device
        self.settings, self.variants = local.settings, local.variants
        self.exchanges = 0

    @property
    def scheduler(self) -> str:
        return f"{self.local.scheduler}; sums over {self.group.size} processes by {self.group.transport}"

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        return self.local.launch(fn, *args)

    def wait(self, x: Array) -> Array:
        return self.local.wait(x)

    def waitall(self) -> None:
        # The own devices come first: if one of them failed, the sums only show the consequence.
        self.local.waitall()
        self.group.waitall()

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        return self.local.copy_to(x, device, out)

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        counts = self.device_counts
        if tuple(devices) != self.devices:
            raise BackendError("the shares of several processes are of all their devices")
        first = sum(counts[: self.group.rank])
        own = row_ranges(len(x), sum(counts))[first : first + len(devices)]
        return tuple(self.local.asarray(x[rows], device) for rows, device in zip(own, devices, strict=True))

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        # A single value too: the backend refuses what cannot be summed.
        first, *others = self.local.allreduce(xs)
        self.exchanges += 1
        self.on_exchange(self.exchanges)
        total = self.group.sum(first)
        rest = zip(self.devices[1:], others, strict=False)
        return (total, *(self.local.copy_to(total, device, out=x) for device, x in rest))

    def asarray(self, x: HostArray, device: Device) -> Array:
        return self.local.asarray(x, device)

    def to_numpy(self, x: Array) -> Any:
        return self.local.to_numpy(x)
