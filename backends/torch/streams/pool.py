"""Streams that several worker threads serve: tasks begin in the order of their submission, and may end in any order.

What follows from that order in a stream of one worker, such a stream has to count. Its tasks have numbers, and a task
that writes to memory begins when all tasks before it are done, in its own stream, and in others those up to the last
that reads the memory. A task waits for earlier ones only, so program order excludes deadlock here too.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, final

from backends.devices import Device
from backends.torch.streams.promise import Promise, promises
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
        self._progress = _Progress()
        # Numbers must be in the queue's order, whoever submits: tasks that wait for numbers behind them wait for ever.
        self._submitting = threading.Lock()
        self._submitted = 0

    def submit(self, fn: Callable[..., Any], *args: Any) -> Promise:
        """Enqueue `fn(*args)`, with promises among the arguments replaced by their results; never blocks."""
        with self._submitting:
            promise = self._next_promise()
            self._read(args, promise)
            self._put((promise, fn, args, ()))
        return promise

    def submit_consuming(self, fn: Callable[..., Any], consumed: Any, *args: Any) -> Promise:
        """Enqueue `fn(consumed, *args)`, which writes to the first argument's memory; never blocks."""
        with self._submitting:
            readers = (reader for read in promises(consumed) for reader in read.conflicting_readers())
            before = [done for stream, done in readers if stream is not self]
            before.append(_Through(self._progress, self._submitted))
            promise = self._next_promise()
            self._read((consumed, *args), promise)
            self._put((promise, fn, (consumed, *args), before))
        return promise

    def barrier(self) -> Callable[[], object]:
        """Return a function that blocks until all tasks that were submitted before are done; never blocks itself."""
        return partial(self._progress.wait_through, self._submitted)

    def _next_promise(self) -> "_Numbered":
        self._submitted += 1
        return _Numbered(self.device, self._submitted, self._progress)

    def _read(self, args: tuple[Any, ...], promise: Promise) -> None:  # noqa: ARG002
        through = _Through(self._progress, self._submitted)
        for read in promises(*args):
            read.readers[self] = through


@final
class _Progress:
    """Which of the tasks 1, 2, 3, … are done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._through = 0
        self._done_beyond: set[int] = set()

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
    """What a stream of one worker has a lock for: who enters waits until all tasks up to a number are done."""

    def __init__(self, progress: _Progress, number: int) -> None:
        self._progress, self._number = progress, number

    def __enter__(self) -> None:
        self._progress.wait_through(self._number)

    def __exit__(self, *_: object) -> None:
        pass


@final
class _Numbered(Promise):
    """A promise that tells its stream's progress when it is kept or broken."""

    __slots__ = ("_number", "_progress")

    def __init__(self, device: Device, number: int, progress: _Progress) -> None:
        super().__init__(device)
        self._number, self._progress = number, progress

    def fulfil(self, value: Any) -> None:
        super().fulfil(value)
        self._progress.done(self._number)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self._progress.done(self._number)
