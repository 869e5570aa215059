"""First-in, first-out queues for frameworks that have none: what CUDA calls streams, made of worker
threads.

Eager PyTorch computes on the calling thread. To let Python run ahead, each logical CPU device gets
one thread for computation and one for copies; `submit` returns a future at once. The worker waits
for a task's arguments that are futures. Every future was submitted before the tasks that use it, so
program order excludes deadlock.

Waiting for arguments is enough while tasks only read. A task that writes to an argument's memory
must also come after those that still read it; it names that argument as consumed. Tasks are
numbered for that, in the order of the program, and each of its arguments keeps the task's number
and end. A collective writes to the memory of several devices at once, by a task on each of their
streams.

Tasks may be shorter than what surrounds them, and both threads need the GIL. So a task is no object
beside its future, a future makes its rarer parts when they are needed, and arguments are replaced
in the loop itself: thousands of queued tasks leave the caches and are walked by the garbage
collector, which costs more than the instructions.

A task is put in its queue, a collective in all of its queues, by one call that nothing interrupts:
neither Ctrl-C nor another thread, whose tasks the parts of a collective would otherwise wait for,
and those for them. Only then does it count as a reader: one that never ran would never end.
"""

import atexit
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Lock
from typing import Any, final

from backends.devices import Device
from backends.host import on_cores
from backends.torch.streams.future import (
    NO_VALUE,
    Announcing,
    Failure,
    Future,
    ItemPath,
    futures_in,
    resolve,
)
from backends.torch.streams.sharing import link, share_memory, wait_for_readers

Change = Callable[[Callable[..., Any]], Callable[..., Any]]

PART_DONE: ItemPath = (sys.maxsize,)
"""What each part of a collective announces: no item of its value, but that its own places are
written.
"""

SCALARS = frozenset((int, float, bool))
"""Most arguments that are no futures. To find that they are no sequences would take longer than to
queue them.
"""

_numbers = count()


