"""The base of a reader's engine: NumPy behind the protocol, divided into tasks.

The reader writes how the tasks run.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any
from weakref import WeakSet

import numpy as np

from backends.arrays import rebuilt, tree_leaves, tree_map
from backends.base import BaseBackend, Setup
from backends.devices import Device, Wanted
from backends.errors import BackendError, ComputationError
from backends.numpy.backend import NumPyBackend
from backends.profiling.marks import Mark, function_name, task_text
from backends.protocol import Array, HostArray

Span = tuple[str, str, float, float]
"""A computation: its name, its thread, and the clock before and after."""


class Task:
    """A piece of work. The thread that computes it sets `value` or `error`, and then `done`."""

    def __init__(
        self, what: str, device: Device, work: Callable[[], Any], engine: "Engine"
    ) -> None:
        self.what = what
        self.kind = "copy" if what == "copy" else "compute"
        self.device = device
        """The device whose queue it belongs to; for a copy, the source."""
        self.inputs: tuple[Task, ...] = ()
        """The tasks whose values it reads."""
        self.overwrites: tuple[Task, ...] = ()
        """The tasks whose memory it writes to."""
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.mark: AbstractContextManager[object] = nullcontext()
        """The mark under which it is computed while operations are counted."""
        self._work: Any = work
        self._engine = engine

    def compute(self) -> Any:
        """Compute and return the value.

        Raises the computation's error, and RuntimeError if an input is not done.
        """
        start = perf_counter()
        try:
            with self.mark:
                return self._work()
        except BaseException as error:
            # The engine keeps the error, because nobody may ask for the value.
            self._engine.errors.append(error)
            raise
        finally:
            thread = threading.current_thread().name
            self._engine.spans.append((self.what, thread, start, perf_counter()))
            # Without these references, values that nobody needs are freed.
            self.inputs, self.overwrites, self._work = (), (), None


class Future:
    """The value of a task, or an item of it, on a device."""

    __iter__ = None

    def __init__(self, task: Task, device: Device, path: tuple[int, ...] = ()) -> None:
        self.task, self.device, self.path = task, device, path

    def __getitem__(self, index: int) -> "Future":
        return Future(self.task, self.device, (*self.path, index))

    def read(self) -> Any:
        """Return the value; raises the task's error, and RuntimeError if the task is not done."""
        if not self.task.done.is_set():
            raise RuntimeError(f"the result of {self.task.what} was read before it was ready")
        if self.task.error is not None:
            raise self.task.error
        value = self.task.value
        for index in self.path:
            value = value[index]
        return value


