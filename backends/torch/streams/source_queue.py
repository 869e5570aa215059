"""Copies on the queues that compute their sources, in place of a destination's own stream for copies.

A copy then stands behind all that was launched on its source's device before. Its source and its destination are
protected as on any other stream.
"""

from collections.abc import Callable, Mapping
from typing import Any, final

from backends.devices import Device
from backends.torch.streams.future import Future, device_of
from backends.torch.streams.worker import WorkerStream


@final
class SourceQueue:
    """Passes copies to one device on to the streams of `compute`, each to that of its source's device."""

    def __init__(self, device: Device, compute: Mapping[Device, WorkerStream]) -> None:
        self.device = device
        self._compute = compute

    def submit(self, fn: Callable[..., Any], x: Any) -> Future:
        """Enqueue `fn(x)`; its result lies on the destination. Never blocks."""
        return self._compute[device_of(x)].submit(fn, x).on(self.device)

    def submit_consuming(self, fn: Callable[..., Any], out: Any, x: Any) -> Future:
        """Enqueue `fn(out, x)`, which writes to the memory of `out` on the destination; never blocks."""
        return self._compute[device_of(x)].submit_consuming(fn, out, x).on(self.device)
