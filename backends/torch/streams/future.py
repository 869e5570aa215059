"""Values that a stream will compute: futures, their items, and how to wait for them.

A future may stand wherever a value does, however deep in tuples. An item of a tuple may be ready before the rest of it:
the task that computes the tuple announces the item, and a reader of the item waits no longer than that.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import reduce
from operator import getitem
from typing import Any, Self, TypeAlias, final

from backends.devices import Device
from backends.errors import BackendError

__all__ = [
    "Announcing",
    "Done",
    "Future",
    "ItemPath",
    "Readers",
    "completed_future",
    "device_of",
    "futures_in",
    "resolve",
]

ItemPath: TypeAlias = tuple[int, ...]
"""The place of an item in a value: `(1, 0)` is that of `value[1][0]`."""
Done: TypeAlias = AbstractContextManager[object]
"""Entering it blocks until something is done: a lock that is released then, or whatever does the same."""
Readers: TypeAlias = dict[object, Done]
"""For each stream, the end of the last task there that reads a value, and so of all such tasks before it."""

_items = threading.Lock()
NO_VALUE = object()


class Future:
    """A value that a stream will compute. `future[i]` is a future of item i of a tuple; it cannot be iterated."""

    __slots__ = ("_announced", "_awaited", "_error", "_item_readers", "_pending", "_value", "device", "end", "readers")
    __iter__ = None

    def __init__(self, device: Device) -> None:
        self.device = device
        # A bare lock costs a tenth of a threading.Event, and every launch makes one.
        self._pending = threading.Lock()
        self._pending.acquire()
        self.end: Done = self._pending
        """The end of the task that computes this."""
        self._value: Any = NO_VALUE
        self._error: BaseException | None = None
        self.readers: Readers = {}
        # Made when they are needed: most futures are of one array, and thousands of them are queued.
        self._announced: dict[ItemPath, Any] | None = None
        self._awaited: dict[ItemPath, threading.Event] | None = None
        self._item_readers: dict[ItemPath, Readers] | None = None

    def on(self, device: Device) -> Self:
        """Return this future as one of another device, whose queue takes what is launched with it."""
        self.device = device
        return self

    def set_result(self, value: Any) -> None:
        """Set the value and wake all that wait for it."""
        self._value = value
        self._pending.release()
        if self._awaited:
            self._wake()

    def set_exception(self, error: BaseException) -> None:
        """Set the error that `result` will raise, here and for everything computed from this future."""
        self._error = error
        self._pending.release()
        if self._awaited:
            self._wake()

    def announce(self, path: ItemPath, value: Any) -> None:
        """Set an item of the value before the rest is ready; the value must hold the same one."""
        with _items:
            if self._announced is None:
                self._announced = {}
            self._announced[path] = value
            event = self._awaited and self._awaited.get(path)
        if event:
            event.set()

    def result(self) -> Any:
        """Block until the value is ready and return it, or raise the error that prevented it."""
        with self._pending:
            pass
        if self._error is not None:
            raise self._error
        return self._value

    def item(self, path: ItemPath) -> Any:
        """Block until an item of the value is ready and return it, or raise the error that prevented it."""
        if self._is_missing(path):
            with _items:
                if self._awaited is None:
                    self._awaited = {}
                event = self._awaited.setdefault(path, threading.Event())
            # Checked again: a thread that sets the item or the value from now on sees the event, and sets it too.
            if self._is_missing(path):
                event.wait()
        if self._announced and path in self._announced:
            return self._announced[path]
        return reduce(getitem, path, self.result())

    def _is_missing(self, path: ItemPath) -> bool:
        announced = self._announced is not None and path in self._announced
        return not announced and self._value is NO_VALUE and self._error is None

    def conflicting_readers(self, path: ItemPath = ()) -> Iterator[tuple[object, Done]]:
        """Iterate over the readers of the item at `path`, of what it is in, and of its own items."""
        yield from self.readers.items()
        for other, readers in (self._item_readers or {}).items():
            if all(mine == theirs for mine, theirs in zip(path, other, strict=False)):
                yield from readers.items()

    def readers_of_item(self, path: ItemPath) -> Readers:
        """Return the mutable readers of an item."""
        if self._item_readers is None:
            self._item_readers = {}
        return self._item_readers.setdefault(path, {})

    def _wake(self) -> None:
        with _items:
            for event in (self._awaited or {}).values():
                event.set()

    def __getitem__(self, index: int) -> "Future":
        return _Item(self, (index,))

    def __repr__(self) -> str:
        return f"<future on {self.device}, {'pending' if self._pending.locked() else 'done'}>"


@final
class _Item(Future):
    __slots__ = ("_parent", "_path")

    def __init__(self, parent: Future, path: ItemPath) -> None:
        self.device, self.readers = parent.device, parent.readers_of_item(path)
        self._parent, self._path = parent, path

    def result(self) -> Any:
        return self._parent.item(self._path)

    def conflicting_readers(self, path: ItemPath = ()) -> Iterator[tuple[object, Done]]:
        return self._parent.conflicting_readers((*self._path, *path))

    def __getitem__(self, index: int) -> Future:
        return _Item(self._parent, (*self._path, index))

    def __repr__(self) -> str:
        return f"<item {'.'.join(map(str, self._path))} of {self._parent!r}>"


def completed_future(device: Device, value: Any) -> Future:
    """Return a future of a value that is there already."""
    future = Future(device)
    future.set_result(value)
    return future


def futures_in(*values: Any) -> list[Future]:
    """List the futures in values, however deep in tuples, from left to right."""
    futures = []
    for value in values:
        if isinstance(value, Future):
            futures.append(value)
        elif isinstance(value, tuple | list):
            futures += futures_in(*value)
    return futures


def device_of(*values: Any) -> Device:
    """Return the device of the first future in values; raises BackendError if there is none."""
    # Every launch asks: most arguments are futures themselves.
    for value in values:
        if isinstance(value, Future):
            return value.device
        if isinstance(value, tuple | list):
            for future in futures_in(*value):
                return future.device
    raise BackendError("launch and copy_to need an array of this backend among their arguments: it says the device")


def resolve(value: Any) -> Any:
    """Replace every future in a value, however deep in tuples, by its result; blocks until all are ready."""
    if isinstance(value, Future):
        return value.result()
    if isinstance(value, tuple | list):
        return tuple(map(resolve, value))
    return value


@final
class Announcing:
    """A function `fn(announce, *args)` that announces items of its result, `announce(path, value)`, before it returns.

    Outside a stream, which calls `function` itself, the announcements go nowhere.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        return self.function(_discard, *args)


def _discard(path: ItemPath, value: Any) -> None:
    del path, value
