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
from backends.devices import Device, elsewhere
from backends.protocol import Array, HostArray, Setup
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE
from backends.torch.backend import PerDevice, TorchBackend
from backends.torch.streams.future import (
    Failure,
    Future,
    completed_future,
    device_of,
    futures_in,
    resolve,
)
from backends.torch.streams.worker import PooledStream, WorkerStream, first_error, submit_collective
from backends.torch.tensors import clone, detached_copy, overwrite, sum_own_shard, tensor


@final
class WorkerThreadsTorch(TorchBackend):
    """PyTorch on CPU devices `cpu:1` … `cpu:N`, each with separate threads."""

    def __init__(self, setup: Setup) -> None:
        scheduler = "worker threads of parallel-core: eager PyTorch has no queue on a CPU"
        super().__init__(setup, scheduler, setup.workers_per_device * setup.threads_per_device)
        shares = dict(zip(self.devices, self.cores, strict=True))
        workers = self.workers_per_device
        queue = partial(PooledStream, workers=workers) if workers > 1 else WorkerStream
        self._compute = PerDevice(
            {d: queue(d, f"{d} compute", shares[d], self._limit_threads) for d in self.devices}
        )
        self.copies = PerDevice(
            {d: WorkerStream(d, f"{d} copy", shares[d], self._limit_threads) for d in self.devices}
        )
        self.streams = (*self._compute.values(), *self.copies.values())
        self._copies_by_source = COPY_ON_COMPUTE_QUEUE.name in self.variants

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        # Most first arguments are futures: asking them here saves a tenth of what a launch costs.
        device = args[0].device if args and isinstance(args[0], Future) else device_of(*args)
        return self._compute[device].enqueue(fn, args)

    def wait(self, x: Array) -> Array:
        for leaf in tree_leaves(x):
            try:
                resolve(leaf)
            except Failure as failure:
                self._fail(failure)
        return x

    def waitall(self) -> None:
        if failed := first_error(self.streams):
            error, device = failed
            self._fail(error, f"on {device}")

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        # On the destination's thread for copies the source's threads, and so its cores, go on
        # computing.
        stream = self.copies.named(device)
        self._refuse_foreign(x)
        if self._copies_by_source:
            # Behind all that was launched there before.
            stream = self._compute[device_of(x)]
        if out is None:
            return stream.submit(clone, x).on(device)
        for future in futures_in(out):
            if future.device != device:
                raise elsewhere(self.name, future.device, device)
        return stream.submit_consuming(overwrite, out, x).on(device)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        devices = self._devices_of(xs, Future, device_of)
        self._refuse_foreign(*xs)
        # On the threads for copies, so that values that are ready are summed while other values are
        # still computed.
        return submit_collective(
            [self.copies[device] for device in devices], sum_own_shard, tuple(xs)
        )

    def asarray(self, x: HostArray, device: Device) -> Array:
        own = self._compute.named(device).device
        self._check_host_arrays(x)
        return tree_map(lambda leaf: completed_future(own, tensor(self._torch, leaf)), x)

    def to_numpy(self, x: Array) -> Any:
        value = resolve(self.wait(x))
        try:
            return detached_copy(value)
        except Exception as error:
            self._fail(error, f"on {device_of(x)}")

    def _refuse_foreign(self, *values: Array) -> None:
        for future in futures_in(*values):
            self.copies[future.device]
