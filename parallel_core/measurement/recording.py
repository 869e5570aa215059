"""Recording of a program: a backend around a backend that keeps every operation as a task.

>>> recording = Recording(backend, one_by_one=True)
>>> train_step(recording, …)
>>> longest_path(recording.tasks)

The values that an operation is given show what it depends on. With `one_by_one` each operation is
waited for before the next one starts, so its seconds are its own, on every framework and engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from time import perf_counter
from typing import Any, final

import numpy as np

from backends import Array, Backend, Device
from backends.arrays import tree_leaves, tree_map
from backends.base import DelegatingBackend
from backends.protocol import HostArray
from parallel_core.measurement.task_graph import Kind, Task

ItemPath = tuple[int, ...]
"""The position of an item in a task's result: `(1, 0)` is that of `result[1][0]`."""
OnLaunch = Callable[[Device, Callable[..., Array], tuple[Any, ...]], object]
"""A function of the device, function and arguments that the recorded backend is given."""


def labelled(name: str, value: Array) -> Array:
    """Name the task that made a recorded value, and return the value.

    Values of other backends stay as they are.

    >>> hidden = labelled("layer 1", backend.launch(layer, parameters, x))
    """
    for leaf in _recorded(value):
        leaf.tasks[leaf.task] = replace(leaf.tasks[leaf.task], name=name)
    return value


@final
@dataclass(frozen=True, eq=False)
class Recorded:
    """A backend's value, or an item of one, with the task that makes it.

    It is as opaque as the value itself.
    """

    value: Array
    device: Device
    tasks: list[Task] = field(repr=False)
    """All tasks of its recording."""
    task: int
    path: ItemPath

    __iter__ = None

    def __getitem__(self, index: int) -> "Recorded":
        return replace(self, value=self.value[index], path=(*self.path, index))


