"""Worker threads that feed CUDA streams: a stream of its own for each thing that a GPU's logical device does at a time.

A worker of a GPU issues its tasks to a CUDA stream of its own, so a task that has ended has been queued and not
computed. Its future holds the event that says when it is computed. What takes the value waits in its own way:

- a worker of another stream lets its stream wait for the event, and goes on issuing;
- the host (a caller of `wait`, a worker of a CPU device) blocks until the event has come;
- the stream itself comes later anyway.

PyTorch gives freed memory to the next allocation on the stream that it was allocated on, even while others read it. So
a stream records itself as a user of what it reads of others (`record_stream`): when the last tensor in that memory is
let go, be it a view, PyTorch waits for what the users have been issued. (It is not enough to keep the value until the
task that read it is computed: the task may return a view of it, which later tasks of its stream read.)

This module imports no framework: it is given `torch.cuda`, or whatever has its streams and events.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, final

from backends.arrays import tree_leaves
from backends.devices import Device
from backends.torch.streams.future import Future, ItemPath
from backends.torch.streams.worker import WorkerStream

__all__ = ["CudaFuture", "CudaQueue", "CudaStream"]

_here = threading.local()


@final
class CudaQueue:
    """A CUDA stream of a GPU. One thread at a time issues to it."""

    def __init__(self, cuda: Any, gpu: int, others: Sequence[int] = ()) -> None:
        self.stream = cuda.Stream(gpu)
        self._cuda = cuda
        self._on_others = [cuda.Stream(other) for other in others]

    def enter(self) -> None:
        """Let the calling thread issue to this stream from now on, and to streams of its own on the other GPUs.

        A copy from another GPU runs on that one's current stream; PyTorch makes it wait for this one before and after.
        """
        for stream in (*self._on_others, self.stream):
            self._cuda.set_stream(stream)
        _here.queue = self

    def read(self, done: Any, value: Any) -> None:
        """Let the stream wait for another stream's event, and be a user of the value's memory."""
        self.stream.wait_event(done)
        for leaf in tree_leaves(value):
            if getattr(leaf, "is_cuda", False):
                leaf.record_stream(self.stream)


@final
class _TaskEnd:
    """The end of a task. A CUDA stream that enters it waits behind its event, the host until the event has come."""

    __slots__ = ("_issued", "event")

    def __init__(self, issued: Any) -> None:
        self._issued = issued
        self.event: Any = None

    def __enter__(self) -> None:
        with self._issued:
            pass
        if self.event is None:
            return
        queue = getattr(_here, "queue", None)
        if queue is None:
            self.event.synchronize()
        else:
            queue.stream.wait_event(self.event)

    def __exit__(self, *_: object) -> None:
        pass

    def locked(self) -> bool:
        return self._issued.locked() or not (self.event is None or self.event.query())


@final
class CudaFuture(Future):
    """A value that a CUDA stream will compute; set as soon as it is issued, for those that can wait for its event."""

    __slots__ = ("_ended", "_queue")

    def __init__(self, device: Device, queue: CudaQueue) -> None:
        super().__init__(device)
        self._queue = queue
        self.end = self._ended = _TaskEnd(self._pending)

    def set_result(self, value: Any) -> None:
        """Set the value, which has been issued, and wake all that wait for it."""
        self._ended.event = self._queue.stream.record_event()
        super().set_result(value)

    def set_exception(self, error: BaseException) -> None:
        # What was issued before the error may still be running. After some errors CUDA refuses everything.
        with suppress(Exception):
            self._ended.event = self._queue.stream.record_event()
        super().set_exception(error)

    def announce(self, path: ItemPath, value: Any) -> None:
        """Do nothing: an item has no event of its own, and is ready when all of the value is."""

    def result(self) -> Any:
        """Return the value when the caller may use it, or raise the error that prevented it."""
        value = super().result()
        queue = getattr(_here, "queue", None)
        if queue is None:
            self._ended.event.synchronize()
        elif queue is not self._queue:
            queue.read(self._ended.event, value)
        return value


@final
class CudaStream(WorkerStream):
    """One worker thread that issues tasks to a CUDA stream in the order of their submission."""

    def __init__(self, cuda: Any, device: Device, name: str, others: Sequence[int] = ()) -> None:
        # The thread refers to the queue, and not to this object, which would otherwise outlive its last user.
        queue = CudaQueue(cuda, device.index, others)
        super().__init__(device, name, set(), queue.enter)
        self._new_future = partial(CudaFuture, queue=queue)
