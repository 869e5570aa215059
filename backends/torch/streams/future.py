"""Values that a stream will compute: futures, their items, and how to wait for them.

A future may stand wherever a value does, however deep in tuples. An item of a tuple may be ready
before the rest of it: the task that computes the tuple announces the item, and a reader of the item
waits no longer than that.
"""

import threading
from collections.abc import Callable
from functools import reduce
from operator import getitem, is_
from operator import index as as_whole_number
from threading import Lock, get_ident
from typing import Any, Self, TypeAlias, final
from weakref import WeakSet

from backends.arrays import rebuilt
from backends.devices import Device
from backends.errors import BackendError

ItemPath = tuple[int, ...]
"""The place of an item in a value: `(1, 0)` is that of `value[1][0]`."""
Reader: TypeAlias = "tuple[int, ItemPath, Lock]"
"""A task that reads a value: its number, the item that it reads, and its end."""

_items = threading.Lock()
_reading = threading.Lock()
NO_VALUE = object()
NO_ARRAY = (
    "launch and copy_to need an array of this backend among their arguments: it says the device"
)
MANY_READERS = 64


@final
class Failure(Exception):  # noqa: N818
    """The error that a task raised, and the task's device.

    All tasks that depend on a failed one fail with the same Failure.
    """

    def __init__(self, error: BaseException, device: Device) -> None:
        super().__init__(error, device)
        self.error, self.device = error, device


class Future:
    """A value that a stream will compute.

    `future[i]` is a future of item i of a tuple. A future cannot be iterated.
    """

    __slots__ = (
        "__weakref__",
        "_announced",
        "_awaited",
        "_error",
        "_indexed",
        "_readers",
        "args",
        "device",
        "end",
        "fn",
        "sharing",
        "value",
        "wait_for_turn",
    )
    __iter__ = None
    path: ItemPath = ()
    # The task that computes this value, until it is computed. Thousands of tasks are queued, so a
    # task is no object of its own.
    fn: Callable[..., Any] | None
    args: tuple[Any, ...]
    wait_for_turn: Callable[[], object] | None

    def __init__(self, device: Device) -> None:
        self.device = device
        # A bare lock costs a tenth of a threading.Event, and every launch makes one.
        self.end = Lock()
        """Held until the task that computes this has ended."""
        self.end.acquire()
        self.value: Any = NO_VALUE
        """The value when it is computed, for those who know that it is."""
        self._error: BaseException | None = None
        # These are made when they are needed: most futures are of one array, and thousands of
        # futures are queued.
        self._readers: _Readers | None = None
        self.sharing: WeakSet[Future] | None = None
        """The futures whose values share memory with this one's, this one included."""
        self._announced: dict[ItemPath, Any] | None = None
        self._awaited: dict[ItemPath, threading.Lock] | None = None
        self._indexed: set[ItemPath] | None = None
        """The items that were asked for before the value was ready."""

    @property
    def root(self) -> "Future":
        """The future of which this is an item, or itself."""
        return self

    @property
    def readers(self) -> "list[Reader]":
        """The tasks that read this value or an item of it.

        Of tasks that end in the order of their calls, only the last one is listed.
        """
        return list(self._table().values())

    def on(self, device: Device) -> Self:
        """Set the device, whose queue takes launches with this value, and return this future."""
        self.device = device
        return self

    def set_result(self, value: Any) -> None:
        """Set the value and wake all that wait for it."""
        self.value = value
        self.end.release()
        if self._awaited:
            self._wake()

    def set_exception(self, error: BaseException) -> None:
        """Set the error that `result` raises, here and for all values computed from this one."""
        self._error = error
        self.end.release()
        if self._awaited:
            self._wake()

    def announce(self, path: ItemPath, value: Any) -> None:
        """Set an item before the whole value is ready; the value must then hold the same item."""
        with _items:
            if self._announced is None:
                self._announced = {}
            self._announced[path] = value
            awaited = self._awaited.pop(path, None) if self._awaited else None
        if awaited is not None:
            awaited.release()

    def result(self) -> Any:
        """Block until the value is ready and return it, or raise the error that prevented it."""
        with self.end:
            pass
        if self._error is not None:
            # Every raise adds to an error's traceback, and thousands may depend on this one.
            raise self._error.with_traceback(None)
        return self.value

    def item(self, path: ItemPath) -> Any:
        """Block until an item of the value is ready and return it, or raise its error."""
        if self._is_missing(path):
            with _items:
                if self._awaited is None:
                    self._awaited = {}
                if path not in self._awaited:
                    self._awaited[path] = threading.Lock()
                    self._awaited[path].acquire()
                awaited = self._awaited[path]
            # Checked again: a thread that sets the item or the value from now on sees the lock, and
            # releases it.
            if self._is_missing(path):
                with awaited:
                    pass
        if self._announced and path in self._announced:
            return self._announced[path]
        value = self.result()
        try:
            return reduce(getitem, path, value)
        except Exception as error:
            raise Failure(error, self.device) from error

    def wrong_index(self, value: Any) -> Failure | None:
        """Return the failure of an item that was asked for, and that the value, which is about to
        be set, does not have; None if it has all of them.
        """
        for path in tuple(self._indexed or ()):
            try:
                reduce(getitem, path, value)
            except Exception as error:
                return Failure(error, self.device)
        return None

    def _note_index(self, path: ItemPath) -> None:
        """Note that an item is asked for, which the task of a pending value checks when it ends."""
        if self.end.locked():
            if self._indexed is None:
                self._indexed = set()
            self._indexed.add(path)

    def _is_missing(self, path: ItemPath) -> bool:
        """Return whether neither the item, nor the value, nor an error is there."""
        if self._announced is not None and path in self._announced:
            return False
        return self.value is NO_VALUE and self._error is None

    def add_reader(self, number: int, end: Lock, queue: object = None) -> None:
        """Add a task to the readers, by its number and its end.

        Tasks of one `queue`, unless that is None, end in the order of their calls.
        """
        # Setting a key is one step: a lock would cost as much as all of this.
        readers = self._readers
        if readers is None:
            readers = self._table()
        if queue is not None:
            # Whoever waits for a thread's later task waits for its earlier ones too. The tasks of
            # two threads have no order.
            readers[queue, get_ident(), self.path] = number, self.path, end
        else:
            readers[number, self.path] = number, self.path, end
            if len(readers) > readers.many:
                readers.forget_done()

    def _table(self) -> "_Readers":
        """Return the table of readers, which is made when it is first needed."""
        with _reading:
            if self._readers is None:
                self._readers = _Readers()
            return self._readers

    def _wake(self) -> None:
        """Wake all that wait for an item, when the value or the error is there."""
        with _items:
            awaited, self._awaited = self._awaited, None
        if awaited is not None:
            for lock in awaited.values():
                lock.release()

    def __getitem__(self, index: int) -> "Future":
        path = (_whole_number(index),)
        self._note_index(path)
        return _Item(self, path)

    def __repr__(self) -> str:
        state = "pending" if self.end.locked() else "done"
        return f"<future on {self.device}, {state}>"


