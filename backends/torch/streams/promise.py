"""Values that are still to be computed: promises, their items, and how to wait for them.

A promise may stand wherever a value does, however deep in tuples. An item of a promised tuple may be there before the
rest is: whoever computes the tuple announces it, and who waits for the item waits no longer.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeAlias, final

from backends.devices import Device

if TYPE_CHECKING:
    from backends.torch.streams.worker import WorkerStream

__all__ = ["Announcing", "Path", "Promise", "promises", "resolve"]

Path: TypeAlias = tuple[int, ...]
"""Where an item stands in a value: `(1, 0)` is that of `value[1][0]`."""
Done: TypeAlias = AbstractContextManager[object]
"""Who enters waits until something is done: a lock that is released then, or whatever does the same."""
Readers: TypeAlias = "dict[WorkerStream, Done]"

_items = threading.Lock()
_NO_VALUE = object()


class Promise:
    """A value that a stream will compute. `promise[i]` promises item i of a tuple; it cannot be iterated."""

    __slots__ = ("_announced", "_awaited", "_error", "_item_readers", "_pending", "_value", "device", "readers")
    __iter__ = None

    def __init__(self, device: Device) -> None:
        self.device = device
        # A bare lock costs a tenth of a threading.Event, and one is made per launched operation.
        self._pending = threading.Lock()
        self._pending.acquire()
        self._value: Any = _NO_VALUE
        self._error: BaseException | None = None
        self.readers: Readers = {}
        """For each stream, what tells when the last task there that reads this value is done, and so all before it."""
        # Made when they are needed: most promises are of one array, and thousands of them are queued.
        self._announced: dict[Path, Any] | None = None
        self._awaited: dict[Path, threading.Event] | None = None
        self._item_readers: dict[Path, Readers] | None = None

    def fulfil(self, value: Any) -> None:
        """Set the value and wake those who wait for it."""
        self._value = value
        self._pending.release()
        if self._awaited:
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Set the error that `result` will raise, here and for everything computed from this promise."""
        self._error = error
        self._pending.release()
        if self._awaited:
            self._wake()

    def announce(self, path: Path, value: Any) -> None:
        """Set an item of the value before the rest is there; the value must hold the same one."""
        with _items:
            if self._announced is None:
                self._announced = {}
            self._announced[path] = value
            event = self._awaited and self._awaited.get(path)
        if event:
            event.set()

    def result(self) -> Any:
        """Block until the value is there and return it, or raise the error that prevented it."""
        with self._pending:
            pass
        if self._error is not None:
            raise self._error
        return self._value

    def item(self, path: Path) -> Any:
        """Block until an item of the value is there and return it, or raise the error that prevented it."""
        if self._is_missing(path):
            with _items:
                if self._awaited is None:
                    self._awaited = {}
                event = self._awaited.setdefault(path, threading.Event())
            # Asked again: who sets the item or the value from now on finds the event, and sets it too.
            if self._is_missing(path):
                event.wait()
        if self._announced and path in self._announced:
            return self._announced[path]
        return reduce(getitem, path, self.result())

    def _is_missing(self, path: Path) -> bool:
        announced = self._announced is not None and path in self._announced
        return not announced and self._value is _NO_VALUE and self._error is None

    def conflicting_readers(self, path: Path = ()) -> Iterator[tuple["WorkerStream", Done]]:
        """Iterate over those who read the item at `path`, or what it is in, or an item of it."""
        yield from self.readers.items()
        for other, readers in (self._item_readers or {}).items():
            if all(mine == theirs for mine, theirs in zip(path, other, strict=False)):
                yield from readers.items()

    def readers_of_item(self, path: Path) -> "Readers":
        """Return the mutable readers of an item."""
        if self._item_readers is None:
            self._item_readers = {}
        return self._item_readers.setdefault(path, {})

    def _wake(self) -> None:
        with _items:
            for event in (self._awaited or {}).values():
                event.set()

    def __getitem__(self, index: int) -> "Promise":
        return _Item(self, (index,))

    def __repr__(self) -> str:
        return f"<promise on {self.device}, {'pending' if self._pending.locked() else 'done'}>"


@final
class _Item(Promise):
    __slots__ = ("_parent", "_path")

    def __init__(self, parent: Promise, path: Path) -> None:
        self.device, self.readers = parent.device, parent.readers_of_item(path)
        self._parent, self._path = parent, path

    def result(self) -> Any:
        return self._parent.item(self._path)

    def conflicting_readers(self, path: Path = ()) -> Iterator[tuple["WorkerStream", Done]]:
        return self._parent.conflicting_readers((*self._path, *path))

    def __getitem__(self, index: int) -> Promise:
        return _Item(self._parent, (*self._path, index))

    def __repr__(self) -> str:
        return f"<item {'.'.join(map(str, self._path))} of {self._parent!r}>"


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
class Announcing:
    """A function `fn(announce, *args)` that announces items of its result, `announce(path, value)`, before it returns.

    Called by anyone but a stream, it announces them to nobody.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(_to_nobody, *args)


def _to_nobody(path: Path, value: Any) -> None:
    del path, value
