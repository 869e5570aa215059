"""JAX behind the `Backend` protocol.

Read it beside `mxnet/backend.py` and `torch/worker_threads.py`. XLA's client queues a program for
each launch and returns; a value is JAX's own array, which never changes. MXNet tracks who reads and
writes which array, and here nothing is written: what is consumed is forgotten, and what is
overwritten is a new array. The synchronous engine is a client without asynchronous dispatch: it
runs a program where it is called.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from operator import add as plus
from typing import Any, final

import numpy as np

from backends.arrays import check_equal, check_terms, tree_leaves, tree_map
from backends.devices import Device, Wanted, choose_devices, cpu_devices, elsewhere, foreign
from backends.errors import BackendError
from backends.host import check_workers, cores_of, threads_for
from backends.installation.frameworks import import_framework
from backends.jax.kernels import device_with_pool, named
from backends.protocol import Array, BaseBackend, Engine, FrameworkSettings, HostArray, Setup

DTYPES = frozenset(
    (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
)
"""Other dtypes of NumPy would become one of these without a word."""
MOST_REPLACING = 32
"""Arrays that replace other arrays and are under way on a device; the next one waits, as XLA has it
for programs.
"""


@final
class JAXBackend(BaseBackend):
    """JAX on CPU devices `cpu:1` … `cpu:N`, each a client of XLA with separate threads."""

    name = "jax"

    def __init__(
        self,
        devices: Wanted,
        device_kind: str,
        engine: Engine | None,
        threads_per_device: int | None,
        workers_per_device: int = 1,
    ) -> None:
        engine = engine or "async"
        check_workers(self.name, engine, workers_per_device)
        if workers_per_device > 1:
            raise BackendError(
                "jax computes on a device in the order of launching, one by one: use --workers 1"
            )
        chosen, note = choose_devices(self.name, device_kind, devices, gpus=0)
        threads = threads_per_device or threads_for(cpu_devices(devices), workers_per_device)
        settings: FrameworkSettings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "true"}
        self._jax = import_framework("jax", settings, requirement="jax 0.10 or later")
        from backends.jax import compiling, ops

        asynchronous = engine == "async"
        setup = Setup(
            self._jax, ops, engine, chosen, note, threads, workers_per_device, (), settings
        )
        queue = (
            "XLA's client: one queue per device"
            if asynchronous
            else "none: XLA runs a program at once"
        )
        super().__init__(setup, queue, cores_of(chosen, threads if asynchronous else None))
        compiling.keep_programs()
        self._compiling, self._array = compiling, self._jax.Array
        # A thread more than cores: it copies while the other threads compute.
        clients = {
            device: device_with_pool(
                device.index, frozenset(cores), threads + asynchronous, asynchronous
            )
            for device, cores in zip(self.devices, self.cores, strict=True)
        }
        # To a place JAX copies asynchronously; to a device on the calling thread, in a third of the
        # time.
        self._places = {
            device: self._jax.sharding.SingleDeviceSharding(client) if asynchronous else client
            for device, client in clients.items()
        }
        self._names = {client: device for device, client in clients.items()}
        self._under_way: dict[Device, deque[Any]] = {device: deque() for device in self.devices}
        """Arrays of what may not be computed yet, the oldest first."""
        self._replacing: dict[Device, deque[Any]] = {device: deque() for device in self.devices}
        """Arrays of copies that take the place of another value."""
        self._checks: deque[tuple[Any, Device]] = deque()
        """Checks that programs made, and whose outcome is not known yet."""
        self._examining = threading.Lock()
        """A lock of the thread that takes out what is known.

        Another one would take what comes after it.
        """

    @property
    def scheduler(self) -> str:
        """The queue that does the work, and the seconds of compiling, which no timing holds."""
        compiled = self._compiling.compiled
        return (
            f"{self._scheduler}; {compiled.programs} programs compiled in "
            f"{compiled.seconds:.1f} s, in first launches"
        )

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        array = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, self._array)), None)
        if array is None:
            raise BackendError(
                f"{self.name} launches on the device of the first array, and there is no array"
            )
        device = self.device_of(array)
        try:
            result, checks = self._compiling.run(device, fn, args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._refuse_other_devices(device, args)
            self._fail(error, f"on {device}")
        self._checks.extend((check, device) for check in checks)
        return self._issued(result, device)

    def wait(self, x: Array) -> Array:
        try:
            self._jax.block_until_ready(x)
        except Exception as error:
            self._fail(error, "at wait")
        # A program gives its result and its checks at the same time, and those before it gave
        # theirs earlier.
        self._raise_failures()
        return x

    def waitall(self) -> None:
        for device, arrays in self._under_way.items():
            try:
                self._jax.block_until_ready(list(arrays))
            except Exception as error:
                self._fail(error, f"on {device}")
        self._raise_failures()

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        target = self._place(device)
        self._refuse_foreign(x)
        for leaf in () if out is None else tree_leaves(out):
            if isinstance(leaf, self._array) and self._names.get(leaf.device) != device:
                raise elsewhere(self.name, named(leaf.device), device)
        try:
            if out is not None:
                tree_map(lambda *pair: check_equal(pair, "copy_to with out"), out, x)
            copied = self._copies(x, target)
        except Exception as error:
            self._fail(error, f"on {device}")
        if out is not None:
            self._keep_few(device, copied)
        return self._issued(copied, device)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:

        def device_of_value(x: Array) -> Device:
            return self.device_of(next(tree_leaves(x), None))

        home, *devices = self._devices_of(xs, self._array, device_of_value)
        self._refuse_foreign(xs)
        try:
            _check_terms(xs)
            if not devices:
                return (xs[0],)
            gathered = [self._copies(x, self._places[home]) for x in xs[1:]]
        except Exception as error:
            self._fail(error, f"on {home}")
        total = self.launch(_sum, xs[0], *gathered)
        sums = [total]
        for device in devices:
            copied = self._copies(total, self._places[device])
            sums.append(self._issued(copied, device))
        return tuple(sums)

    def asarray(self, x: HostArray, device: Device) -> Array:
        target = self._place(device)
        self._check_host_arrays(x)
        return tree_map(lambda leaf: self._jax.device_put(_owned(leaf), target), x)

    def to_numpy(self, x: Array) -> Any:
        self.wait(x)
        return tree_map(np.array, x)

    def _place(self, device: Device) -> Any:
        """Return what JAX puts arrays on for a device."""
        try:
            return self._places[device]
        except (KeyError, TypeError):
            raise foreign(self.name, device, self.devices) from None

    def device_of(self, x: Array) -> Device:
        """Return the device of an array; raises BackendError for what is none of this backend's."""
        if not isinstance(x, self._array):
            raise BackendError(f"jax takes JAX's arrays, not {type(x).__name__}")
        if x.device in self._names:
            return self._names[x.device]
        device = named(x.device)
        if device in self.devices:
            raise BackendError(
                f"jax's array is on {device} of another backend: pass it on by to_numpy and asarray"
            )
        raise foreign(self.name, device, self.devices)

    def _refuse_foreign(self, value: Array) -> None:
        for leaf in tree_leaves(value):
            if isinstance(leaf, self._array):
                self.device_of(leaf)

    def _refuse_other_devices(self, device: Device, args: Sequence[Array]) -> None:
        """Raise BackendError if a program had arguments on other devices than its own.

        JAX has refused them.
        """
        for leaf in tree_leaves(args):
            if isinstance(leaf, self._array) and self.device_of(leaf) != device:
                raise BackendError(
                    f"jax computes on one device, not on {device} and {self.device_of(leaf)}: "
                    "copy to one first"
                )

    def _copies(self, x: Array, target: Any) -> Array:
        return tree_map(lambda leaf: self._jax.device_put(leaf, target, may_alias=False), x)

    def _issued(self, x: Array, device: Device) -> Array:
        if self.engine == "sync":
            try:
                self._jax.block_until_ready(x)
            except Exception as error:
                self._fail(error, f"on {device}")
            self._raise_failures()
            return x
        under_way = self._under_way[device]
        under_way.extend(tree_leaves(x))
        with self._examining:
            _forget_computed(under_way)
        return x

    def _keep_few(self, device: Device, copied: Array) -> None:
        # Other backends write to one buffer repeatedly; here each copy has separate memory until it
        # is computed.
        replacing = self._replacing[device]
        replacing.extend(tree_leaves(copied))
        with self._examining:
            _forget_computed(replacing)
        while len(replacing) > MOST_REPLACING:
            # A failure reaches the caller that waits for it.
            with suppress(Exception):
                with self._examining:
                    oldest = replacing.popleft()
                oldest.block_until_ready()

    def _raise_failures(self) -> None:
        with self._examining:
            for under_way in (*self._under_way.values(), *self._replacing.values()):
                _forget_computed(under_way)
            # All of them: what is ready may stand behind the checks of a device that is busy.
            for _ in range(len(self._checks)):
                check, device = self._checks[0]
                if not check.failed.is_ready():
                    self._checks.rotate(-1)
                    continue
                try:
                    failed = bool(check.failed)
                except Exception as error:
                    self._fail(error, f"on {device}")
                if failed:
                    # It stays, for other threads that wait now.
                    self._fail(ValueError(check.message), f"on {device}")
                self._checks.popleft()


def _owned(x: np.ndarray) -> np.ndarray:
    # JAX may use the memory of an array of NumPy as its own.
    x = np.asarray(x)
    if x.dtype.name not in DTYPES:
        raise BackendError(
            f"jax has no arrays of {x.dtype}: convert it to another dtype, such as float32"
        )
    return np.array(x, dtype=x.dtype.newbyteorder("="), order="C")


def _check_terms(xs: Sequence[Array]) -> None:
    leaves = [leaf for x in xs for leaf in tree_leaves(x)]
    if len({id(leaf) for leaf in leaves}) < len(leaves):
        raise ValueError("allreduce cannot replace one array by two sums")
    for terms in zip(*map(tree_leaves, xs), strict=True):
        check_terms(terms)


def _sum(*xs: Array) -> Array:
    return tree_map(lambda *terms: reduce(plus, terms), *xs)


def _forget_computed(arrays: deque[Any]) -> None:
    with suppress(IndexError):
        while arrays[0].is_ready():
            arrays.popleft()