@final
class _Readers(dict[tuple[object, ...], Reader]):
    """The readers of a value.

    The key of a reader is its queue, thread and path if the queue's tasks end in order; if not, its
    number and path.
    """

    __slots__ = ("many",)

    def __init__(self) -> None:
        self.many = MANY_READERS

    def forget_done(self) -> None:
        """Drop the readers by number that are done; other keys may be set again at any time."""
        for key, (_, _, end) in self.copy().items():
            is_by_number = len(key) == 2
            if is_by_number and not end.locked():
                self.pop(key, None)
        # The next time comes when the readers have doubled. So each reader is looked at a few times
        # at most, however deep the queue is.
        self.many = max(MANY_READERS, 2 * len(self))


@final
class _Item(Future):
    """A future of an item of a tuple, however deep, which another future will hold."""

    __slots__ = ("_parent", "path")

    def __init__(self, parent: Future, path: ItemPath) -> None:
        self.device, self._readers = parent.device, parent._table()
        self._parent, self.path = parent, path

    @property
    def root(self) -> Future:
        return self._parent

    def result(self) -> Any:
        return self._parent.item(self.path)

    def __getitem__(self, index: int) -> Future:
        path = (*self.path, _whole_number(index))
        self._parent._note_index(path)
        return _Item(self._parent, path)

    def __repr__(self) -> str:
        return f"<item {'.'.join(map(str, self.path))} of {self._parent!r}>"


def _whole_number(index: object) -> int:
    """Return an index as a whole number; raises BackendError for a slice or a tuple."""
    try:
        return as_whole_number(index)  # type: ignore[arg-type]
    except TypeError:
        raise BackendError(
            "what may not be computed yet is indexed by one whole number, not by "
            f"{type(index).__name__}: wait for it, and divide it in a launched function"
        ) from None


def completed_future(device: Device, value: Any) -> Future:
    """Return a future of a value that is computed already."""
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
    raise BackendError(NO_ARRAY)


def resolve(value: Any) -> Any:
    """Return a value with the result of every future in it, however deep in tuples.

    Blocks until all are ready. Lists and named tuples keep their type; a list or a named tuple
    without futures is returned itself.
    """
    if isinstance(value, Future):
        return value.result()
    if isinstance(value, tuple | list):
        items = [resolve(item) for item in value]
        if value.__class__ is tuple:
            return tuple(items)
        is_unchanged = all(map(is_, items, value))
        return value if is_unchanged else rebuilt(type(value), items)
    return value


@final
class Announcing:
    """A function that announces items of its result before it returns.

    It is `function(announce, *args)`, and calls `announce(path, item)`. The items share no memory,
    with each other or with the arguments. A stream calls `function` itself; elsewhere the
    announcements go nowhere.
    """

    new_memory = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        return self.function(_discard, *args)


def _discard(path: ItemPath, value: Any) -> None:
    del path, value
