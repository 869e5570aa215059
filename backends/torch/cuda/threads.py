"""PyTorch's asynchronous engine on GPUs, and on CPU devices beside them: worker threads issue to
CUDA streams.

Compare `../worker_threads.py`. PyTorch enqueues on a GPU by itself, but on one stream at a time,
and only for the thread that issues. So each logical device on a GPU, be it all of the GPU or one of
several, gets workers that issue to separate CUDA streams: one for computation, one for what arrives
and one for what leaves.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

from backends.arrays import tree_leaves, tree_map
from backends.devices import HOST, Device, elsewhere, same_memory
from backends.errors import BackendError
from backends.host import core_numbers
from backends.protocol import Array, HostArray, Setup
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE
from backends.torch import GRAPH_REPLAY
from backends.torch.backend import PerDevice, TorchBackend
from backends.torch.cuda.copies import CudaCopies, CudaLoads
from backends.torch.cuda.graphs import CudaGraphs
from backends.torch.cuda.streams import CudaStream, MemoryReaders
from backends.torch.streams.future import Failure, Future, device_of, futures_in, resolve
from backends.torch.streams.worker import WorkerStream, first_error
from backends.torch.tensors import add_into, clone, detached_copy, overwrite, tensor


@final
class CudaThreadsTorch(TorchBackend):
    """PyTorch on GPUs, whole or as several logical devices each, and on CPU devices beside them."""

    def __init__(self, setup: Setup) -> None:
        gpus = sorted({device.index for device in setup.devices if device.kind == "gpu"})
        on_cpus = [device for device in setup.devices if device.kind == "cpu"]
        also = " and to compute on CPUs, where eager PyTorch has no queue" if on_cpus else ""
        scheduler = (
            "worker threads of parallel-core, to issue to a CUDA stream for each device "
            f"on a GPU{also}"
        )
        super().__init__(setup, scheduler, setup.threads_per_device)
        self.ops = CudaGraphs(self._torch).changing(
            self.ops, steps=GRAPH_REPLAY.name in self.variants
        )
        self.readers = readers = MemoryReaders()
        shares = dict(zip(self.devices, self.cores, strict=False)) | {HOST: set(core_numbers())}

        def on_host(purpose: str) -> dict[Device, WorkerStream]:
            names = {device: str(device) for device in on_cpus} | {HOST: "host"}
            return {
                d: WorkerStream(d, f"{n} {purpose}", shares[d], self._limit_threads)
                for d, n in names.items()
            }

        def on_gpus(purpose: str) -> dict[Device, CudaStream]:
            others = {gpu: [other for other in gpus if other != gpu] for gpu in gpus}
            devices = [device for device in self.devices if device.kind == "gpu"]
            cuda = self._torch.cuda
            return {
                d: CudaStream(cuda, d, f"{d} {purpose}", readers, others[d.index]) for d in devices
            }

        computing, host_copies = on_gpus("compute issue"), on_host("copy")
        arriving, leaving = computing, computing
        by_source = COPY_ON_COMPUTE_QUEUE.name in self.variants
        if not by_source:
            arriving, leaving = on_gpus("copy in"), on_gpus("copy out")
        self._compute: PerDevice[WorkerStream] = PerDevice({**computing, **on_host("compute")})
        self._copies = CudaCopies(self._torch, host_copies, arriving, leaving, readers, by_source)
        self._loads = CudaLoads(self._torch, list(computing), readers)
        copying = (*host_copies.values(), *arriving.values(), *leaving.values())
        self.streams = tuple(dict.fromkeys((*self._compute.values(), *copying)))

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        return self._compute[_common_device(*args)].submit(fn, *args)

    def wait(self, x: Array) -> Array:
        for leaf in tree_leaves(x):
            try:
                resolve(leaf)
            except Failure as failure:
                self._fail(failure)
        return x

    def waitall(self) -> None:
        try:
            failed = first_error(self.streams)
            if not failed:
                self._loads.wait()
        except Failure as failure:
            self._fail(failure)
        if failed:
            error, device = failed
            self._fail(error, f"on {device}")

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        self._check_devices([device, device_of(x), *(future.device for future in futures_in(x))])
        if not isinstance(x, Future) and len({future.device for future in futures_in(x)}) > 1:
            # Each array goes by its own route; what overwrites then lies on one device.
            x = tree_map(lambda leaf: self.copy_to(leaf, device), x)
            if out is None:
                return x
        # `clone` and `overwrite` are for CPU devices; copies from and to GPUs are `CudaCopies`'
        # own.
        if out is None:
            return self._copies.submit(clone, x, device)
        for future in futures_in(out):
            if future.device != device:
                raise elsewhere(self.name, future.device, device)
        return self._copies.submit_consuming(overwrite, out, x, device)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        devices = self._devices_of(xs, Future, _common_device)
        self._check_devices(devices)
        first, *others = xs
        home = devices[0]
        terms = [x if same_memory(home, device_of(x)) else self.copy_to(x, home) for x in others]
        total = self._compute[home].submit_consuming(self.readers.before(add_into), first, *terms)
        return (total, *(self.copy_to(total, device_of(x), out=x) for x in others))

    def asarray(self, x: HostArray, device: Device) -> Array:
        self._check_devices([device])
        self._check_host_arrays(x)
        tensors = tree_map(partial(tensor, self._torch), x)
        try:
            return tree_map(lambda leaf: self._loads.load(leaf, device), tensors)
        except Exception as error:
            self._fail(error, f"on {device}")

    def to_numpy(self, x: Array) -> Any:
        value = resolve(self.wait(x))
        try:
            return detached_copy(value)
        except Exception as error:
            self._fail(error, f"on {device_of(x)}")

    def _check_devices(self, devices: Sequence[Device]) -> None:
        for device in devices:
            self._compute.named(device)


def _common_device(*values: Array) -> Device:
    """Return the device of the first array in values; raises BackendError if another one cannot be
    read there.
    """
    if len(values) == 1 and isinstance(values[0], Future):
        return values[0].device
    device = device_of(*values)
    for future in futures_in(*values):
        if future.device is not device and not same_memory(future.device, device):
            raise BackendError(
                f"torch computes on one device, not on {device} and {future.device}: copy to one "
                "first"
            )
    return device
