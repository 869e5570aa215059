"""JAX behind the `Backend` protocol. Read it beside `mxnet/backend.py` and
`torch/worker_threads.py`.

XLA's client queues a program for each launch and returns; a value is JAX's own array, which never
changes. MXNet tracks who reads and writes which array, and here nothing is written: what is
consumed is forgotten, and what is overwritten is a new array. The synchronous engine is a client
without asynchronous dispatch: it runs a program where it is called.

On GPUs there is one client, and each GPU is a device. Copies between a GPU and the host go through
page-locked memory, where HOST is: others would hold the caller, and wait for what is computed.
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
from backends.base import BaseBackend, Setup
from backends.devices import HOST, Device, Wanted, elsewhere, foreign
from backends.errors import BackendError
from backends.host import check_workers, cores_of, threads_for
from backends.installation.frameworks import import_framework
from backends.installation.probe import reason_against
from backends.jax import gpus
from backends.jax.kernels import device_with_pool, named
from backends.protocol import Array, Engine, HostArray

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
    """JAX on CPU devices `cpu:1` … `cpu:N`, each a client of XLA with separate threads, or on whole
    GPUs.
    """

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
        with_gpus = gpus.may_be_used(devices, device_kind)
        if not with_gpus:
            gpus.choose(devices, device_kind, 0, reason_against)
        settings = gpus.settings_with(with_gpus)
        self._jax = import_framework("jax", settings, requirement="jax 0.10 or later")
        jax_gpus = gpus.found_by(self._jax) if with_gpus else []
        chosen, note = gpus.choose(devices, device_kind, len(jax_gpus), reason_against)
        self._on_gpus = chosen[0].kind == "gpu"
        cpu_count = 0 if self._on_gpus else len(chosen)
        threads = threads_per_device or threads_for(cpu_count, workers_per_device)
        from backends.jax import compiling, ops

        is_async = engine == "async"
        setup = Setup(
            self._jax, ops, engine, chosen, note, threads, workers_per_device, (), settings
        )
        if is_async:
            scheduler = "XLA's client: one queue per device"
            cores = cores_of(chosen, threads)
        else:
            scheduler = "none: XLA runs a program at once"
            cores = cores_of(chosen, None)
        super().__init__(setup, scheduler, cores)
        compiling.keep_programs()
        self._compiling, self._array = compiling, self._jax.Array
        self._places: dict[Device, Any] = {}
        """Where JAX puts the arrays of a device: a sharding, or a device of JAX's."""
        self._device_of_jax: dict[Any, Device] = {}
        self._start_clients(jax_gpus, is_async)
        self._under_way: dict[Device, deque[Any]] = {device: deque() for device in self._places}
        """Arrays that may not be computed yet, the oldest first."""
        self._replacing: dict[Device, deque[Any]] = {device: deque() for device in self._places}
        """Arrays that take the place of another value, and may not be copied yet."""
        self._checks: deque[tuple[Any, Device]] = deque()
        """Checks that programs made, and whose outcome is not known yet."""
        self._examining = threading.Lock()
        """Held by a thread that looks at the first item of a queue and removes it.

        Without it, another thread would remove the next item in its place.
        """

    def _start_clients(self, jax_gpus: Sequence[Any], is_async: bool) -> None:
        """Set `_device_of_jax` and `_places`: the devices of JAX that serve this backend's devices.

        JAX's devices of CPUs are made, each with a client and a pool of threads.
        """
        sharding = self._jax.sharding.SingleDeviceSharding
        threads = self.threads_per_device
        if is_async:
            # One thread more than cores, which copies while the other threads compute.
            threads += 1
        jax_device_of: dict[Device, Any] = {}
        if self._on_gpus:
            for device in self.devices:
                jax_device_of[device] = jax_gpus[device.index]
            first_gpu = jax_device_of[self.devices[0]]
            self._places[HOST] = sharding(first_gpu, memory_kind=gpus.PINNED)
        else:
            for device, cores in zip(self.devices, self.cores, strict=True):
                jax_device_of[device] = device_with_pool(
                    device.index, frozenset(cores), threads, is_async
                )
        # To a sharding JAX copies asynchronously. To a device it copies on the calling thread, in a
        # third of the time.
        copies_asynchronously = is_async or self._on_gpus
        for device, jax_device in jax_device_of.items():
            self._device_of_jax[jax_device] = device
            self._places[device] = sharding(jax_device) if copies_asynchronously else jax_device

    @property
    def scheduler(self) -> str:
        """The queue that does the work, and the seconds of compiling, which no timing holds."""
        compiled = self._compiling.compiled
        programs = f"{compiled.programs} programs compiled in {compiled.seconds:.1f} s"
        return f"{self._scheduler}; {programs}, in first launches"

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Enqueue `fn(*args)` as one compiled program on the device of the first array."""
        device = self.device_of(self._first_array(args, self._array))
        if device not in self.devices:
            raise BackendError("jax computes nothing on the host beside GPUs: copy to a GPU first")
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
        """Block until the arrays of a value are computed, and return the value."""
        try:
            self._jax.block_until_ready(x)
        except Exception as error:
            self._fail(error, "at wait")
        # A program's checks are computed together with its result, and those of earlier programs
        # before.
        self._raise_failures()
        return x

    def waitall(self) -> None:
        """Block until all arrays that are under way are computed."""
        for device, arrays in self._under_way.items():
            try:
                self._jax.block_until_ready(list(arrays))
            except Exception as error:
                self._fail(error, f"on {device}")
        self._raise_failures()

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Enqueue a copy of a value; `out` is checked, and a new value takes its place."""
        place = self._of_device(self._places, device)
        self._check_copied(x, self._array)
        self._refuse_foreign(x)
        if out is not None:
            self._check_device_of_out(out, device)
        try:
            if out is not None:
                tree_map(lambda *pair: check_equal(pair, "copy_to with out"), out, x)
            copied = self._copies(x, place)
        except Exception as error:
            self._fail(error, f"on {device}")
        if out is not None:
            self._keep_few(device, copied)
        return self._issued(copied, device)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Enqueue the sum on the first value's device, and copies of the sum to the others."""

        def device_of_value(x: Array) -> Device:
            first_array = next(tree_leaves(x), None)
            return self.device_of(first_array)

        first_device, *other_devices = self._devices_of(xs, self._array, device_of_value)
        self._refuse_foreign(xs)
        try:
            arrays = list(tree_leaves(tuple(xs)))
            if len({id(array) for array in arrays}) < len(arrays):
                raise ValueError("allreduce cannot replace one array by two sums")
            for terms in zip(*map(tree_leaves, xs), strict=True):
                check_terms(terms)
            if not other_devices:
                return (xs[0],)
            first_place = self._places[first_device]
            gathered = [self._copies(x, first_place) for x in xs[1:]]
        except Exception as error:
            self._fail(error, f"on {first_device}")
        sums = [self.launch(_sum, xs[0], *gathered)]
        for device in other_devices:
            copied = self._copies(sums[0], self._places[device])
            sums.append(self._issued(copied, device))
        return tuple(sums)

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy a NumPy array, or a tuple of them, to a device."""
        place = self._of_device(self._places, device)
        self._check_host_arrays(x)
        return tree_map(lambda leaf: self._jax.device_put(_owned(leaf), place), x)

    def to_numpy(self, x: Array) -> Any:
        """Wait for a value, and return a copy as NumPy."""
        self.wait(x)
        if self._on_gpus:
            # An array on a GPU becomes NumPy's at a fraction of the bus's speed.
            x = self.wait(self._copies(x, self._places[HOST]))
        return tree_map(np.array, x)

    def device_of(self, x: Array) -> Device:
        """Return the device of an array; raises BackendError if another backend made it."""
        if not isinstance(x, self._array):
            raise BackendError(f"jax takes JAX's arrays, not {type(x).__name__}")
        device = self._named(x)
        if x.device in self._device_of_jax:
            return device
        if device in self.devices:
            raise BackendError(
                f"jax's array is on {device} of another backend: pass it on by to_numpy and asarray"
            )
        raise foreign(self.name, device, self.devices)

    def _named(self, x: Array) -> Device:
        """Return the logical device of an array, which may be another backend's."""
        if self._on_gpus and x.sharding.memory_kind == gpus.PINNED:
            return HOST
        return self._device_of_jax.get(x.device) or named(x.device)

    def _refuse_foreign(self, value: Array) -> None:
        """Raise BackendError for an array of a value that another backend made."""
        for leaf in tree_leaves(value):
            if isinstance(leaf, self._array):
                self.device_of(leaf)

    def _refuse_other_devices(self, device: Device, args: Sequence[Array]) -> None:
        """Raise BackendError if an argument of a program is not on the program's device.

        JAX has refused such a program already.
        """
        for leaf in tree_leaves(args):
            if not isinstance(leaf, self._array):
                continue
            other_device = self.device_of(leaf)
            if other_device != device:
                raise BackendError(
                    f"jax computes on one device, not on {device} and {other_device}: copy to one "
                    "first"
                )

    def _check_device_of_out(self, out: Array, device: Device) -> None:
        """Raise BackendError if an array of `out` is not on the device to which a copy is to go."""
        for leaf in tree_leaves(out):
            if not isinstance(leaf, self._array):
                continue
            device_of_out = self._named(leaf)
            if device_of_out != device:
                raise elsewhere(self.name, device_of_out, device)

    def _copies(self, x: Array, place: Any) -> Array:
        """Enqueue copies of a value's arrays to a place."""
        return tree_map(lambda leaf: self._jax.device_put(leaf, place, may_alias=False), x)

    def _issued(self, x: Array, device: Device) -> Array:
        """Note a value as under way on a device, or wait for it on the sync engine; return it."""
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
        """Wait until at most MOST_REPLACING copies are under way on a device."""
        # Other backends write to one memory repeatedly; here each copy that is under way has memory
        # of its own.
        replacing = self._replacing[device]
        replacing.extend(tree_leaves(copied))
        with self._examining:
            _forget_computed(replacing)
        while len(replacing) > MOST_REPLACING:
            # A failed copy raises its error where somebody waits for the copy.
            with suppress(Exception):
                with self._examining:
                    oldest = replacing.popleft()
                oldest.block_until_ready()

    def _raise_failures(self) -> None:
        """Raise ComputationError if a check that is computed has failed."""
        with self._examining:
            for under_way in (*self._under_way.values(), *self._replacing.values()):
                _forget_computed(under_way)
            # Each check comes first once: ready ones may stand behind those of a device that is
            # busy.
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
                    # The check stays, for other threads that wait now.
                    self._fail(ValueError(check.message), f"on {device}")
                self._checks.popleft()


def _owned(x: np.ndarray) -> np.ndarray:
    """Return a copy of a NumPy array, because JAX may use an array's memory as its own."""
    x = np.asarray(x)
    if x.dtype.name not in DTYPES:
        raise BackendError(
            f"jax has no arrays of {x.dtype}: convert it to another dtype, such as float32"
        )
    return np.array(x, dtype=x.dtype.newbyteorder("="), order="C")


def _sum(*xs: Array) -> Array:
    """Return the sum of values."""
    return tree_map(lambda *terms: reduce(plus, terms), *xs)


def _forget_computed(arrays: deque[Any]) -> None:
    """Remove the computed arrays at the beginning of a queue."""
    with suppress(IndexError):
        while arrays[0].is_ready():
            arrays.popleft()
