"""PyTorch's asynchronous engine on CPUs. Read it beside `mxnet/backend.py`: same verbs, same order.

Eager PyTorch has no queue on a CPU: an operator runs on the calling thread and returns when it is
done (the GIL is released meanwhile). So this backend brings separate queues (`streams/`), for each
logical device a thread for computation and one for copies. `launch` is a place in a queue, and a
value is a future: MXNet knows which operator reads and writes which array, and here the futures
among a function's arguments say what it waits for.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

from backends.arrays import tree_leaves, tree_map
from backends.base import Setup
from backends.devices import Device, elsewhere
from backends.protocol import Array, HostArray
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE
from backends.torch.backend import PerDevice, TorchBackend
from backends.torch.streams.future import (
    Future,
    completed_future,
    device_of,
    futures_in,
    resolve,
)
from backends.torch.streams.worker import PooledStream, WorkerStream, submit_collective
from backends.torch.tensors import clone, detached_copy, overwrite, sum_own_shard, tensor


@final
class WorkerThreadsTorch(TorchBackend):
    """PyTorch on CPU devices `cpu:1` … `cpu:N`, each with separate threads."""

    def __init__(self, setup: Setup) -> None:
        scheduler = "worker threads of parallel-core: eager PyTorch has no queue on a CPU"
        super().__init__(setup, scheduler, setup.workers_per_device * setup.threads_per_device)
        workers = self.workers_per_device
        make_queue = partial(PooledStream, workers=workers) if workers > 1 else WorkerStream
        self._compute: PerDevice[WorkerStream] = PerDevice()
        for device, cores in zip(self.devices, self.cores, strict=True):
            name = f"{device} compute"
            self._compute[device] = make_queue(device, name, cores, self._limit_threads)
        self.copies: PerDevice[WorkerStream] = PerDevice()
        for device, cores in zip(self.devices, self.cores, strict=True):
            name = f"{device} copy"
            self.copies[device] = WorkerStream(device, name, cores, self._limit_threads)
        self.streams = (*self._compute.values(), *self.copies.values())
        self._copies_by_source = COPY_ON_COMPUTE_QUEUE.name in self.variants

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Enqueue `fn(*args)` on the computing thread of the first array's device."""
        # Most first arguments are futures: asking them here saves a tenth of what a launch costs.
        device = args[0].device if args and isinstance(args[0], Future) else device_of(*args)
        return self._compute[device].enqueue(fn, args)

    def wait(self, x: Array) -> Array:
        """Block until all futures in a value are computed, and return the value."""
        for leaf in tree_leaves(x):
            self._try(resolve, leaf)
        return x

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Enqueue a copy on the destination's thread for copies."""
        # The destination's thread copies, so that the source's cores go on computing.
        stream = self._of_device(self.copies, device)
        self._check_copied(x, Future)
        self._refuse_foreign(x)
        if self._copies_by_source:
            # The source's computing thread copies, behind all that was launched there before.
            stream = self._compute[device_of(x)]
        if out is None:
            return stream.submit(clone, x).on(device)
        for future in futures_in(out):
            if future.device != device:
                raise elsewhere(self.name, future.device, device)
        return stream.submit_consuming(overwrite, out, x).on(device)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Enqueue the sum on the threads for copies, each of which sums a shard."""
        devices = self._devices_of(xs, Future, device_of)
        self._refuse_foreign(*xs)
        # On the threads for copies, ready values are summed while other values are still computed.
        streams = [self.copies[device] for device in devices]
        return submit_collective(streams, sum_own_shard, tuple(xs))

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy a NumPy array, or a tuple of them, now; the futures are complete."""
        own_device = self._of_device(self._compute, device).device
        self._check_host_arrays(x)
        return tree_map(lambda leaf: completed_future(own_device, tensor(self._torch, leaf)), x)

    def to_numpy(self, x: Array) -> Any:
        """Wait for a value, and return a copy as NumPy."""
        value = resolve(self.wait(x))
        try:
            return detached_copy(value)
        except Exception as error:
            self._fail(error, f"on {device_of(x)}")

    def _refuse_foreign(self, *values: Array) -> None:
        """Raise BackendError for a future on a device of another backend."""
        for future in futures_in(*values):
            # A missing device raises it.
            self.copies[future.device]
