"""PyTorch's asynchronous engine on GPUs. Read it beside `worker_threads.py`: same verbs and order.

On a GPU PyTorch has a queue: a CUDA stream. So nothing of ours stands between the caller and the
GPU: `launch` calls the function while the device's stream is the current one, and a value is a
tensor with the event that says when it is computed (`cuda/streams.py`). A logical device, be it all
of a GPU or one of several on it, is three streams: one that computes, one for what arrives, and one
for what leaves. What lies on HOST, the page-locked memory that GPUs copy from and to, is computed
by whoever calls.

CPU devices beside GPUs keep their worker threads, and between the two kinds a copy goes by way of
HOST. The CPU device's thread for copies does what would block the caller: it waits for the source
and copies from or to ordinary memory. Whoever launches work on what it brings waits until it is
issued.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

from backends.arrays import tree_leaves, tree_map
from backends.devices import HOST, Device, elsewhere
from backends.protocol import Array, HostArray, Setup
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE
from backends.torch import GRAPH_REPLAY
from backends.torch.backend import PerDevice, TorchBackend
from backends.torch.cuda.graphs import CudaGraphs
from backends.torch.cuda.labels import keep_bounds
from backends.torch.cuda.streams import (
    Calls,
    CudaArray,
    CudaStream,
    HostCalls,
    common_device,
    computed,
    devices_in,
    is_readable,
)
from backends.torch.streams.future import Failure, Future
from backends.torch.streams.sharing import gives_new_memory
from backends.torch.streams.worker import first_error
from backends.torch.tensors import (
    add_into,
    allocate_like,
    check_out,
    detached_copy,
    overwrite,
    page_locked,
)
from backends.torch.worker_threads import WorkerThreadsTorch


@final
class CudaStreamsTorch(TorchBackend):
    """PyTorch on GPUs, whole or as several logical devices each, and on CPU devices beside them."""

    def __init__(self, setup: Setup) -> None:
        on_cpus = tuple(device for device in setup.devices if device.kind == "cpu")
        on_gpus = tuple(device for device in setup.devices if device.kind == "gpu")
        scheduler = "CUDA streams, PyTorch's own queues, to which the caller issues"
        if on_cpus:
            scheduler += ", and worker threads of parallel-core on CPUs, where it has none"
        super().__init__(setup, scheduler, setup.threads_per_device)
        graphs, replays = CudaGraphs(self._torch), GRAPH_REPLAY.name in self.variants
        self.ops = graphs.changing(self.ops, steps=replays)
        self._replay = graphs.issue_step if replays else None

        def streams() -> PerDevice[Calls]:
            on_host: dict[Device, Calls] = dict.fromkeys((*on_cpus, HOST), HostCalls(self._torch))
            return PerDevice(on_host | {d: CudaStream(self._torch, d) for d in on_gpus})

        self._compute = self._arriving = self._leaving = streams()
        self._copies_by_source = COPY_ON_COMPUTE_QUEUE.name in self.variants
        if not self._copies_by_source:
            self._arriving, self._leaving = streams(), streams()
        # Without CPU devices it has no threads.
        self._cpus = WorkerThreadsTorch(replace(setup, devices=on_cpus))
        self.streams = self._cpus.streams

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        device = common_device(*args)
        stream = self._compute[device]
        if device in self._cpus.devices:
            return self._cpus.launch(fn, *args)
        if self._replay is not None:
            fn, args = self._replay, (fn, *args)
        try:
            return stream.issue(fn, args, [])
        except Failure as failure:
            self._fail(failure)

    def wait(self, x: Array) -> Array:
        for leaf in tree_leaves(x):
            try:
                computed(leaf)
            except Failure as failure:
                self._fail(failure)
        return x

    def waitall(self) -> None:
        # The threads come first, because they issue to the streams.
        if failed := first_error(self.streams):
            error, device = failed
            self._fail(error, f"on {device}")
        for streams in (self._compute, self._arriving, self._leaving):
            for stream in streams.values():
                self._try(stream.synchronize)

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        self._compute.named(device)
        source, *others = dict.fromkeys(devices_in(x))
        self._refuse_foreign(source, *others)
        if others:
            # Each array goes by its own route; what overwrites then lies on one device.
            x = tree_map(lambda leaf: self.copy_to(leaf, device), x)
            source = device
            if out is None:
                return x
        for place in () if out is None else devices_in(out):
            if place != device:
                raise elsewhere(self.name, place, device)
        on_cpus = self._cpus.devices
        if source in on_cpus and device in on_cpus:
            return self._cpus.copy_to(x, device, out)
        if source in on_cpus:
            copies = self._cpus.copies[source]
            return copies.submit(self._copy_from_cpu, x, device, out).on(device)
        if device in on_cpus:
            copies, on_host = self._cpus.copies[device], self.copy_to(x, HOST)
            if out is None:
                return copies.submit(_copy_to_cpu, on_host)
            return copies.submit_consuming(_overwrite_on_cpu, out, on_host)
        return self._try(self._copy, x, source, device, out)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        devices = self._devices_of(xs, CudaArray | Future, common_device)
        self._refuse_foreign(*devices)
        not_on_cpus = [place for place, d in enumerate(devices) if d not in self._cpus.devices]
        if not not_on_cpus:
            return self._cpus.allreduce(xs)
        home = not_on_cpus[0]
        gpu, first = devices[home], xs[home]
        others = [(x, device) for x, device in zip(xs, devices, strict=True) if x is not first]
        terms = [x if is_readable(device, gpu) else self.copy_to(x, gpu) for x, device in others]
        total = self._try(self._compute[gpu].submit_consuming, add_into, first, *terms)
        sums = [self.copy_to(total, device, out=x) for x, device in others]
        return (*sums[:home], total, *sums[home:])

    def asarray(self, x: HostArray, device: Device) -> Array:
        self._compute.named(device)
        self._check_host_arrays(x)
        if device in self._cpus.devices:
            return self._cpus.asarray(x, device)
        tensors = tree_map(partial(page_locked, self._torch), x)
        return self._try(self._arriving[device].submit, partial(self._load, device), tensors)

    def to_numpy(self, x: Array) -> Any:
        on_host = tree_map(self._to_host, x)
        self.wait(on_host)
        try:
            return detached_copy(computed(on_host))
        except Exception as error:
            self._fail(error)

    def _refuse_foreign(self, *devices: Device) -> None:
        for device in devices:
            self._compute[device]

    def _try(self, fn: Callable[..., Array], *args: Any) -> Array:
        try:
            return fn(*args)
        except Failure as failure:
            self._fail(failure)

    def _load(self, device: Device, x: Array) -> Array:
        """Issue a copy of page-locked tensors, which are what is loaded on HOST."""
        if device == HOST:
            return x
        loaded = self._copied(device, x)
        tree_map(keep_bounds, loaded, x)
        return loaded

    def _to_host(self, x: Array) -> Array:
        on_cpu = isinstance(x, Future) and x.device in self._cpus.devices
        return x if on_cpu else self.copy_to(x, HOST)

    def _copy(self, x: Array, source: Device, device: Device, out: Array | None) -> Array:
        """Issue a copy between GPUs and HOST."""
        stream, beside = self._arriving[device], self._leaving[source]
        if device == HOST or (self._copies_by_source and source != HOST):
            stream, beside = beside, stream
        copy = partial(self._copied, device)
        if source.kind == device.kind == "gpu" and source.index != device.index:
            # The source's current stream copies between two GPUs; PyTorch makes it wait for the
            # destination's before and after.
            copy = partial(self._copied, device, enter=beside.enter)
        if out is None:
            copied = stream.submit(copy, x)
        else:
            copied = stream.submit_consuming(lambda target, x: copy(x, target), out, x)
        return tree_map(lambda array: array.on(device), copied)

    def _copied(
        self,
        device: Device,
        x: Array,
        out: Array | None = None,
        enter: Callable[[], None] = lambda: None,
    ) -> Array:
        enter()
        if out is None:
            out = tree_map(lambda leaf: allocate_like(self._torch, leaf, device), x)
        else:
            check_out(out, x)
        return tree_map(lambda target, leaf: target.copy_(leaf, non_blocking=True), out, x)

    def _copy_from_cpu(self, x: Array, device: Device, out: Array | None) -> Array:
        """Copy to page-locked memory, and from there issue a copy; for a CPU device's thread."""
        on_host = self._copy(x, HOST, HOST, out if device == HOST else None)
        return on_host if device == HOST else self._copy(on_host, HOST, device, out)


@gives_new_memory
def _copy_to_cpu(on_host: Array) -> Array:
    """Wait for a copy in page-locked memory, which is as good as any on a CPU device."""
    return computed(on_host)


def _overwrite_on_cpu(out: Array, on_host: Array) -> Array:
    return overwrite(out, computed(on_host))
