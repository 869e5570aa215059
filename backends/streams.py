"""First-in, first-out queues for frameworks that have none: what CUDA calls streams, made of worker threads.

Eager PyTorch computes on the calling thread. To let Python run ahead, each logical CPU device gets one thread for
computation and one for copies; `submit` returns a promise at once. A task's arguments that are promises are waited
for in the worker. Every promise was submitted before the tasks that use it, so program order excludes deadlock.

Waiting for arguments is enough while tasks only read. A task that writes to an argument's memory must also come after
the tasks on other streams that still read it; it names that argument as consumed.
"""

import atexit
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, final

from backends.device import Device, on_cores

__all__ = ["Promise", "WorkerStream", "promises", "resolve"]


class Promise:
    """A value that a stream will compute. `promise[i]` promises item i of a tuple; it cannot be iterated."""

    __slots__ = ("_error", "_pending", "_value", "device", "readers")
    __iter__ = None

    def __init__(self, device: Device) -> None:
        self.device = device
        # A bare lock costs a tenth of a threading.Event, and one is made per launched operation.
        self._pending = threading.Lock()
        self._pending.acquire()
        self._value: Any = None
        self._error: BaseException | None = None
        self.readers: dict[WorkerStream, threading.Lock] = {}
        """For each stream, the lock of the last task there that reads this value: released when the task is done."""

    def fulfil(self, value: Any) -> None:
        """Set the value and wake those who wait for it."""
        self._value = value
        self._pending.release()

    def fail(self, error: BaseException) -> None:
        """Set the error that `result` will raise, here and for everything computed from this promise."""
        self._error = error
        self._pending.release()

    def result(self) -> Any:
        """Block until the value is there and return it, or raise the error that prevented it."""
        with self._pending:
            pass
        if self._error is not None:
            raise self._error
        return self._value

    def __getitem__(self, index: int) -> "Promise":
        return _Item(self, index)

    def __repr__(self) -> str:
        return f"<promise on {self.device}, {'pending' if self._pending.locked() else 'done'}>"


@final
class _Item(Promise):
    __slots__ = ("_index", "_parent")

    def __init__(self, parent: Promise, index: int) -> None:
        self.device, self.readers = parent.device, parent.readers
        self._parent, self._index = parent, index

    def result(self) -> Any:
        return self._parent.result()[self._index]

    def __repr__(self) -> str:
        return f"<item {self._index} of {self._parent!r}>"


def promises(*values: Any) -> list[Promise]:
    """List the promises in values, however deep in tuples, from left to right."""
    found = []
    for value in values:
        if isinstance(value, Promise):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += promises(*value)
    return found


def resolve(value: Any) -> Any:
    """Replace every promise in a value, however deep in tuples, by its result; blocks until all are there."""
    if isinstance(value, Promise):
        return value.result()
    if isinstance(value, tuple | list):
        return tuple(map(resolve, value))
    return value


@final
class WorkerStream:
    """One worker thread that runs tasks in the order of their submission.

    The thread keeps to `cores`. `prepare` runs once in it, before the first task: thread-local settings belong there.
    `error` is the first one that a task raised.
    """

    def __init__(self, device: Device, name: str, cores: set[int], prepare: Callable[[], None]) -> None:
        self.device = device
        self.error: BaseException | None = None
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._put = self._tasks.put
        # The thread must not keep its stream alive, or a dropped backend would leave its threads behind.
        thread = threading.Thread(target=_serve, args=(self._tasks, weakref.ref(self), prepare), name=name, daemon=True)
        with on_cores(cores):
            thread.start()
        weakref.finalize(self, self._tasks.put, None)
        _queues[thread] = self._tasks

    def submit(self, fn: Callable[..., Any], *args: Any) -> Promise:
        """Enqueue `fn(*args)`, with promises among the arguments replaced by their results; never blocks."""
        promise = Promise(self.device)
        self._read(args, promise)
        self._put((promise, fn, args, ()))
        return promise

    def submit_consuming(self, fn: Callable[..., Any], consumed: Any, *args: Any) -> Promise:
        """Enqueue `fn(consumed, *args)`, which writes to the first argument's memory; never blocks."""
        others = [lock for read in promises(consumed) for stream, lock in read.readers.items() if stream is not self]
        promise = Promise(self.device)
        self._read((consumed, *args), promise)
        self._put((promise, fn, (consumed, *args), others))
        return promise

    def _read(self, args: tuple[Any, ...], promise: Promise) -> None:
        for read in promises(*args):
            read.readers[self] = promise._pending


_queues: weakref.WeakKeyDictionary[threading.Thread, "SimpleQueue[Any]"] = weakref.WeakKeyDictionary()
_closing = threading.Event()


def _serve(tasks: "SimpleQueue[Any]", stream: "weakref.ref[WorkerStream]", prepare: Callable[[], None]) -> None:
    prepare()
    while (task := tasks.get()) is not None:
        promise, fn, args, readers = task
        try:
            if _closing.is_set():
                raise InterruptedError("the program ended before this was computed")
            for reader in readers:
                with reader:
                    pass
            promise.fulfil(fn(*map(resolve, args)))
        except BaseException as error:
            owner = stream()
            if owner is not None and owner.error is None:
                owner.error = error
            promise.fail(error)
            del owner
        # The loop would otherwise hold the last result while it waits for the next task.
        del task, promise, fn, args, readers


@atexit.register
def _close() -> None:
    # Threads that are still inside a framework when the interpreter goes down can crash it.
    _closing.set()
    for tasks in list(_queues.values()):
        tasks.put(None)
    for thread in list(_queues):
        thread.join(timeout=2)
