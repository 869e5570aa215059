"""Streams that several worker threads serve: tasks begin in the order of their submission, and may end in any order.

A task that writes to memory waits for its readers in its own stream as it does for those in others.
"""

import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue
from typing import Any, final

from backends.torch.streams.future import Done
from backends.torch.streams.worker import WorkerStream


@final
class PooledStream(WorkerStream):
    """A queue of tasks and `workers` threads that take them, first in, first out.

    All threads keep to `cores` together. It takes no part in collectives.
    """

    def _make_take(self) -> Callable[[], Any]:
        # Not of the stream's own: a stream that referred to itself would outlive its last user.
        self._taken = _Taken(self._tasks)
        self._in_order = None
        return self._taken.take

    def barrier(self) -> Callable[[], object]:
        return self._end_of(self._taken.wait_for_earlier)


@final
class _Taken:
    """The task that each worker of a stream took last: its place in the order, and its end."""

    def __init__(self, tasks: "SimpleQueue[Any]") -> None:
        self._tasks, self._places = tasks, count()
        self._taking = threading.Lock()
        self._last: dict[int, tuple[int, Done]] = {}

    def take(self) -> Any:
        """Return the next task, for the calling thread."""
        with self._taking:
            task = self._tasks.get()
            if task is not None:
                self._last[threading.get_ident()] = next(self._places), task.end
        return task

    def wait_for_earlier(self) -> None:
        """Block until all tasks before the calling thread's own are done: no more than one on every other thread."""
        own, _ = self._last[threading.get_ident()]
        for place, end in list(self._last.values()):
            if place < own:
                with end:
                    pass