class Engine(BaseBackend):
    """NumPy with an engine whose four methods `start`, `submit`, `wait_for` and `wait_for_all` the
    reader writes.
    """

    reuses_memory = False
    """Whether a copy with `out` writes to the memory of `out`, instead of new memory."""
    start: Callable[[], None]
    submit: Callable[[Task], None]
    wait_for: Callable[[Task], None]
    wait_for_all: Callable[[], None]

    def __init__(
        self, devices: Wanted, device_kind: str, engine: str | None, threads_per_device: int | None
    ) -> None:
        self.name = type(self).__name__
        if engine == "sync":
            raise BackendError(f"{self.name} has one engine, async")
        self._mark: Mark | None = None
        self._numpy = inner = NumPyBackend(devices, device_kind, "sync", threads_per_device)
        setup = Setup(
            np, inner.ops, "async", inner.devices, "", inner.threads_per_device, 1, (), {}
        )
        super().__init__(setup, f"{self.name}, an engine that a reader builds", inner.cores)
        self.spans: deque[Span] = deque(maxlen=10_000)
        self.errors: list[BaseException] = []
        # The set is weak, so that values that nobody needs are freed.
        self._tasks: WeakSet[Task] = WeakSet()
        # Several threads may call verbs, but only one at a time submits.
        self._submitting = threading.Lock()
        self.start()

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        reads = _futures(args)
        if not reads:
            raise BackendError(
                f"{self.name}'s launch needs an array among its arguments: it says the device"
            )

        def work() -> Any:
            return _owned(fn(*_read(args)), reads)

        return self._submit(function_name(fn), reads[0].device, work, reads)

    def wait(self, x: Array) -> Array:
        for future in _futures(x):
            self.wait_for(future.task)
            self._check(future)
        return x

    def waitall(self) -> None:
        with self._submitting:
            submitted = self._tasks.copy()
        self.wait_for_all()
        for task in submitted:
            self._check(Future(task, task.device))
        for error in self.errors:
            self._fail(error)

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        if device not in self.devices:
            raise BackendError(f"{self.name} has no device {device}")
        self._check_copied(x, Future)
        reads, targets = _futures(x), _futures(out)

        def work() -> Any:
            target = _read(out)
            if out is not None and not self.reuses_memory:
                target = tree_map(np.empty_like, target)
            return self._numpy.copy_to(_read(x), device, out=target)

        return self._submit("copy", device, work, (*reads, *targets), targets)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        self._check_values(xs, Future)
        reads = _futures(tuple(xs))
        devices = [_futures(x)[0].device for x in xs]
        if not devices or len(set(devices)) < len(devices):
            raise BackendError(
                f"{self.name}'s allreduce takes a value for each device, and at least one"
            )

        def total() -> Any:
            return self._numpy.allreduce([tree_map(np.array, _read(x)) for x in xs])[0]

        return tuple(self._submit("allreduce", device, total, reads) for device in devices)

    def asarray(self, x: HostArray, device: Device) -> Array:
        task = Task("asarray", device, lambda: None, self)
        try:
            task.value = self._numpy.asarray(x, device)
        except ComputationError as error:
            self._fail(error)
        task.done.set()
        return Future(task, device)

    @contextmanager
    def marking_operations(self, mark: Mark) -> Iterator[None]:
        """Compute each task that is submitted in this context under a mark, which has its times."""
        self._mark = mark
        try:
            yield
        finally:
            self._mark = None

    def to_numpy(self, x: Array) -> Any:
        return tree_map(np.array, _read(self.wait(x)))

    def _submit(
        self, what: str, device: Device, work: Any, reads: Sequence[Future], writes: Any = ()
    ) -> Future:
        """Submit a task, and return the future of its value on `device`.

        The task reads the values of the futures `reads`, and overwrites those of `writes`.
        """
        is_copy = what == "copy" and len(reads) > 0
        queue_device = reads[0].device if is_copy else device
        task = Task(what, queue_device, work, self)
        if self._mark is not None:
            task.mark = self._mark(task_text(what, f"{task.device} {task.kind}"))
        task.inputs = _tasks_of(reads)
        if self.reuses_memory:
            task.overwrites = _tasks_of(writes)
        with self._submitting:
            self._tasks.add(task)
            self.submit(task)
        return Future(task, device)

    def _check(self, future: Future) -> None:
        """Raise the error of a future's task, if there is one, as backends do."""
        try:
            future.read()
        except BaseException as error:
            self._fail(error)


def _futures(value: Any) -> list[Future]:
    """Return the futures in a value, which may be nested tuples and lists."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Future)]


def _tasks_of(futures: Sequence[Future]) -> tuple[Task, ...]:
    """Return the tasks of futures, each once."""
    return tuple(dict.fromkeys(future.task for future in futures))


def _read(value: Any) -> Any:
    """Return a value with the values of its futures in their places."""
    if isinstance(value, tuple | list):
        return rebuilt(type(value), map(_read, value))
    if isinstance(value, Future):
        return value.read()
    return value


def _owned(value: Any, arguments: Sequence[Future]) -> Any:
    """Return a value with copies of all arrays that are views, or arguments themselves."""
    ids_of_arguments = {id(leaf) for leaf in tree_leaves(_read(arguments))}

    def own(x: Any) -> np.ndarray:
        array = np.asarray(x)
        is_view = array.base is not None
        if is_view or id(x) in ids_of_arguments:
            return array.copy()
        return array

    return tree_map(own, value)
