"""Copies on the queues that compute their sources: what takes the place of a destination's own stream for copies.

A copy then stands behind all that was launched on its source's device before. What it reads and writes is protected as
on any other stream.
"""

from collections.abc import Callable, Mapping
from typing import Any, final

from backends.devices import Device
from backends.errors import BackendError
from backends.torch.streams.promise import Promise, promises
from backends.torch.streams.worker import WorkerStream

__all__ = ["SourceQueue"]


@final
class SourceQueue:
    """Passes copies to one device on to the streams of `compute`, each to that of its source's device."""

    def __init__(self, device: Device, compute: Mapping[Device, WorkerStream]) -> None:
        self.device = device
        self._compute = compute

    def submit(self, fn: Callable[..., Any], x: Any) -> Promise:
        """Enqueue `fn(x)`; its result lies on the destination. Never blocks."""
        return self._promised(self._queue_of(x).submit(fn, x))

    def submit_consuming(self, fn: Callable[..., Any], out: Any, x: Any) -> Promise:
        """Enqueue `fn(out, x)`, which writes to the memory of `out` on the destination; never blocks."""
        return self._promised(self._queue_of(x).submit_consuming(fn, out, x))

    def _promised(self, promise: Promise) -> Promise:
        # What is launched with the copy is the destination's work.
        promise.device = self.device
        return promise

    def _queue_of(self, x: Any) -> WorkerStream:
        for promise in promises(x):
            return self._compute[promise.device]
        raise BackendError("copy_to needs an array of this backend: it says whose queue the copy stands in")
