"""Copies and loads of worker streams, where some of the devices are GPUs: who does which, and how.

Every GPU's logical device has a worker for what arrives there and one for what leaves for the host, so that a copy runs
beside the computation, and beside one the other way. Arrays in the host's ordinary memory go through page-locked
buffers; HOST is page-locked itself.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, final

from backends.arrays import tree_map
from backends.devices import HOST, Device
from backends.errors import BackendError
from backends.torch.cuda.staging import Staging
from backends.torch.cuda.streams import CudaPromise, CudaQueue, CudaStream
from backends.torch.streams.promise import Promise, promises
from backends.torch.streams.worker import WorkerStream

__all__ = ["CudaCopies", "CudaLoads", "empty_like", "place_of"]


def place_of(device: Device) -> str:
    """Return PyTorch's name of the memory of a device."""
    return f"cuda:{device.index}" if device.kind == "gpu" else "cpu"


def empty_like(torch: Any, x: Any, device: Device) -> Any:
    """Allocate memory on a device for a copy of `x`; page-locked for HOST."""
    return torch.empty_like(
        x,
        device=place_of(device),
        memory_format=torch.contiguous_format,
        **({"pin_memory": True} if device == HOST else {}),
    )


@final
class CudaCopies:
    """Passes copies to one device on to the workers of their source or destination.

    `on_host` copies between CPU devices. A copy between GPUs is done by the worker of its destination for what arrives,
    or, `by_source`, by that of its source for what leaves.
    """

    def __init__(
        self,
        torch: Any,
        device: Device,
        on_host: WorkerStream | None,
        arriving: Mapping[Device, CudaStream],
        leaving: Mapping[Device, CudaStream],
        by_source: bool = False,
    ) -> None:
        self.device = device
        self._by_source = by_source
        self._torch, self._on_host, self._arriving, self._leaving = torch, on_host, arriving, leaving
        # Each is used by one worker alone, on its own thread.
        self._staging = {stream: Staging(torch) for stream in (*arriving.values(), *leaving.values())}

    def submit(self, fn: Callable[..., Any], x: Any) -> Promise:
        """Enqueue a copy of `x`, by `fn(x)` where it goes from a CPU device to another; never blocks."""
        stream, copy = self._way(x)
        return self._promised(stream.submit(copy or fn, x))

    def submit_consuming(self, fn: Callable[..., Any], out: Any, x: Any) -> Promise:
        """Enqueue a copy to the memory of `out`, by `fn(out, x)` between CPU devices; never blocks."""
        stream, copy = self._way(x)
        return self._promised(stream.submit_consuming(fn if copy is None else _swapped(copy), out, x))

    def _promised(self, promise: Promise) -> Promise:
        # What is launched with the copy is the destination's work.
        promise.device = self.device
        return promise

    def _way(self, x: Any) -> tuple[WorkerStream, Callable[..., Any] | None]:
        source = next((promise.device for promise in promises(x)), None)
        if source is None:
            raise BackendError("copy_to needs an array of this backend: it says where the copy comes from")
        if source.kind == self.device.kind == "cpu":
            assert self._on_host is not None
            return self._on_host, partial(self._copy, _at_once) if self.device == HOST else None
        if self.device.kind == "gpu":
            stream = self._leaving[source] if self._by_source and source.kind == "gpu" else self._arriving[self.device]
            staged = source.kind == "cpu" and source != HOST
            return stream, partial(self._copy, self._staging[stream].to_gpu if staged else _by_gpu)
        stream = self._leaving[source]
        return stream, partial(self._copy, _by_gpu if self.device == HOST else self._staging[stream].to_host)

    def _copy(self, overwrite: Callable[[Any, Any], Any], x: Any, out: Any = None) -> Any:
        if out is None:
            out = tree_map(lambda leaf: empty_like(self._torch, leaf, self.device), x)
        return tree_map(overwrite, out, x)


@final
class CudaLoads:
    """Loads what the caller has onto devices, by the calling thread; GPUs have a stream for loads alone."""

    def __init__(self, torch: Any, gpus: Sequence[int]) -> None:
        self._torch = torch
        self._queues = {gpu: CudaQueue(torch.cuda, gpu) for gpu in gpus}
        self._staging = {gpu: Staging(torch) for gpu in gpus}
        self._loading = threading.Lock()

    def load(self, x: Any, device: Device) -> Promise:
        """Issue a copy of a tensor of the caller's own, in ordinary memory, to a device; no copy for a CPU device."""
        if device.kind == "cpu":
            loaded = Promise(device)
            loaded.fulfil(empty_like(self._torch, x, HOST).copy_(x) if device == HOST else x)
            return loaded
        queue = self._queues[device.index]
        promise = CudaPromise(device, queue)
        with self._loading, self._torch.cuda.stream(queue.stream):
            out = empty_like(self._torch, x, device)
            promise.fulfil(self._staging[device.index].to_gpu(out, x))
        return promise


def _swapped(copy: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda out, x: copy(x, out)


def _by_gpu(out: Any, x: Any) -> Any:
    return out.copy_(x, non_blocking=True)


def _at_once(out: Any, x: Any) -> Any:
    return out.copy_(x)
