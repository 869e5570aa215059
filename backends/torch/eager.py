"""PyTorch's synchronous engine: the calling thread computes, and every verb returns when its work is done.

On a CPU that is how PyTorch works: an operator runs where it is called. On a GPU, CUDA_LAUNCH_BLOCKING, which
`loading.py` sets, makes the host wait after every kernel. Values are tensors. Compare `worker_threads.py`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

from backends.arrays import check_equal, tree_map
from backends.devices import Device
from backends.protocol import Array, Engine, HostArray
from backends.torch.base import Setup, TorchBackend, allocate_like, detached_copy, overwrite
from backends.torch.sums import sum_own_shard

__all__ = ["EagerTorch"]

ON_CPUS = "none: eager PyTorch computes on the calling thread and has no queue on a CPU"
ON_GPUS = "CUDA streams: PyTorch itself enqueues on each GPU, and CUDA_LAUNCH_BLOCKING waits after every kernel"


@final
class EagerTorch(TorchBackend):
    """Plain eager PyTorch."""

    engine: Engine = "sync"

    def __init__(self, setup: Setup) -> None:
        kinds = {device.kind for device in setup.devices}
        schedulers = [text for kind, text in (("gpu", ON_GPUS), ("cpu", ON_CPUS)) if kind in kinds]
        super().__init__(setup, ", and ".join(schedulers), None)
        self._gpus = sorted({device.index for device in self.devices if device.kind == "gpu"})
        # CPU devices share one memory; a GPU has its own.
        self._load, self._clone, self._sum = _keep, _clone_on_cpu, partial(sum_own_shard, shard=0, shards=1)
        if self._gpus:
            self._load = self._clone = partial(_clone_to, self._torch)
            self._sum = partial(_sum_between_memories, self._torch)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        try:
            return fn(*args)
        except Exception as error:
            self._fail(error, "at launch")

    def wait(self, x: Array) -> Array:
        self._synchronize()
        return x

    def waitall(self) -> None:
        self._synchronize()

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        try:
            if out is None:
                return tree_map(lambda leaf: self._clone(leaf, device), x)
            return overwrite(out, x)
        except Exception as error:
            self._fail(error, f"on {device}")

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        self.launch(self._sum, tuple(xs))
        return tuple(xs)

    def asarray(self, x: HostArray, device: Device) -> Array:
        # From a tensor of its own: PyTorch warns of arrays that cannot be written to.
        return tree_map(lambda leaf: self._load(self._torch.tensor(leaf), device), x)

    def to_numpy(self, x: Array) -> Any:
        return detached_copy(self.wait(x))

    def _synchronize(self) -> None:
        # Copies between GPUs may still be under way; on CPUs nothing is.
        for gpu in self._gpus:
            try:
                self._torch.cuda.synchronize(gpu)
            except Exception as error:
                self._fail(error, f"on gpu:{gpu}")


def _keep(x: Array, _: Device) -> Array:
    return x


def _clone_on_cpu(x: Array, _: Device) -> Array:
    # `.to(device)` would return the same tensor: two devices would share their parameters.
    return x.clone()


def _clone_to(torch: Any, x: Array, device: Device) -> Array:
    return allocate_like(torch, x, device).copy_(x)


def _sum_between_memories(torch: Any, xs: tuple[Array, ...]) -> None:
    tree_map(partial(_gather_and_broadcast, torch), *xs)


def _gather_and_broadcast(torch: Any, total: Array, *terms: Array) -> None:
    check_equal((total, *terms))
    for term in terms:
        total.add_(term if term.device == total.device else torch.empty_like(total).copy_(term))
    for term in terms:
        term.copy_(total)
