"""What a reader's engine is given: NumPy behind the protocol, divided into tasks.

How they run is the reader's part.
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
from backends.devices import Device, Wanted
from backends.errors import BackendError, ComputationError
from backends.numpy.backend import NumPyBackend
from backends.profiling.marks import Mark, function_name, task_text
from backends.protocol import Array, BaseBackend, HostArray, Setup

Span = tuple[str, str, float, float]
"""What was computed, on which thread, and the clock before and after."""


class Task:
    """A piece of work. Whoever computes it fills in `value` or `error`, and then sets `done`."""

    def __init__(
        self, what: str, device: Device, work: Callable[[], Any], engine: "Engine"
    ) -> None:
        self.what, self.kind = what, "copy" if what == "copy" else "compute"
        self.device = device
        """Whose queue it belongs to; of a copy, that of the source."""
        self.inputs: tuple[Task, ...] = ()
        """The tasks whose values it reads."""
        self.overwrites: tuple[Task, ...] = ()
        """The tasks whose memory it writes to."""
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.mark: AbstractContextManager[object] = nullcontext()
        """Under which it is computed, if somebody counts."""
        self._work: Any = work
        self._engine = engine

    def compute(self) -> Any:
        """Return the value.

        Raises what the computation raises, and RuntimeError if an input is not done.
        """
        start = perf_counter()
        try:
            with self.mark:
                return self._work()
        except BaseException as error:
            # Also if nobody asks for the value.
            self._engine.errors.append(error)
            raise
        finally:
            self._engine.spans.append(
                (self.what, threading.current_thread().name, start, perf_counter())
            )
            # The values behind these may be freed.
            self.inputs, self.overwrites, self._work = (), (), None


class Future:
    """The value of a task, or an item of it, on a device."""

    __iter__ = None

    def __init__(self, task: Task, device: Device, path: tuple[int, ...] = ()) -> None:
        self.task, self.device, self.path = task, device, path

    def __getitem__(self, index: int) -> "Future":
        return Future(self.task, self.device, (*self.path, index))

    def read(self) -> Any:
        """Return the value; raises the error of its task, and RuntimeError if that is not done."""
        if not self.task.done.is_set():
            raise RuntimeError(f"the result of {self.task.what} was read before it was ready")
        if self.task.error is not None:
            raise self.task.error
        value = self.task.value
        for index in self.path:
            value = value[index]
        return value


class Engine(BaseBackend):
    """NumPy with an engine to be built.

    Abstract in `start`, `submit`, `wait_for` and `wait_for_all`.
    """

    reuses_memory = False
    """Whether a copy with `out` writes to the memory of `out`, and not to new memory."""
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
        # A value that nobody holds is freed.
        self._tasks: WeakSet[Task] = WeakSet()
        # Several threads may call verbs, and only one of them submits.
        self._submitting = threading.Lock()
        self.start()

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        reads = _futures(args)
        if not reads:
            raise BackendError(
                f"{self.name}'s launch needs an array among its arguments: it says the device"
            )
        return self._submit(
            function_name(fn), reads[0].device, lambda: _owned(fn(*_read(args)), reads), reads
        )

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
        reads, targets = _futures(x), _futures(out)

        def work() -> Any:
            target = (
                out if out is None or self.reuses_memory else tree_map(np.empty_like, _read(out))
            )
            return self._numpy.copy_to(_read(x), device, out=_read(target))

        return self._submit("copy", device, work, (*reads, *targets), targets)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        self._check_values(xs, Future)
        reads, devices = _futures(tuple(xs)), [_futures(x)[0].device for x in xs]
        if not devices or len({*devices}) < len(devices):
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
        """Compute each task that is submitted meanwhile under a mark, which says when it ran."""
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
        task = Task(what, reads[0].device if what == "copy" and reads else device, work, self)
        if self._mark is not None:
            task.mark = self._mark(task_text(what, f"{task.device} {task.kind}"))
        task.inputs = tuple({future.task: None for future in reads})
        task.overwrites = tuple({future.task: None for future in writes if self.reuses_memory})
        with self._submitting:
            self._tasks.add(task)
            self.submit(task)
        return Future(task, device)

    def _check(self, future: Future) -> None:
        try:
            future.read()
        except BaseException as error:
            self._fail(error)


def _futures(value: Any) -> list[Future]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Future)]


def _read(value: Any) -> Any:
    """Put values in the place of futures."""
    if isinstance(value, tuple | list):
        return rebuilt(type(value), map(_read, value))
    return value.read() if isinstance(value, Future) else value


def _owned(value: Any, arguments: Sequence[Future]) -> Any:
    """Copy what shares memory: a view, or an argument."""
    given = {id(leaf) for leaf in tree_leaves(_read(arguments))}

    def own(x: Any) -> np.ndarray:
        array = np.asarray(x)
        return array.copy() if array.base is not None or id(x) in given else array

    return tree_map(own, value)
