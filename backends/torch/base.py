"""What PyTorch's backends share. There is one final class for each way of scheduling, which `loading.py` chooses.

- `eager.py`: the calling thread computes, on CPUs and on GPUs. This is the synchronous engine.
- `worker_threads.py`: worker threads queue the work of CPUs.
- `cuda/threads.py`: worker threads issue to CUDA streams, for GPUs and for CPUs beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar, final

import numpy as np

from backends.arrays import check_equal, tree_leaves, tree_map
from backends.devices import HOST, Device
from backends.errors import BackendError
from backends.host import cores_of
from backends.protocol import Array, BaseBackend, Engine, FrameworkSettings, Ops
from backends.torch.streams.future import Failure
from backends.torch.streams.sharing import check_apart, extent, gives_new_memory, overlap
from backends.torch.streams.worker import WorkerStream

__all__ = [
    "PerDevice",
    "Setup",
    "TorchBackend",
    "allocate_like",
    "check_out",
    "clone",
    "detached_copy",
    "overwrite",
    "tensor",
]

Value = TypeVar("Value")


@dataclass(frozen=True)
class Setup:
    """What `loading.py` has imported and chosen."""

    torch: Any
    ops: Ops
    devices: tuple[Device, ...]
    note: str
    """What a reader of results should know about the choice of devices, if anything."""
    threads_per_device: int
    workers_per_device: int
    variants: tuple[str, ...]
    settings: FrameworkSettings


@final
class PerDevice(dict[Device, Value]):
    """What a backend has for each of its devices; asking for another device raises BackendError."""

    def __missing__(self, device: Device) -> NoReturn:
        raise BackendError(f"torch was loaded without the device {device}: choose one of {', '.join(map(str, self))}")


class TorchBackend(BaseBackend):
    """PyTorch on logical CPU devices, on GPUs, or on both. Abstract."""

    name = "torch"
    engine: Engine
    streams: tuple[WorkerStream, ...] = ()
    """All worker threads' queues, for the profiler to mark their work."""

    def __init__(self, setup: Setup, scheduler: str, cores_per_device: int | None) -> None:
        self._torch, self.ops = setup.torch, setup.ops
        self.version: str = setup.torch.__version__
        self.devices = setup.devices
        self.threads_per_device, self.workers_per_device = setup.threads_per_device, setup.workers_per_device
        self.variants, self.settings = setup.variants, setup.settings
        self.scheduler = "; ".join(filter(None, (scheduler, setup.note)))
        self.cores: Sequence[set[int]] = cores_of(self.devices, cores_per_device)
        self._limit_threads = partial(_limit_threads, setup.torch, setup.threads_per_device)
        self._limit_threads()

    def _fail(self, error: BaseException, place: str = "") -> NoReturn:
        if isinstance(error, Failure):
            super()._fail(error.error, f"on {error.device}")
        super()._fail(error, place)


def tensor(torch: Any, x: Any) -> Any:
    """Return a NumPy array as a tensor in ordinary memory of its own; raises BackendError for unknown dtypes."""
    # From a tensor of its own: PyTorch warns of arrays that cannot be written to. It refuses negative strides
    # and other orders of bytes.
    x = np.asarray(x)
    if any(stride < 0 for stride in x.strides) or not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="), order="C")
    try:
        return torch.tensor(x)
    except (TypeError, ValueError) as error:
        raise BackendError(f"torch has no arrays of {x.dtype}: convert it to another dtype, such as float32") from error


@gives_new_memory
def clone(x: Array) -> Array:
    """Copy a value from one CPU device to another, to new memory."""
    # `.to(device)` would return the same tensor: on one CPU, two devices would share their parameters.
    return tree_map(lambda leaf: leaf.clone(), x)


def overwrite(out: Array, x: Array) -> Array:
    """Copy a value to the memory of another, of the same shapes and dtypes, and return that."""
    check_out(out, x)
    return tree_map(lambda target, source: target.copy_(source), out, x)


def allocate_like(torch: Any, x: Array, device: Device) -> Array:
    """Allocate memory on a device for a copy of a tensor; page-locked for HOST."""
    return torch.empty_like(
        x,
        device=f"cuda:{device.index}" if device.kind == "gpu" else "cpu",
        memory_format=torch.contiguous_format,
        **({"pin_memory": True} if device == HOST else {}),
    )


def detached_copy(x: Array) -> Any:
    """Return a computed value as NumPy, in memory of its own."""
    return tree_map(lambda leaf: leaf.detach().to("cpu", copy=True).numpy(), x)


def _limit_threads(torch: Any, threads: int) -> None:
    # The setting is the calling thread's own: without it, every worker would use all cores. But a thread's first use of
    # OpenMP would replace it by what was set last, in any thread; asking for the number counts as first use.
    torch.get_num_threads()
    torch.set_num_threads(threads)


def check_out(out: Array, x: Array) -> None:
    targets, sources = list(tree_leaves(out)), list(tree_leaves(x))
    for target, source in zip(targets, sources, strict=True):
        check_equal((source, target), "copy_to with out")
    check_apart(out)
    places = list(map(extent, targets))
    for target, source, own in zip(targets, sources, places, strict=True):
        # An array may be copied to itself, and nowhere else where one is still to be read.
        itself = extent(source) == own and source.stride() == target.stride()
        if overlap([extent(source)], [place for place in places if not (itself and place is own)]):
            raise ValueError("out= must not share memory with what is copied: copy to new memory first")
