"""Streams that several worker threads serve: tasks begin in the order of their submission, and may end in any order.

With one worker, that order alone keeps the tasks of a stream apart; such a stream counts instead. Its tasks have
numbers, and a task that writes to memory begins when all tasks before it are done in its own stream, and in others
those up to the last that reads the memory. A task waits for earlier ones only, so program order excludes deadlock here
too.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, final

from backends.devices import Device
from backends.torch.streams.future import Future
from backends.torch.streams.worker import WorkerStream

__all__ = ["PooledStream"]


@final
class PooledStream(WorkerStream):
    """A queue of tasks and `workers` threads that take them, first in, first out.

    All threads keep to `cores` together. It takes no part in collectives.
    """

    def __init__(self, device: Device, name: str, cores: set[int], prepare: Callable[[], None], workers: int) -> None:
        super().__init__(device, name, cores, prepare)
        for _ in range(1, workers):
            self._start_worker(name, cores, prepare)
        self._counter = _TaskCounter()
        # Not a method of the stream's own: a stream that referred to itself would outlive its last user.
        self._new_future = self._counter.new_future
        # Numbers must be in the queue's order: a task that waits for numbers behind its own would never end.
        self._submitting = threading.Lock()

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future:
        with self._submitting:
            return super().submit(fn, *args)

    def submit_consuming(self, fn: Callable[..., Any], consumed: Any, *args: Any) -> Future:
        with self._submitting:
            self._earlier = (_Through(self._counter, self._counter.submitted),)
            return super().submit_consuming(fn, consumed, *args)

    def barrier(self) -> Callable[[], object]:
        return partial(self._counter.wait_through, self._counter.submitted)


@final
class _TaskCounter:
    """Numbers the tasks 1, 2, 3, … and keeps which of them are done."""

    def __init__(self) -> None:
        self.submitted = 0
        self._changed = threading.Condition()
        self._through = 0
        self._done_beyond: set[int] = set()

    def new_future(self, device: Device) -> "_NumberedFuture":
        self.submitted += 1
        return _NumberedFuture(device, self.submitted, self)

    def done(self, number: int) -> None:
        with self._changed:
            self._done_beyond.add(number)
            while self._through + 1 in self._done_beyond:
                self._through += 1
                self._done_beyond.remove(self._through)
            self._changed.notify_all()

    def wait_through(self, number: int) -> None:
        """Block until all tasks up to this one are done."""
        with self._changed:
            self._changed.wait_for(lambda: self._through >= number)


@final
class _Through:
    """What a stream of one worker has a lock for: entering it blocks until all tasks up to a number are done."""

    def __init__(self, counter: _TaskCounter, number: int) -> None:
        self._counter, self._number = counter, number

    def __enter__(self) -> None:
        self._counter.wait_through(self._number)

    def __exit__(self, *_: object) -> None:
        pass


@final
class _NumberedFuture(Future):
    """A future that counts its task as done when it is set."""

    __slots__ = ("_counter", "_number")

    def __init__(self, device: Device, number: int, counter: _TaskCounter) -> None:
        super().__init__(device)
        self._number, self._counter = number, counter
        self.end = _Through(counter, number)

    def set_result(self, value: Any) -> None:
        super().set_result(value)
        self._counter.done(self._number)

    def set_exception(self, error: BaseException) -> None:
        super().set_exception(error)
        self._counter.done(self._number)
