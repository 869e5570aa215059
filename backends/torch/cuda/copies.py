"""Copies and loads on GPUs, and on CPU devices beside them: which worker does which, and how.

Every GPU's logical device has a worker for what arrives there and one for what leaves for the host,
so that a copy runs beside the computation, and beside a copy the other way. A GPU copies by itself
from and to page-locked memory only, as HOST is. To lock an array's own pages for each copy costs
more than the copy; so arrays in the host's ordinary memory go through a few page-locked buffers in
pieces, and while the GPU copies one the host fills the next.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, final

from backends.arrays import tree_map
from backends.devices import HOST, Device
from backends.torch.cuda.streams import CudaFuture, CudaQueue, CudaStream, MemoryReaders
from backends.torch.labels import keep_bounds
from backends.torch.streams.future import Future, completed_future, device_of
from backends.torch.streams.worker import WorkerStream
from backends.torch.tensors import allocate_like, check_out


@final
class CudaCopies:
    """Passes copies on to the workers of their sources or destinations.

    `on_host` copies between CPU devices. A copy between GPUs is done by the worker of its
    destination for what arrives, or, `by_source`, by that of its source for what leaves.
    """

    def __init__(
        self,
        torch: Any,
        on_host: Mapping[Device, WorkerStream],
        arriving: Mapping[Device, CudaStream],
        leaving: Mapping[Device, CudaStream],
        readers: MemoryReaders,
        by_source: bool,
    ) -> None:
        self._torch, self._on_host, self._arriving, self._leaving = (
            torch,
            on_host,
            arriving,
            leaving,
        )
        self._readers, self._by_source = readers, by_source
        # Each is used by only one worker, on its own thread.
        self._staging = {
            stream: _Staging(torch) for stream in (*arriving.values(), *leaving.values())
        }

    def submit(self, fn: Callable[..., Any], x: Any, device: Device) -> Future:
        """Enqueue a copy of `x` to a device, by `fn(x)` if it goes from a CPU device to another;
        never blocks.
        """
        stream, copy = self._route(device_of(x), device)
        return stream.submit(copy or fn, x).on(device)

    def submit_consuming(self, fn: Callable[..., Any], out: Any, x: Any, device: Device) -> Future:
        """Enqueue a copy to the memory of `out` on a device, by `fn(out, x)` between CPU devices;
        never blocks.
        """
        stream, copy = self._route(device_of(x), device)
        overwrite = self._readers.before(fn if copy is None else _swapped(copy))
        return stream.submit_consuming(overwrite, out, x).on(device)

    def _route(
        self, source: Device, device: Device
    ) -> tuple[WorkerStream, Callable[..., Any] | None]:
        if source.kind == device.kind == "cpu":
            return self._on_host[device], partial(
                self._copy, device, _at_once
            ) if device == HOST else None
        if device.kind == "gpu":
            stream = (
                self._leaving[source]
                if self._by_source and source.kind == "gpu"
                else self._arriving[device]
            )
            staged = source.kind == "cpu" and source != HOST
            return stream, partial(
                self._copy, device, self._staging[stream].to_gpu if staged else _by_gpu
            )
        stream = self._leaving[source]
        return stream, partial(
            self._copy, device, _by_gpu if device == HOST else self._staging[stream].to_host
        )

    def _copy(
        self, device: Device, overwrite: Callable[[Any, Any], Any], x: Any, out: Any = None
    ) -> Any:
        if out is None:
            out = tree_map(lambda leaf: allocate_like(self._torch, leaf, device), x)
        else:
            check_out(out, x)
        return tree_map(overwrite, out, x)


@final
class CudaLoads:
    """Loads the caller's arrays onto devices, by the calling thread; every device on a GPU has a
    stream for that.
    """

    def __init__(self, torch: Any, on_gpus: Sequence[Device], readers: MemoryReaders) -> None:
        self._torch = torch
        self._queues = {device: CudaQueue(torch.cuda, device, readers) for device in on_gpus}
        self._staging = {device: _Staging(torch) for device in on_gpus}
        self._loading = threading.Lock()

    def load(self, x: Any, device: Device) -> Future:
        """Issue a copy of a tensor in ordinary memory to a device; for a CPU device the tensor
        itself is its value.
        """
        if device.kind == "cpu":
            pinned = device == HOST
            return completed_future(
                device, allocate_like(self._torch, x, HOST).copy_(x) if pinned else x
            )
        queue = self._queues[device]
        future = CudaFuture(device, queue)
        with self._loading, self._torch.cuda.stream(queue.stream):
            out = allocate_like(self._torch, x, device)
            self._staging[device].to_gpu(out, x)
            keep_bounds(out, x)
            future.set_result(out)
        return future

    def wait(self) -> None:
        """Block until all loads are done; raises Failure if a GPU reports an error."""
        for queue in self._queues.values():
            queue.wait()


@final
class _Staging:
    """Some page-locked buffers, allocated when they are first needed; one thread at a time uses
    them.

    Copies are issued to the calling thread's current streams.
    """

    def __init__(self, torch: Any, buffers: int = 4, piece_bytes: int = 2**22) -> None:
        self._torch, self._max_buffers, self._bytes = torch, buffers, piece_bytes
        self._buffers: deque[tuple[Any, Any]] = deque()
        self._allocated = 0

    def to_gpu(self, out: Any, x: Any) -> Any:
        """Issue a copy of `x`, in ordinary memory, to `out`, on a GPU; `x` may change on return."""
        if not out.is_contiguous():
            return out.copy_(self.to_gpu(self._in_plain_order(out), x))
        for target, source in self._pieces(out, x):
            whole, buffer = self._next(source)
            buffer.copy_(source)
            target.copy_(buffer, non_blocking=True)
            self._buffers.append((whole, self._event(out)))
        return out

    def to_host(self, out: Any, x: Any) -> Any:
        """Copy `x`, on a GPU, to `out`, in ordinary memory; complete on return."""
        if not out.is_contiguous():
            return out.copy_(self.to_host(self._in_plain_order(out), x))
        issued: deque[tuple[Any, Any, Any, Any]] = deque()
        for target, source in self._pieces(out, x):
            if len(issued) == self._max_buffers:
                self._empty(*issued.popleft())
            whole, buffer = self._next(source)
            buffer.copy_(source, non_blocking=True)
            issued.append((self._event(x), whole, buffer, target))
        while issued:
            self._empty(*issued.popleft())
        return out

    def _empty(self, done: Any, whole: Any, buffer: Any, target: Any) -> None:
        done.synchronize()
        target.copy_(buffer)
        self._buffers.append((whole, done))

    def _pieces(self, out: Any, x: Any) -> Iterator[tuple[Any, Any]]:
        length = max(1, self._bytes // x.element_size())
        targets, sources = out.view(-1), x.detach().contiguous().view(-1)
        for start in range(0, len(sources), length):
            yield targets[start : start + length], sources[start : start + length]

    def _next(self, piece: Any) -> tuple[Any, Any]:
        if self._allocated < self._max_buffers and not (
            self._buffers and self._buffers[0][1].query()
        ):
            self._allocated += 1
            whole = self._torch.empty(self._bytes, dtype=self._torch.uint8, pin_memory=True)
        else:
            whole, done = self._buffers.popleft()
            done.synchronize()
        return whole, whole[: piece.nbytes].view(piece.dtype)

    def _in_plain_order(self, out: Any) -> Any:
        return self._torch.empty_like(out, memory_format=self._torch.contiguous_format)

    def _event(self, on_gpu: Any) -> Any:
        return self._torch.cuda.current_stream(on_gpu.device).record_event()


def _swapped(copy: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda out, x: copy(x, out)


def _by_gpu(out: Any, x: Any) -> Any:
    return out.copy_(x, non_blocking=True)


def _at_once(out: Any, x: Any) -> Any:
    return out.copy_(x)