@final
class Recording(DelegatingBackend):
    """A backend that passes every verb on to another one and keeps a task for each operation.

    All values must come from this recording; functions are launched as they are. An operation comes
    after the tasks that made its arguments. One that consumes a value (`allreduce`, `copy_to` with
    `out`, a launch of `ops.sgd` or `ops.sgd_while_finite`) also comes after all that read it. What
    a launched function consumes inside is not recorded.

    An allreduce is one task, on the device of its first value. `wait`, `waitall` and `to_numpy` are
    not tasks. `on_launch` is called before each launch.
    """

    def __init__(
        self, backend: Backend, one_by_one: bool = False, on_launch: OnLaunch | None = None
    ) -> None:
        super().__init__(backend)
        self._one_by_one, self._on_launch = one_by_one, on_launch
        self._tasks: list[Task] = []
        # For each task, the items of its result that are read, and the tasks that read them.
        self._readers: list[list[tuple[ItemPath, int]]] = []
        # Tasks whose bytes are still to be counted: a value that is not computed yet has no size.
        self._uncounted: dict[int, tuple[Array, int]] = {}

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The recorded tasks, in the order of the program.

        Waits for values whose bytes must be counted. A copy to another device moves its value's
        bytes; an allreduce of n values of S bytes moves 2(n − 1)·S, as both a star and a ring do.
        """
        for task, (value, factor) in self._uncounted.items():
            arrays = tree_leaves(self.inner.to_numpy(value))
            size = sum(array.nbytes for array in arrays)
            self._tasks[task] = replace(self._tasks[task], bytes=factor * size)
        self._uncounted.clear()
        return tuple(self._tasks)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        read = _recorded(args)
        if not read:
            raise ValueError(
                "launch needs a value of this recording among its arguments, which determines the "
                "device"
            )
        device, plain = read[0].device, tuple(map(_plain, args))
        called: Any = fn
        while isinstance(called, partial):
            called = called.func
        consumed: tuple[Recorded, ...] = ()
        if called == self.ops.sgd:
            consumed = _recorded(args[:1])
        elif called == self.ops.sgd_while_finite:
            consumed = _recorded(args[:2])
        name = str(getattr(called, "__name__", type(called).__name__))
        if self._on_launch is not None:
            self._on_launch(device, fn, plain)
        launch = partial(self.inner.launch, fn, *plain)
        task, result = self._do(name, device, "compute", read, consumed, launch)
        return self._wrapped(result, device, task)

    def wait(self, x: Array) -> Array:
        self.inner.wait(_plain(x))
        return x

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        consumed = _recorded(out)
        read = (*_recorded(x), *consumed)
        copy = partial(self.inner.copy_to, _plain(x), device, _plain(out))
        task, result = self._do("copy", device, "copy", read, consumed, copy)
        if any(value.device != device for value in _recorded(x)):
            self._uncounted[task] = (_plain(x), 1)
        return self._wrapped(result, device, task)

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        seconds, shards = self._timed(partial(self.inner.split_and_load, x, devices))

        def loaded(shard: Array, device: Device) -> Array:
            # One call loads all shards: each has an equal share of its time.
            task = Task("split_and_load", str(device), "load", seconds=seconds / len(devices))
            return self._wrapped(shard, device, self._append(task))

        return tuple(map(loaded, shards, devices))

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        read = _recorded(xs)
        devices = [_recorded(x)[0].device for x in xs]
        values = tuple(map(_plain, xs))
        allreduce = partial(self.inner.allreduce, values)
        task, sums = self._do("allreduce", devices[0], "allreduce", read, read, allreduce)
        self._uncounted[task] = (values[0], 2 * (len(values) - 1))
        recorded_sums = []
        for number, (total, device) in enumerate(zip(sums, devices, strict=True)):
            recorded_sums.append(self._wrapped(total, device, task, (number,)))
        return tuple(recorded_sums)

    def asarray(self, x: HostArray, device: Device) -> Array:
        load = partial(self.inner.asarray, x, device)
        task, result = self._do("asarray", device, "load", (), (), load)
        return self._wrapped(result, device, task)

    def to_numpy(self, x: Array) -> Any:
        return self.inner.to_numpy(_plain(x))

    def _do(
        self,
        name: str,
        device: Device,
        kind: Kind,
        read: Sequence[Recorded],
        consumed: Sequence[Recorded],
        operation: Callable[[], Any],
    ) -> tuple[int, Any]:
        """Do an operation that reads and consumes values; return its task and its result."""
        after = {value.task for value in read}
        for value in consumed:
            # The tasks that read the same item, an item of it, or one that contains it.
            for path, reader in self._readers[value.task]:
                if all(map(_may_be_same, value.path, path)):
                    after.add(reader)
        seconds, result = self._timed(operation)
        task = self._append(Task(name, str(device), kind, tuple(sorted(after)), seconds))
        for value in read:
            self._readers[value.task].append((value.path, task))
        return task, result

    def _timed(self, operation: Callable[[], Any]) -> tuple[float, Any]:
        if not self._one_by_one:
            return 0.0, operation()
        self.inner.waitall()
        start = perf_counter()
        result = operation()
        self.inner.waitall()
        return perf_counter() - start, result

    def _append(self, task: Task) -> int:
        self._tasks.append(task)
        self._readers.append([])
        return len(self._tasks) - 1

    def _wrapped(self, value: Array, device: Device, task: int, path: ItemPath = ()) -> Array:
        if isinstance(value, tuple | list):
            return tuple(
                self._wrapped(item, device, task, (*path, index))
                for index, item in enumerate(value)
            )
        return Recorded(value, device, self._tasks, task, path)


def _may_be_same(index: int, other: int) -> bool:
    # A value that is not computed yet has no length: what its last item is, nobody knows.
    has_other_sign = (index < 0) != (other < 0)
    return index == other or has_other_sign


def _recorded(value: Any) -> tuple[Recorded, ...]:
    return tuple(leaf for leaf in tree_leaves(value) if isinstance(leaf, Recorded))


def _plain(value: Any) -> Any:
    return tree_map(_plain_leaf, value)


def _plain_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Recorded):
        return leaf.value
    if leaf is None or callable(leaf) or isinstance(leaf, Real | np.generic | str):
        return leaf
    # Its dependencies would be missing, and nobody would notice.
    raise ValueError(
        f"a recording takes only its own values, not a {type(leaf).__name__} from elsewhere"
    )
