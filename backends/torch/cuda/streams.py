"""Worker threads that feed CUDA streams: GPUs beside CPU devices, and several logical devices on one GPU.

A worker of a GPU issues its tasks to a CUDA stream of its own, so a task that is done has been queued and not computed.
Its promise holds the event that says when it is computed, and whoever takes the value waits the way that he can:

- a worker of another stream lets its stream wait for the event, and goes on issuing;
- the host (a caller of `wait`, a worker of a CPU device) blocks until the event has come;
- the stream itself comes later anyway.

PyTorch gives freed memory to the next allocation on the stream that it was allocated on, whoever else still reads it.
So what a task has read of other streams is kept until the task's own event has come. (`record_stream` would do as well,
but then nobody can foresee when the memory is free again.)

This module imports no framework: it is given `torch.cuda`, or whatever has its streams and events.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, final

from backends.devices import Device
from backends.torch.streams.promise import Path, Promise, promises
from backends.torch.streams.worker import WorkerStream

__all__ = ["CudaPromise", "CudaQueue", "CudaStream"]

_here = threading.local()


@final
class CudaQueue:
    """A CUDA stream of a GPU, and what was read on it of other streams. One thread at a time issues to it."""

    def __init__(self, cuda: Any, gpu: int, others: Sequence[int] = ()) -> None:
        self.stream = cuda.Stream(gpu)
        self._cuda = cuda
        self._on_others = [cuda.Stream(other) for other in others]
        self._reading: list[Any] = []
        self._in_flight: deque[tuple[Any, list[Any]]] = deque()

    def enter(self) -> None:
        """Let the calling thread issue to this stream from now on, and to streams of its own on the other GPUs.

        A copy from another GPU runs on that one's current stream; PyTorch makes it wait for this one before and after.
        """
        for stream in (*self._on_others, self.stream):
            self._cuda.set_stream(stream)
        _here.queue = self

    def read(self, done: Any, value: Any) -> None:
        """Let the stream wait for another stream's event, and keep the value until what reads it is done."""
        self.stream.wait_event(done)
        self._reading.append(value)

    def end_task(self) -> Any:
        """Return the event of all that was issued until now; let go of what earlier tasks have read."""
        done = self.stream.record_event()
        if self._reading:
            self._in_flight.append((done, self._reading))
            self._reading = []
        while self._in_flight and self._in_flight[0][0].query():
            self._in_flight.popleft()
        return done


@final
class _Reading:
    """A task that reads a value; who enters waits for it: a stream behind its event, the host until it has come."""

    __slots__ = ("_issued", "done")

    def __init__(self, issued: Any) -> None:
        self._issued = issued
        self.done: Any = None

    def __enter__(self) -> None:
        with self._issued:
            pass
        if self.done is None:
            return
        queue = getattr(_here, "queue", None)
        if queue is None:
            self.done.synchronize()
        else:
            queue.stream.wait_event(self.done)

    def __exit__(self, *_: object) -> None:
        pass


@final
class CudaPromise(Promise):
    """A value that a CUDA stream will compute; there as soon as it is issued, for those who can wait for its event."""

    __slots__ = ("_queue", "reading")

    def __init__(self, device: Device, queue: CudaQueue) -> None:
        super().__init__(device)
        self._queue = queue
        self.reading = _Reading(self._pending)

    def fulfil(self, value: Any) -> None:
        """Set the value, which has been issued, and wake those who wait for it."""
        self.reading.done = self._queue.end_task()
        super().fulfil(value)

    def fail(self, error: BaseException) -> None:
        """Set the error that `result` will raise."""
        # What was issued before the error may still be running. After some errors CUDA refuses everything.
        with suppress(Exception):
            self.reading.done = self._queue.end_task()
        super().fail(error)

    def announce(self, path: Path, value: Any) -> None:
        """Tell nobody: an item has no event of its own, and is there when all of the value is."""

    def result(self) -> Any:
        """Return the value when the caller may use it, or raise the error that prevented it."""
        value = super().result()
        queue = getattr(_here, "queue", None)
        if queue is None:
            self.reading.done.synchronize()
        elif queue is not self._queue:
            queue.read(self.reading.done, value)
        return value


@final
class CudaStream(WorkerStream):
    """One worker thread that issues tasks to a CUDA stream in the order of their submission."""

    def __init__(self, cuda: Any, device: Device, name: str, others: Sequence[int] = ()) -> None:
        # The thread holds the queue, and not the stream, which would otherwise outlive its last user.
        self._queue = CudaQueue(cuda, device.index, others)
        super().__init__(device, name, set(), self._queue.enter)

    def submit(self, fn: Callable[..., Any], *args: Any) -> Promise:
        """Enqueue `fn(*args)`, with promises among the arguments replaced by their values; never blocks."""
        promise = CudaPromise(self.device, self._queue)
        self._read(args, promise)
        self._put((promise, fn, args, ()))
        return promise

    def submit_consuming(self, fn: Callable[..., Any], consumed: Any, *args: Any) -> Promise:
        """Enqueue `fn(consumed, *args)`, which writes to the first argument's memory; never blocks."""
        readers = (reader for read in promises(consumed) for reader in read.conflicting_readers())
        others = [done for stream, done in readers if stream is not self]
        promise = CudaPromise(self.device, self._queue)
        self._read((consumed, *args), promise)
        self._put((promise, fn, (consumed, *args), others))
        return promise

    def _read(self, args: tuple[Any, ...], promise: Promise) -> None:
        assert isinstance(promise, CudaPromise)
        for read in promises(*args):
            read.readers[self] = promise.reading
