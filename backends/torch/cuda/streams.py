"""Worker threads that feed CUDA streams: a separate stream for each thing that a GPU's logical
device does at a time.

A worker of a GPU issues its tasks to a dedicated CUDA stream, so a task that has ended has been
queued and not computed. Its future holds the event that says when it is computed. What takes the
value waits in its own way:

- a worker of another stream lets its stream wait for the event, and goes on issuing;
- the host (a caller of `wait`, a worker of a CPU device) blocks until the event has come;
- the stream itself comes later anyway.

PyTorch gives freed memory to the next allocation on the stream that allocated it, even while other
streams read it. So a stream records itself as a user of what it reads (`record_stream`): when the
last tensor in that memory is let go, be it a view, PyTorch waits for what the users have been
issued. (It is not enough to keep the value until the task that read it is computed: the task may
return a view of it, which later tasks of its stream read.)

What is to be overwritten may still be read on other streams, by tasks that ended when they were
issued and whose values are long dropped. So each piece of memory keeps, for each stream, the event
of the last task there that read it, and what overwrites it waits for these.

This module imports no framework: it is given `torch.cuda`, or whatever has its streams and events.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import Any, final

from backends.arrays import tree_leaves
from backends.devices import Device
from backends.torch.streams.future import Failure, Future
from backends.torch.streams.sharing import gives_new_memory, storages_of
from backends.torch.streams.worker import WorkerStream

FORGET_FROM = 1000
"""From so many pieces of memory on, those are forgotten whose readers are done."""

_here = threading.local()


@final
class MemoryReaders:
    """For each storage, the ends of the last tasks that read it: one for each CUDA stream."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[CudaQueue, Any]] = {}
        self._lock = threading.Lock()
        self._crowded = FORGET_FROM

    def add(self, values: Any, queue: "CudaQueue", event: Any) -> None:
        """Count a task that read values, and that is computed when an event of its queue has
        come.
        """
        storages = storages_of(values, set())
        with self._lock:
            for storage in storages:
                self._ends.setdefault(storage, {})[queue] = event
            if len(self._ends) > self._crowded:
                self._forget()

    def before(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function wait, as its thread does, for all that read the memory of its first
        argument.
        """

        @wraps(fn)
        def after_readers(consumed: Any, *args: Any) -> Any:
            with self._lock:
                ends = [
                    end
                    for storage in storages_of(consumed, set())
                    for end in self._ends.get(storage, {}).items()
                ]
            for queue, event in ends:
                _wait_for(event, queue)
            return fn(consumed, *args)

        return after_readers

    def _forget(self) -> None:
        for storage, ends in list(self._ends.items()):
            if all(_has_come(event) for event in ends.values()):
                del self._ends[storage]
        self._crowded = max(FORGET_FROM, 2 * len(self._ends))


@final
class CudaQueue:
    """A CUDA stream for a logical device on a GPU. One thread at a time issues to it."""

    def __init__(
        self, cuda: Any, device: Device, readers: MemoryReaders, others: Sequence[int] = ()
    ) -> None:
        self.device = device
        self.stream = cuda.Stream(device.index)
        self._cuda, self._readers = cuda, readers
        self._on_others = [cuda.Stream(other) for other in others]
        self._reading: Any = ()

    def enter(self) -> None:
        """Let the calling thread issue to this stream from now on, and to separate streams on the
        other GPUs.

        A copy from another GPU runs on that one's current stream; PyTorch makes it wait for this
        one before and after.
        """
        for stream in (*self._on_others, self.stream):
            self._cuda.set_stream(stream)
        _here.queue = self

    def noting(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function's task a reader of its arguments' memory."""

        def read(*args: Any) -> Any:
            self._reading = args
            return fn(*args)

        return gives_new_memory(read) if getattr(fn, "new_memory", False) else read

    def use(self, value: Any) -> None:
        """Be a user of memory that another stream may have allocated."""
        for leaf in tree_leaves(value):
            if getattr(leaf, "is_cuda", False):
                leaf.record_stream(self.stream)

    def end_task(self) -> Any:
        """Return the event of all that was issued until now."""
        event = self.stream.record_event()
        self._readers.add(self._reading, self, event)
        self._reading = ()
        return event

    def wait(self) -> None:
        """Block until all that was issued is done; raises Failure if the GPU reports an error."""
        try:
            self.stream.synchronize()
        except Exception as error:
            raise Failure(error, self.device) from error


def _wait_for(event: Any, owner: CudaQueue) -> None:
    """Let the calling thread's stream wait for an event, or block if it has none; nothing comes
    before its own.
    """
    queue = getattr(_here, "queue", None)
    if queue is owner:
        return
    try:
        if queue is None:
            event.synchronize()
        else:
            queue.stream.wait_event(event)
    except Exception as error:
        # CUDA reports what goes wrong while a GPU computes to the next caller.
        raise Failure(error, owner.device) from error


def _has_come(event: Any) -> bool:
    # A GPU that answers with an error computes no more.
    with suppress(Exception):
        return bool(event.query())
    return True


@final
class _TaskEnd:
    """The end of a task. A CUDA stream that enters it waits behind its event, the host until the
    event has come.
    """

    __slots__ = ("_issued", "_queue", "event")

    def __init__(self, issued: Any, queue: CudaQueue) -> None:
        self._issued, self._queue = issued, queue
        self.event: Any = None

    def __enter__(self) -> None:
        with self._issued:
            pass
        if self.event is not None:
            _wait_for(self.event, self._queue)

    def __exit__(self, *_: object) -> None:
        pass

    def locked(self) -> bool:
        """Return whether the task is still to be issued: from then on, the memory that it reads
        knows of it.
        """
        return bool(self._issued.locked())


@final
class CudaFuture(Future):
    """A value that a CUDA stream will compute; set as soon as it is issued, for those that can wait
    for its event.
    """

    __slots__ = ("_ended", "_queue")

    def __init__(self, device: Device, queue: CudaQueue) -> None:
        super().__init__(device)
        self._queue = queue
        self.end = self._ended = _TaskEnd(self._pending, queue)

    def set_result(self, value: Any) -> None:
        """Set the value, which has been issued, and wake all that wait for it."""
        self._ended.event = self._queue.end_task()
        super().set_result(value)

    def set_exception(self, error: BaseException) -> None:
        # What was issued before the error may still be running. After some errors CUDA refuses
        # everything.
        with suppress(Exception):
            self._ended.event = self._queue.end_task()
        super().set_exception(error)

    def result(self) -> Any:
        """Return the value when the caller may use it, or raise the error that prevented it."""
        value = super().result()
        queue = getattr(_here, "queue", None)
        if queue is not self._queue:
            with self.end:
                pass
            if queue is not None:
                queue.use(value)
        return value


@final
class CudaStream(WorkerStream):
    """One worker thread that issues tasks to a CUDA stream in the order of their submission.

    No item of a result is announced: it has no separate event, and is ready when all of the result
    is.
    """

    def __init__(
        self,
        cuda: Any,
        device: Device,
        name: str,
        readers: MemoryReaders,
        others: Sequence[int] = (),
    ) -> None:
        # The thread refers to the queue, and not to this object, which would otherwise outlive its
        # last user.
        queue = CudaQueue(cuda, device, readers, others)
        super().__init__(device, name, set(), queue.enter)
        self._new_future = partial(CudaFuture, queue=queue)
        self._change = self._note = queue.noting

    @contextmanager
    def submitting(
        self, changed: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> Iterator[None]:
        """Meanwhile, let `changed(fn)` run in the place of every `fn` that is submitted; it still
        is a reader.
        """
        with super().submitting(lambda fn: self._note(changed(fn))):
            yield
