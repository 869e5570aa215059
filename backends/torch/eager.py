"""PyTorch's synchronous engine: the calling thread computes, and every verb returns when its work
is done.

On a CPU that is how PyTorch works: an operator runs where it is called. On a GPU,
CUDA_LAUNCH_BLOCKING, which `backend.py` sets, makes the host wait after every kernel. Values are
tensors. Compare `worker_threads.py`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

from backends.arrays import tree_leaves, tree_map
from backends.base import Setup
from backends.devices import HOST, Device, elsewhere, foreign, same_memory
from backends.errors import BackendError
from backends.protocol import Array, HostArray
from backends.torch.backend import PerDevice, TorchBackend
from backends.torch.streams.future import NO_ARRAY
from backends.torch.tensors import (
    allocate_like,
    check_sum,
    detached_copy,
    overwrite,
    sum_own_shard,
    tensor,
)

ON_CPUS = "none: eager PyTorch computes on the calling thread and has no queue on a CPU"
ON_GPUS = (
    "CUDA streams: PyTorch itself enqueues on each GPU, and CUDA_LAUNCH_BLOCKING waits after "
    "every kernel"
)


@final
class EagerTorch(TorchBackend):
    """Plain eager PyTorch."""

    def __init__(self, setup: Setup) -> None:
        kinds = {device.kind for device in setup.devices}
        schedulers = []
        if "gpu" in kinds:
            schedulers.append(ON_GPUS)
        if "cpu" in kinds:
            schedulers.append(ON_CPUS)
        super().__init__(setup, ", and ".join(schedulers), None)
        self._gpus = sorted({device.index for device in self.devices if device.kind == "gpu"})
        # CPU devices share one memory; a GPU has its own.
        self._load: PerDevice[Callable[[Array], Array]] = PerDevice(
            dict.fromkeys(self.devices, lambda x: x)
        )
        self._clone: PerDevice[Callable[[Array], Array]] = PerDevice(
            dict.fromkeys(self.devices, _clone_on_cpu)
        )
        self._sum = partial(sum_own_shard, shard=0, shards=1)
        if self._gpus:
            clone_to_device: PerDevice[Callable[[Array], Array]] = PerDevice()
            for device in (*self.devices, HOST):
                clone_to_device[device] = partial(_clone_to, self._torch, device)
            self._load = self._clone = clone_to_device
            self._sum = partial(_sum_between_memories, self._torch)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Call `fn(*args)`, which computes on the calling thread, or issues and waits."""
        # Most first arguments are arrays: asking them here saves a third of what a launch costs.
        array = self._torch.Tensor
        first_is_array = args and isinstance(args[0], array)
        if not first_is_array and not any(isinstance(x, array) for x in tree_leaves(args)):
            raise BackendError(NO_ARRAY)
        if self._gpus:
            self._refuse_foreign(args)
        try:
            return fn(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(error, "at launch")

    def wait(self, x: Array) -> Array:
        self._synchronize()
        return x

    def waitall(self) -> None:
        self._synchronize()

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Copy a value now, to new memory or to that of `out`."""
        copy = self._of_device(self._clone, device)
        self._check_copied(x, self._torch.Tensor)
        if self._gpus:
            self._refuse_foreign(x)
            self._check_out(out, device)
        try:
            return tree_map(copy, x) if out is None else overwrite(out, x)
        except Exception as error:
            self._fail(error, f"on {device}")

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Sum the values now, in their own memory."""
        self._check_values(xs, self._torch.Tensor)
        if not 0 < len(xs) <= len(self.devices):
            raise BackendError(
                f"torch sums one value per device, and not {len(xs)} on {len(self.devices)} devices"
            )
        self.launch(self._sum, tuple(xs))
        return tuple(xs)

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy a NumPy array, or a tuple of them, to a device."""
        load = self._of_device(self._load, device)
        self._check_host_arrays(x)
        return tree_map(lambda leaf: load(tensor(self._torch, leaf)), x)

    def to_numpy(self, x: Array) -> Any:
        """Return a copy of a value as NumPy."""
        try:
            return detached_copy(self.wait(x))
        except Exception as error:
            self._fail(error)

    def _refuse_foreign(self, value: Array) -> None:
        """Raise BackendError for a tensor on a GPU of another backend.

        A tensor on a CPU does not know its device.
        """
        for leaf in tree_leaves(value):
            is_on_gpu = isinstance(leaf, self._torch.Tensor) and leaf.is_cuda
            if is_on_gpu and leaf.device.index not in self._gpus:
                raise foreign(self.name, Device("gpu", leaf.device.index), self.devices)

    def _check_out(self, out: Array | None, device: Device) -> None:
        """Raise BackendError if an array of `out` is not in the memory of a device."""
        if out is None:
            return
        for leaf in tree_leaves(out):
            device_of_out = self.device_of(leaf) or HOST
            if not same_memory(device_of_out, device):
                raise elsewhere(self.name, device_of_out, device)

    def _synchronize(self) -> None:
        """Block until all GPUs are done; raises ComputationError if one failed."""
        # Copies between GPUs may still be under way; on CPUs nothing is.
        for gpu in self._gpus:
            try:
                self._torch.cuda.synchronize(gpu)
            except Exception as error:
                self._fail(error, f"on gpu:{gpu}")


def _clone_on_cpu(x: Array) -> Array:
    """Return a copy of a tensor in new memory."""
    # `.to(device)` would return the same tensor: two devices would share their parameters.
    return x.clone()


def _clone_to(torch: Any, device: Device, x: Array) -> Array:
    """Return a copy of a tensor in the memory of a device."""
    return allocate_like(torch, x, device).copy_(x)


def _sum_between_memories(torch: Any, xs: tuple[Array, ...]) -> None:
    """Replace the values, which lie in several memories, by their sum."""
    for terms in check_sum(xs):
        _gather_and_broadcast(torch, *terms)


def _gather_and_broadcast(torch: Any, total: Array, *terms: Array) -> None:
    """Add tensors to `total`, and copy the sum to each of them."""
    for term in terms:
        is_beside_total = term.device == total.device
        total.add_(term if is_beside_total else torch.empty_like(total).copy_(term))
    for term in terms:
        term.copy_(total)
