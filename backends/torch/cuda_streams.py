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
from backends.base import Setup
from backends.devices import HOST, Device, elsewhere
from backends.protocol import Array, HostArray
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
        graphs = CudaGraphs(self._torch)
        replays_steps = GRAPH_REPLAY.name in self.variants
        self.ops = graphs.changing(self.ops, steps=replays_steps)
        self._issue_step = graphs.issue_step if replays_steps else None

        def new_queues() -> PerDevice[Calls]:
            """Return a new stream for each GPU; HOST and the CPU devices have calls on the host."""
            host_calls = HostCalls(self._torch)
            queues: PerDevice[Calls] = PerDevice()
            for device in (*on_cpus, HOST):
                queues[device] = host_calls
            for device in on_gpus:
                queues[device] = CudaStream(self._torch, device)
            return queues

        self._compute = self._arriving = self._leaving = new_queues()
        self._copies_by_source = COPY_ON_COMPUTE_QUEUE.name in self.variants
        if not self._copies_by_source:
            self._arriving, self._leaving = new_queues(), new_queues()
        # Without CPU devices this part has no threads.
        self._cpus = WorkerThreadsTorch(replace(setup, devices=on_cpus))
        self.streams = self._cpus.streams

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Call `fn(*args)` while the device's stream is the current one."""
        device = common_device(*args)
        stream = self._compute[device]
        if device in self._cpus.devices:
            return self._cpus.launch(fn, *args)
        if self._issue_step is not None:
            fn, args = self._issue_step, (fn, *args)
        try:
            return stream.issue(fn, args, [])
        except Failure as failure:
            self._fail(failure)

    def wait(self, x: Array) -> Array:
        """Block until all arrays of a value are computed, and return the value."""
        for leaf in tree_leaves(x):
            self._try(computed, leaf)
        return x

    def waitall(self) -> None:
        """Block until all threads and all streams are done."""
        # The threads come first, because they issue to the streams.
        super().waitall()
        for queues in (self._compute, self._arriving, self._leaving):
            for queue in queues.values():
                self._try(queue.synchronize)

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Issue a copy to a stream for copies, or enqueue it if a CPU device takes part."""
        self._of_device(self._compute, device)
        self._check_copied(x, CudaArray | Future)
        source, *other_sources = dict.fromkeys(devices_in(x))
        self._refuse_foreign(source, *other_sources)
        if other_sources:
            # Each array goes by its own route, and all are on the device before `out` is written.
            x = tree_map(lambda leaf: self.copy_to(leaf, device), x)
            source = device
            if out is None:
                return x
        if out is not None:
            for device_of_out in devices_in(out):
                if device_of_out != device:
                    raise elsewhere(self.name, device_of_out, device)
        source_is_cpu = source in self._cpus.devices
        destination_is_cpu = device in self._cpus.devices
        if source_is_cpu and destination_is_cpu:
            return self._cpus.copy_to(x, device, out)
        if source_is_cpu:
            thread = self._cpus.copies[source]
            return thread.submit(self._copy_from_cpu, x, device, out).on(device)
        if destination_is_cpu:
            thread, on_host = self._cpus.copies[device], self.copy_to(x, HOST)
            if out is None:
                return thread.submit(_copy_to_cpu, on_host)
            return thread.submit_consuming(_overwrite_on_cpu, out, on_host)
        return self._try(self._copy, x, source, device, out)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Issue the sum on the first GPU, and copies of the sum to the other devices."""
        devices = self._devices_of(xs, CudaArray | Future, common_device)
        self._refuse_foreign(*devices)
        positions = range(len(xs))
        positions_on_gpus = [
            position for position in positions if devices[position] not in self._cpus.devices
        ]
        if not positions_on_gpus:
            return self._cpus.allreduce(xs)
        # The first value on a GPU becomes the sum.
        summing = positions_on_gpus[0]
        gpu = devices[summing]
        other_positions = [position for position in positions if position != summing]
        terms = []
        for position in other_positions:
            can_be_read = is_readable(devices[position], gpu)
            terms.append(xs[position] if can_be_read else self.copy_to(xs[position], gpu))
        total = self._try(self._compute[gpu].submit_consuming, add_into, xs[summing], *terms)
        sums = list(xs)
        sums[summing] = total
        for position in other_positions:
            sums[position] = self.copy_to(total, devices[position], out=xs[position])
        return tuple(sums)

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy a NumPy array, or a tuple of them, to page-locked memory and on to a device."""
        self._of_device(self._compute, device)
        self._check_host_arrays(x)
        if device in self._cpus.devices:
            return self._cpus.asarray(x, device)
        tensors = tree_map(partial(page_locked, self._torch), x)
        return self._try(self._arriving[device].submit, partial(self._load, device), tensors)

    def to_numpy(self, x: Array) -> Any:
        """Copy a value to the host, wait for the copy, and return it as NumPy."""
        on_host = tree_map(self._to_host, x)
        self.wait(on_host)
        try:
            return detached_copy(computed(on_host))
        except Exception as error:
            self._fail(error)

    def _refuse_foreign(self, *devices: Device) -> None:
        """Raise BackendError for a device of another backend."""
        for device in devices:
            # A missing device raises it.
            self._compute[device]

    def _load(self, device: Device, x: Array) -> Array:
        """Return page-locked tensors themselves for HOST, and issue a copy for another device."""
        if device == HOST:
            return x
        loaded = self._copied(device, x)
        tree_map(keep_bounds, loaded, x)
        return loaded

    def _to_host(self, x: Array) -> Array:
        """Return an array on HOST, or on a CPU device if it lies there."""
        is_on_cpu = isinstance(x, Future) and x.device in self._cpus.devices
        return x if is_on_cpu else self.copy_to(x, HOST)

    def _copy(self, x: Array, source: Device, device: Device, out: Array | None) -> Array:
        """Issue a copy between GPUs and HOST."""
        # The destination's stream for what arrives copies, or the source's for what leaves it.
        arriving, leaving = self._arriving[device], self._leaving[source]
        source_copies = device == HOST or (self._copies_by_source and source != HOST)
        stream, other_stream = (leaving, arriving) if source_copies else (arriving, leaving)
        copy = partial(self._copied, device)
        are_gpus = source.kind == "gpu" and device.kind == "gpu"
        if are_gpus and source.index != device.index:
            # Between two GPUs the source's current stream copies; PyTorch makes it wait for the
            # destination's stream before and after.
            copy = partial(self._copied, device, enter=other_stream.enter)
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
        """Copy tensors on the current stream, to new memory on a device or to that of `out`."""
        enter()
        if out is None:
            out = tree_map(lambda leaf: allocate_like(self._torch, leaf, device), x)
        else:
            check_out(out, x)
        return tree_map(lambda target, leaf: target.copy_(leaf, non_blocking=True), out, x)

    def _copy_from_cpu(self, x: Array, device: Device, out: Array | None) -> Array:
        """Copy to page-locked memory, and issue a copy from there to a GPU.

        A CPU device's thread for copies calls this.
        """
        if device == HOST:
            return self._copy(x, HOST, HOST, out)
        on_host = self._copy(x, HOST, HOST, None)
        return self._copy(on_host, HOST, device, out)


@gives_new_memory
def _copy_to_cpu(on_host: Array) -> Array:
    """Wait for a copy in page-locked memory, and return it: a CPU device can use that memory."""
    return computed(on_host)


def _overwrite_on_cpu(out: Array, on_host: Array) -> Array:
    """Wait for a copy in page-locked memory, and copy it to the memory of `out`."""
    return overwrite(out, computed(on_host))
