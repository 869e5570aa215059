"""First-in, first-out queues for frameworks that have none: what CUDA calls streams, made of worker threads.

Eager PyTorch computes on the calling thread. To let Python run ahead, each logical CPU device gets one thread for
computation and one for copies; `submit` returns a future at once. The worker waits for a task's arguments that are
futures. Every future was submitted before the tasks that use it, so program order excludes deadlock.

Waiting for arguments is enough while tasks only read. A task that writes to an argument's memory must also come after
the tasks on other streams that still read it; it names that argument as consumed. A collective writes to the memory of
several devices at once, by a task on each of their streams.

The order of one stream's tasks protects them from each other. If several workers serve one stream there is no such
order, and a `PooledStream` counts instead.
"""

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, final

from backends.devices import Device
from backends.host import on_cores
from backends.torch.streams.future import Announcing, Done, Future, futures_in, resolve

__all__ = ["WorkerStream", "first_error", "submit_collective"]


class WorkerStream:
    """One worker thread that runs tasks in the order of their submission.

    The thread keeps to `cores`. `prepare` runs once in it, before the first task: thread-local settings belong there.
    `error` is the first one that a task raised.
    """

    def __init__(self, device: Device, name: str, cores: set[int], prepare: Callable[[], None]) -> None:
        self.device = device
        self.name = name
        self.error: BaseException | None = None
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._put: Callable[[Any], None] = self._tasks.put
        self._new_future: Callable[[Device], Future] = Future
        # What a task that writes waits for in its own stream.
        self._earlier: tuple[Done, ...] = ()
        self._start_worker(name, cores, prepare)

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future:
        """Enqueue `fn(*args)`, with futures among the arguments replaced by their results; never blocks."""
        future = self._new_future(self.device)
        self._read(args, future)
        self._put((future, fn, args, ()))
        return future

    def submit_consuming(self, fn: Callable[..., Any], consumed: Any, *args: Any) -> Future:
        """Enqueue `fn(consumed, *args)`, which writes to the first argument's memory; never blocks."""
        readers = (reader for read in futures_in(consumed) for reader in read.conflicting_readers())
        others = [end for stream, end in readers if stream is not self]
        future = self._new_future(self.device)
        self._read((consumed, *args), future)
        self._put((future, fn, (consumed, *args), (*self._earlier, *others)))
        return future

    def barrier(self) -> Callable[[], object]:
        """Return a function that blocks until all tasks that were submitted before are done; never blocks itself."""
        return self.submit(_nothing).result

    @contextmanager
    def submitting(self, changed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
        """Meanwhile, let `changed(fn)` run in the place of every `fn` that is submitted: for profilers."""
        put = self._put

        def put_changed(task: Any) -> None:
            future, fn, *rest = task
            put((future, changed(fn), *rest))

        self._put = put_changed
        try:
            yield
        finally:
            self._put = put

    def _start_worker(self, name: str, cores: set[int], prepare: Callable[[], None]) -> None:
        # The thread must not keep its stream alive, or a dropped backend would leave its threads behind.
        thread = threading.Thread(target=_serve, args=(self._tasks, weakref.ref(self), prepare), name=name, daemon=True)
        with on_cores(cores):
            thread.start()
        weakref.finalize(self, self._tasks.put, None)
        _queues[thread] = self._tasks

    def _read(self, args: tuple[Any, ...], future: Future) -> None:
        for read in futures_in(*args):
            read.readers[self] = future.end


def _nothing() -> None:
    pass


def first_error(streams: Sequence[WorkerStream]) -> tuple[BaseException, Device] | None:
    """Block until all that was submitted to the streams is done; return the first error there, and its device."""
    for wait_until_done in [stream.barrier() for stream in streams]:
        wait_until_done()
    return next(((stream.error, stream.device) for stream in streams if stream.error is not None), None)


def submit_collective(
    streams: Sequence[WorkerStream], fn: Callable[[tuple[Any, ...], int], object], values: tuple[Any, ...]
) -> tuple[Future, ...]:
    """Enqueue `fn(values, part)` on every stream; return a future of each stream's own value, set after all parts.

    The parts write to the memory of all values, each to places of its own. Never blocks.
    """
    # Two collectives in different order on two streams would wait for each other.
    with _collectives:
        readers = [end for read in futures_in(values) for _, end in read.conflicting_readers()]
        collective = _Collective(fn, values, [Future(stream.device) for stream in streams])
        results = tuple(Future(stream.device) for stream in streams)
        for part, (stream, result) in enumerate(zip(streams, results, strict=True)):
            stream._read(values, result)
            stream._put((result, collective.take_part, (part,), readers))
    return results


@final
class _Collective:
    def __init__(self, fn: Callable[[tuple[Any, ...], int], object], values: Any, parts: list[Future]) -> None:
        self.fn, self.values, self.parts = fn, values, parts

    def take_part(self, part: int) -> Any:
        try:
            values = resolve(self.values)
            self.fn(values, part)
        except BaseException as error:
            # The others wait for this part.
            self.parts[part].set_exception(error)
            raise
        self.parts[part].set_result(None)
        for other in self.parts:
            other.result()
        return values[part]


_queues: weakref.WeakKeyDictionary[threading.Thread, "SimpleQueue[Any]"] = weakref.WeakKeyDictionary()
_closing = threading.Event()
_collectives = threading.Lock()


def _serve(tasks: "SimpleQueue[Any]", stream: "weakref.ref[WorkerStream]", prepare: Callable[[], None]) -> None:
    prepare()
    while (task := tasks.get()) is not None:
        future, fn, args, readers = task
        try:
            if _closing.is_set():
                raise InterruptedError("the program ended before this was computed")
            for reader in readers:
                with reader:
                    pass
            if fn.__class__ is Announcing:
                future.set_result(fn.function(future.announce, *map(resolve, args)))
            else:
                future.set_result(fn(*map(resolve, args)))
        except BaseException as error:
            owner = stream()
            if owner is not None and owner.error is None:
                owner.error = error
            future.set_exception(error)
            del owner
        # The loop would otherwise keep the last result while it waits for the next task.
        del task, future, fn, args, readers


@atexit.register
def _close() -> None:
    # Threads that are still inside a framework when the interpreter shuts down can crash it.
    _closing.set()
    for tasks in list(_queues.values()):
        tasks.put(None)
    for thread in list(_queues):
        thread.join(timeout=2)
