"""PyTorch's asynchronous engine on GPUs, and on CPU devices beside them: worker threads issue to CUDA streams.

Here is what differs from `../worker_threads.py`, which has the other verbs. PyTorch enqueues on a GPU by itself, but on
one stream at a time, and only for the thread that issues. So each logical device on a GPU, be it all of the GPU or one
of several, gets workers that issue to CUDA streams of their own: one for computation, one for what arrives and one for
what leaves.
"""

from collections.abc import Sequence
from functools import partial
from typing import final

from backends.arrays import tree_map
from backends.devices import HOST, Device, same_memory
from backends.errors import BackendError
from backends.host import core_numbers
from backends.protocol import Array, HostArray, Setup
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE
from backends.torch.backend import PerDevice
from backends.torch.cuda.copies import CudaCopies, CudaLoads
from backends.torch.cuda.graphs import CudaGraphs
from backends.torch.cuda.streams import CudaStream, MemoryReaders
from backends.torch.streams.future import device_of, futures_in
from backends.torch.streams.worker import WorkerStream
from backends.torch.tensors import add_into, tensor
from backends.torch.variants import GRAPH_REPLAY
from backends.torch.worker_threads import WorkerThreadsTorch

SCHEDULER = "worker threads of parallel-core, to issue to a CUDA stream for each device on a GPU"


@final
class CudaThreadsTorch(WorkerThreadsTorch):
    """PyTorch on GPUs, whole or as several logical devices each, and on CPU devices beside them."""

    def __init__(self, setup: Setup) -> None:
        cpus = any(device.kind == "cpu" for device in setup.devices)
        also = " and to compute on CPUs, where eager PyTorch has no queue" if cpus else ""
        super().__init__(setup, f"{SCHEDULER}{also}")
        self.ops = CudaGraphs(self._torch).changing(self.ops, steps=GRAPH_REPLAY.name in self.variants)

    def _make_queues(self, shares: dict[Device, set[int]]) -> None:
        on_gpus = [device for device in self.devices if device.kind == "gpu"]
        gpus = sorted({device.index for device in on_gpus})
        names = {device: str(device) for device in self.devices if device.kind == "cpu"} | {HOST: "host"}
        shares = shares | {HOST: set(core_numbers())}
        torch, self._readers = self._torch, MemoryReaders()

        def host_queues(purpose: str) -> dict[Device, WorkerStream]:
            return {d: WorkerStream(d, f"{n} {purpose}", shares[d], self._limit_threads) for d, n in names.items()}

        def gpu_queues(purpose: str) -> dict[Device, CudaStream]:
            others = {gpu: [other for other in gpus if other != gpu] for gpu in gpus}
            return {d: CudaStream(torch.cuda, d, f"{d} {purpose}", self._readers, others[d.index]) for d in on_gpus}

        computing, host_copies = gpu_queues("compute issue"), host_queues("copy")
        by_source = COPY_ON_COMPUTE_QUEUE.name in self.variants
        arriving, leaving = (computing, computing) if by_source else (gpu_queues("copy in"), gpu_queues("copy out"))
        self._compute = PerDevice({**computing, **host_queues("compute")})
        self._copies_to = PerDevice(
            {
                device: CudaCopies(torch, device, host_copies.get(device), arriving, leaving, self._readers, by_source)
                for device in (*self.devices, HOST)
            }
        )
        self._loads = CudaLoads(torch, on_gpus, self._readers)
        copying = (*host_copies.values(), *arriving.values(), *leaving.values())
        self.streams = tuple(dict.fromkeys((*self._compute.values(), *copying)))

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        self._check_device(device_of(x))
        # `clone` and `overwrite` are for CPU devices; copies from and to GPUs are `CudaCopies`' own.
        if any(future.device != device for future in futures_in(out)):
            raise BackendError(f"out= is on {device_of(out)}, and the copy is to go to {device}: choose one of them")
        return super().copy_to(x, device, out)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        home, *_ = devices = self._devices_of(xs)
        for device in devices:
            self._check_device(device)
        first, *others = xs
        terms = [x if same_memory(home, device_of(x)) else self.copy_to(x, home) for x in others]
        total = self._compute[home].submit_consuming(self._readers.before(add_into), first, *terms)
        return (total, *(self.copy_to(total, device_of(x), out=x) for x in others))

    def asarray(self, x: HostArray, device: Device) -> Array:
        self._check_device(device)
        self._check_host_arrays(x)
        tensors = tree_map(partial(tensor, self._torch), x)
        try:
            return tree_map(lambda leaf: self._loads.load(leaf, device), tensors)
        except Exception as error:
            self._fail(error, f"on {device}")

    def _check_device(self, device: Device) -> None:
        self._compute[device]
