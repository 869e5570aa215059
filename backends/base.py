"""What this package's backends share: rows are divided alike, and the first failure ends a backend;
and the base of those that stand around another one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

import numpy as np

from backends.arrays import row_ranges, tree_leaves
from backends.devices import Device, foreign
from backends.errors import BackendError, ComputationError, message_of
from backends.protocol import VERBS, Array, Backend, Engine, FrameworkSettings, Ops

Value = TypeVar("Value")


class DelegatingBackend:
    """A backend around another one, `inner`. Abstract.

    What the protocol has and a derived class does not define is the inner backend's. Nothing is
    called in between: `launch`, say, is the inner backend's own, or what stands in its place by
    then.
    """

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        # Whatever else the inner backend has, such as a way to watch it, is true of it alone.
        if name in Backend.__annotations__ or name in vars(Backend):
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name}")


@dataclass(frozen=True)
class Setup:
    """The modules and settings that were chosen before a backend is made."""

    framework: Any
    """Its module."""
    ops: Ops
    engine: Engine
    devices: tuple[Device, ...]
    note: str
    """What a reader of results should know about the choice of devices, if anything."""
    threads_per_device: int
    workers_per_device: int
    variants: tuple[str, ...]
    settings: FrameworkSettings


class BaseBackend:
    """The base of this package's backends, which divide rows alike and end at their first failure.

    Abstract. Backends of other packages need not inherit from it.
    """

    name: str
    engine: Engine
    threads_per_device: int
    asarray: Callable[..., Array]
    works_after_fork = False
    """Whether a forked child may use it: a fork copies the calling thread, and not those that serve
    queues.
    """

    def __init__(self, setup: Setup, scheduler: str, cores: Sequence[set[int]]) -> None:
        self.version: str = setup.framework.__version__
        self.ops = setup.ops
        self.engine = setup.engine
        self.devices = setup.devices
        self.threads_per_device = setup.threads_per_device
        self.workers_per_device = setup.workers_per_device
        self.variants = setup.variants
        self.settings = setup.settings
        self.cores = cores
        self._scheduler = f"{scheduler}; {setup.note}" if setup.note else scheduler

    @property
    def scheduler(self) -> str:
        """Return the queue that does the work, in a sentence."""
        return self._scheduler

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        """Divide the rows of an array over devices; raises BackendError without rows or devices."""
        has_devices = isinstance(devices, Sequence) and len(devices) > 0
        has_rows = isinstance(x, np.ndarray) and x.ndim > 0
        if not has_devices or not has_rows:
            raise BackendError(
                f"{self.name}'s split_and_load needs an array with rows, and a device at least"
            )
        ranges = row_ranges(len(x), len(devices))
        return tuple(
            self.asarray(x[rows], device) for rows, device in zip(ranges, devices, strict=True)
        )

    def _check_host_arrays(self, x: Any) -> None:
        """Raise BackendError for what `asarray` does not take.

        Other frameworks would convert it, each in its way.
        """
        self._check_leaves(x, np.ndarray | np.generic, "loads arrays of NumPy")

    def _check_values(self, xs: Any, array: Any) -> None:
        """Raise BackendError unless `xs` is a list or tuple of values made of arrays of a type."""
        if not isinstance(xs, Sequence):
            raise BackendError(
                f"{self.name} sums a list or tuple of values, one per device, not "
                f"{type(xs).__name__}"
            )
        self._check_leaves(tuple(xs), array, "sums its arrays")

    def _check_copied(self, x: Any, array: Any) -> None:
        """Raise BackendError unless a value to be copied is made of arrays of a type."""
        self._check_leaves(x, array, "copies its arrays")

    def _check_leaves(self, x: Any, kinds: Any, takes: str) -> None:
        """Raise BackendError, which says what is taken, for a leaf of a value of other kinds."""
        for leaf in tree_leaves(x):
            if not isinstance(leaf, kinds):
                raise BackendError(
                    f"{self.name} {takes}, and tuples of them, not {type(leaf).__name__}"
                )

    def _first_array(self, args: Any, array: Any) -> Array:
        """Return the first array among a launch's arguments; raises BackendError without one."""
        for leaf in tree_leaves(args):
            if isinstance(leaf, array):
                return leaf
        raise BackendError(
            f"{self.name} launches on the device of the first array, and there is no array"
        )

    def _of_device(self, value_of: Mapping[Device, Value], device: Device) -> Value:
        """Return the value for a device that a caller names.

        It may be any object, also one that no dict can hold; then BackendError is raised.
        """
        try:
            return value_of[device]
        except (KeyError, TypeError):
            raise foreign(self.name, device, self.devices) from None

    def _devices_of(
        self, xs: Any, array: Any, device_of: Callable[[Array], Device]
    ) -> list[Device]:
        """Return the devices of values that are to be summed.

        Raises BackendError if there is no value, or if two are on one device.
        """
        self._check_values(xs, array)
        devices = [device_of(x) for x in xs]
        if not devices or len(set(devices)) < len(devices):
            names = ", ".join(map(str, devices)) or "none"
            raise BackendError(f"{self.name} sums one value per device, not of {names}")
        return devices

    def _fail(self, error: BaseException, place: str = "") -> NoReturn:
        """Raise ComputationError, now and from every verb that is called later.

        Later results would be garbage. `place` says where the computation failed.
        """
        raised = error
        # A ComputationError, of a group of processes say, says already what went wrong.
        if not isinstance(error, ComputationError):
            where = f"{self.name} {place}".rstrip()
            raised = ComputationError(f"{where}: {type(error).__name__}: {self._reason(error)}")
            raised.__cause__ = error
        message = (
            f"{self.name} refuses further work after a failure ({raised}): load the backend again"
        )
        self._refuse_from_now_on(ComputationError, message)
        raise raised

    def refuse_after_fork(self) -> None:
        """Refuse every verb in a process that was forked from the one that loaded this backend."""
        if self.works_after_fork:
            return
        message = (
            f"{self.name} was loaded before this process was forked, and its threads stayed "
            "behind: start processes by multiprocessing's 'spawn' method, or load the backend "
            "in the child"
        )
        self._refuse_from_now_on(BackendError, message)
        # A verb that was kept, `launch = backend.launch`, must find nothing to work with. What it
        # used is kept elsewhere: a framework may not be able to free it here.
        own = [name for name in vars(self) if name not in (*VERBS, *Backend.__annotations__)]
        stayed_behind = {name: vars(self).pop(name) for name in own}
        self.stayed_behind = stayed_behind
        self.__class__ = type(self.name, (_StayedBehind,), {"name": self.name, "message": message})

    def _refuse_from_now_on(self, error: type[BackendError], message: str) -> None:
        """Let every verb raise an error with this message from now on."""
        # Attributes of the object go before methods of its class, so the verbs themselves need not
        # ask at every call whether to refuse.
        refuse = partial(_refuse, error, message)
        for verb in VERBS:
            setattr(self, verb, refuse)

    def _reason(self, error: BaseException) -> str:
        """Return the line of an error's message that says what is wrong."""
        lines = message_of(error).strip().splitlines()
        return lines[0] if lines else "no reason given"


class _StayedBehind:
    """What is left of a backend in a forked child: what it says of itself."""

    message: str

    def __getattr__(self, name: str) -> NoReturn:
        raise BackendError(self.message)


def _refuse(error: type[BackendError], message: str, *_: object, **__: object) -> NoReturn:
    """Raise an error, whatever the arguments are."""
    raise error(message)