class WorkerStream:
    """One worker thread that runs tasks in the order of their submission.

    The thread keeps to `cores`. `prepare` runs once in the thread, before the first task:
    thread-local settings belong there. `failure` is that of the first task that failed. Subclasses
    may have several `workers`.
    """

    def __init__(
        self,
        device: Device,
        name: str,
        cores: set[int],
        prepare: Callable[[], None],
        workers: int = 1,
    ) -> None:
        self.device = device
        self.name = name
        self.failure: Failure | None = None
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._in_order: object = self._tasks
        """An object that stands for this queue; None if its tasks may end in another order."""
        self._change: Change | None = None
        self._is_used = False
        """Whether a task was ever submitted: without one, nobody has to wait for the thread."""
        take = self._make_take()
        for _ in range(workers):
            # The thread must not keep its stream alive, or a dropped backend would leave its
            # threads behind.
            arguments = (take, weakref.ref(self), device, prepare)
            thread = threading.Thread(target=_serve, args=arguments, name=name, daemon=True)
            with on_cores(cores):
                thread.start()
            weakref.finalize(self, self._tasks.put, None)
            _queues[thread] = self._tasks

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future:
        """Enqueue `fn(*args)`, and return the future of its value; never blocks.

        `fn` gets the results of futures among the arguments.
        """
        return self.enqueue(fn, args)

    def enqueue(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Future:
        """Do what `submit` does, for arguments that are a tuple already."""
        future = Future(self.device)
        number = next(_numbers)
        queue = self._in_order
        future.fn = fn if self._change is None else self._change(fn)
        future.args = args
        future.wait_for_turn = None
        self._is_used = True
        self._tasks.put(future)
        for arg in args:
            if isinstance(arg, Future):
                arg.add_reader(number, future.end, queue)
            elif arg.__class__ not in SCALARS and isinstance(arg, tuple | list):
                for read in futures_in(arg):
                    read.add_reader(number, future.end, queue)
        return future

    def submit_consuming(self, fn: Callable[..., Any], consumed: Any, *args: Any) -> Future:
        """Enqueue `fn(consumed, *args)`, which writes to the memory of `consumed`; never blocks."""
        future = Future(self.device)
        number = next(_numbers)
        future.fn = fn if self._change is None else self._change(fn)
        future.args = (consumed, *args)
        future.wait_for_turn = partial(wait_for_readers, futures_in(consumed), number)
        self._is_used = True
        self._tasks.put(future)
        for read in futures_in(consumed, *args):
            read.add_reader(number, future.end, self._in_order)
        return future

    def barrier(self) -> Callable[[], object]:
        """Return a function that blocks until all tasks that were submitted before are done.

        `barrier` itself never blocks.
        """
        return self._end_of(_nothing)

    @contextmanager
    def submitting(self, changed: Change) -> Iterator[None]:
        """Let `changed(fn)` run in the place of every `fn` submitted within a `with` block.

        Profilers need this.
        """
        before, self._change = self._change, changed
        try:
            yield
        finally:
            self._change = before

    def _make_take(self) -> Callable[[], Any]:
        """Return the function by which a worker takes its next task."""
        return self._tasks.get

    def _end_of(self, fn: Callable[[], None]) -> Callable[[], object]:
        """Return a function that waits for a task `fn` at the end of the queue."""
        if not self._is_used:
            return _nothing
        last_task = self.submit(fn)
        return partial(_wait_for, last_task.end)


@final
class PooledStream(WorkerStream):
    """A queue that several threads serve, all on the same `cores`.

    Tasks begin in the order of their submission, and may end in any order. A task that writes to
    memory waits for the readers of that memory in all streams, its own included. A pooled stream
    takes no part in collectives.
    """

    def _make_take(self) -> Callable[[], Any]:
        # A method of another object: a stream that referred to itself would outlive its last user.
        self._taken = _Taken(self._tasks)
        self._in_order = None
        return self._taken.take

    def barrier(self) -> Callable[[], object]:
        return self._end_of(self._taken.wait_for_earlier)


@final
class _Taken:
    """The task that each worker of a stream took last: its place in the order, and its end."""

    def __init__(self, tasks: "SimpleQueue[Any]") -> None:
        self._tasks, self._positions = tasks, count()
        self._taking = threading.Lock()
        self._last: dict[int, tuple[int, Lock]] = {}

    def take(self) -> Any:
        """Return the next task, for the calling thread."""
        with self._taking:
            task = self._tasks.get()
            if task is not None:
                self._last[threading.get_ident()] = next(self._positions), task.end
        return task

    def wait_for_earlier(self) -> None:
        """Block until all tasks before the calling thread's own task are done.

        Every other thread has at most one such task.
        """
        own_position, _ = self._last[threading.get_ident()]
        for position, end in list(self._last.values()):
            if position < own_position:
                _wait_for(end)


def _nothing() -> None:
    """Do nothing."""


def _wait_for(end: Lock) -> None:
    """Block until a task has ended."""
    with end:
        pass


def first_error(streams: Sequence[WorkerStream]) -> tuple[BaseException, Device] | None:
    """Block until all tasks of the streams are done, and return the first error with its device.

    None if no task has failed.
    """
    barriers = [stream.barrier() for stream in streams]
    for wait_until_done in barriers:
        wait_until_done()
    for stream in streams:
        failure = stream.failure
        if failure is not None:
            return failure.error, failure.device
    return None


def submit_collective(
    streams: Sequence[WorkerStream],
    fn: Callable[[tuple[Any, ...], int], object],
    values: tuple[Any, ...],
) -> tuple[Future, ...]:
    """Enqueue `fn(values, part)` on every stream, and return a future for each stream's own value.

    The futures are set after all parts. The parts write to the memory of all values, each to
    separate places. No stream may come twice. Never blocks.
    """
    results = tuple([Future(stream.device) for stream in streams])
    number = next(_numbers)

    def take_part(part: int) -> Any:
        """Run one part, then wait until all parts have written."""
        resolved = resolve(values)
        wait_for_readers(futures_in(values), number)
        fn(resolved, part)
        results[part].announce(PART_DONE, None)
        for other in results:
            other.item(PART_DONE)
        return resolved[part]

    for part, (stream, result) in enumerate(zip(streams, results, strict=True)):
        result.fn = take_part if stream._change is None else stream._change(take_part)
        result.args = (part,)
        result.wait_for_turn = None
        stream._is_used = True
    # `deque` runs through the map and keeps nothing: one call of C that puts each part in the queue
    # of its stream, so that nothing can come in between.
    queues = [stream._tasks for stream in streams]
    deque(map(SimpleQueue.put, queues, results), maxlen=0)
    for read in futures_in(values):
        # Each part ends when all parts have written.
        read.add_reader(number, results[0].end)
    return results


_queues: weakref.WeakKeyDictionary[threading.Thread, "SimpleQueue[Any]"] = (
    weakref.WeakKeyDictionary()
)
_closing = threading.Event()


def _serve(
    take: Callable[[], Any],
    stream: "weakref.ref[WorkerStream]",
    device: Device,
    prepare: Callable[[], None],
) -> None:
    """Run a stream's tasks one after the other, on the thread that calls this."""
    failure_of_prepare = None
    try:
        prepare()
    except BaseException as error:
        failure_of_prepare = Failure(error, device)
    while (future := take()) is not None:
        fn, args, wait_for_turn = future.fn, future.args, future.wait_for_turn
        # Only the result of a task is kept when it is done.
        future.fn, future.args, future.wait_for_turn = None, (), None
        arg = values = result = None
        try:
            if _closing.is_set():
                raise InterruptedError("the program ended before this was computed")
            if failure_of_prepare is not None:
                raise failure_of_prepare.with_traceback(None)
            values = []
            for arg in args:
                # Written out here, because a call of `resolve` costs as much as all else that is
                # done for an argument.
                if arg.__class__ is Future and arg.value is not NO_VALUE:
                    values.append(arg.value)
                elif arg.__class__ in SCALARS:
                    values.append(arg)
                else:
                    values.append(resolve(arg))
            if wait_for_turn is not None:
                wait_for_turn()
            if fn.__class__ is Announcing:
                result = fn.function(future.announce, *values)
            else:
                result = fn(*values)
                # A consumed value may not be used from now on, so its result has no other name.
                may_share = wait_for_turn is None and not getattr(fn, "new_memory", False)
                if may_share and share_memory(result, values):
                    link(future, result, futures_in(*args))
            # Nobody may ever read an item that is missing: waiting for everything tells of it.
            wrong_index = future.wrong_index(result)
            owner = stream() if wrong_index is not None else None
            if owner is not None and owner.failure is None:
                owner.failure = wrong_index
            del owner, wrong_index
            future.set_result(result)
        except BaseException as error:
            failure = error if isinstance(error, Failure) else Failure(error, device)
            owner = stream()
            if owner is not None and owner.failure is None:
                owner.failure = failure
            future.set_exception(failure)
            del owner, failure
        # The loop would otherwise keep the last result while it waits for the next task.
        del future, fn, args, arg, wait_for_turn, values, result


@atexit.register
def _close() -> None:
    """End all worker threads before the interpreter shuts down."""
    # Threads that are still inside a framework when the interpreter shuts down can crash it.
    _closing.set()
    for tasks in list(_queues.values()):
        tasks.put(None)
    for thread in list(_queues):
        thread.join(timeout=2)
