"""MXNet behind the `Backend` protocol.

Read it beside `torch/worker_threads.py`: same verbs, same order. MXNet's engine queues every
operator, on CPUs too: Python returns at once, the engine tracks which operator reads and writes
which array, and each device's worker runs what is ready. So `launch` is `fn(*args)`, and a value is
MXNet's own array. The synchronous engine is MXNet's NaiveEngine, which runs every operator where it
is called. What is set before MXNet is imported stands in `loading.py`.

A Ctrl-C that falls into the freeing of an array (`NDArrayBase.__del__`) is lost, for Python ignores
what a destructor raises: in 13 of 216 tries a second one was needed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache, partial
from math import prod
from typing import Any, NoReturn, final
from weakref import WeakSet

import numpy as np

from backends.arrays import check_terms, tree_leaves, tree_map
from backends.base import BaseBackend, Setup
from backends.devices import HOST, Device, elsewhere, foreign
from backends.errors import BackendError, ComputationError, message_of
from backends.host import core_numbers, on_cores
from backends.protocol import Array, HostArray
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE

MXNET_SHARDED_BYTES = 2**20
"""From here on summing in shards is worth its 0.3 ms: a function in Python for each device."""

FEWEST_IN_A_ROW = 4
"""Shorter rows are copied sooner element by element."""

_loaded: "WeakSet[MXNetBackend]" = WeakSet()
"""They share MXNet's one engine."""
_contexts_of_all: set[Any] = set()
"""The contexts that any backend of this process was loaded with, and the host's."""


@final
class MXNetBackend(BaseBackend):
    """MXNet on CPU contexts `cpu(1)` … `cpu(N)`, on GPUs, or on both.

    Several logical devices on one GPU are one context. Its queue has two workers, each with a
    separate CUDA stream, or as many as there are such devices if they are named.
    """

    name = "mxnet"

    def __init__(
        self,
        setup: Setup,
        scheduler: str,
        cores: Sequence[set[int]],
        contexts: Mapping[Device, Any],
    ) -> None:
        super().__init__(setup, scheduler, cores)
        from backends.mxnet.engine import check_apart, sum_in_shards

        self._mx = setup.framework
        self._array = setup.framework.nd.NDArray
        self._contexts = contexts
        self._sum_shards, self._check_apart = sum_in_shards, check_apart
        # Ops copy to the host, whatever the devices are.
        self._own_contexts = {*contexts.values(), self._mx.cpu(0)}
        _contexts_of_all.update(self._own_contexts)
        self._on_gpus = HOST in contexts
        # Functions and not methods: a backend that referred to itself would outlive its last user.
        overwrite = _overwrite_anywhere if self._on_gpus else _overwrite
        self._overwrite: Callable[[Array, Array], Array] = partial(overwrite, self._mx.nd)
        if COPY_ON_COMPUTE_QUEUE.name in self.variants:
            self._overwrite = _overwrite_by_source
        # If the workers have all cores, Python runs on one of theirs and slows that device down. So
        # Python issues each device's operators from that device's core: all lose the same time.
        self._issued_on: dict[Any, set[int]] = {}
        workers_have_all_cores = set().union(*cores) == set(core_numbers())
        if self.engine == "async" and workers_have_all_cores:
            self._issued_on = dict(zip(contexts.values(), cores, strict=False))
        _loaded.add(self)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Call `fn(*args)`, whose operators MXNet's engine queues."""
        first = args[0] if args else None
        if not isinstance(first, self._array):
            # Most first arguments are arrays: to look for an array takes a fifth of the time that
            # it takes to issue an operator.
            first = self._first_array(args, self._array)
        self._refuse_foreign(first)
        try:
            if not isinstance(args[0], tuple):
                return fn(*args)
            with self._on_core_of(first):
                return fn(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            is_update = fn in (self.ops.sgd, self.ops.sgd_while_finite)
            if is_update and isinstance(error, BackendError):
                # The update refused its arguments before it enqueued anything.
                raise
            self._fail(error, f"on {_name(first.ctx)}")

    def wait(self, x: Array) -> Array:
        """Block until the arrays of a value are computed, and return the value."""
        for leaf in tree_leaves(x):
            try:
                leaf.wait_to_read()
            except Exception as error:
                # Only the first wait raises an error of MXNet's: later ones return garbage.
                self._fail_waiting(error, leaf)
        return x

    def waitall(self) -> None:
        """Block until all that MXNet's engine has queued is done."""
        try:
            self._mx.npx.waitall()
        except Exception as error:
            end_all(error)
            self._fail(error, f"on {' or '.join(map(str, self.devices))}")

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Queue the copies of a value's arrays, to new memory or to that of `out`."""
        context = self._of_device(self._contexts, device)
        self._check_copied(x, self._array)
        self._refuse_foreign(x)
        try:
            if out is None:
                return tree_map(lambda leaf: self._copy(leaf, context), x)
            tree_map(lambda target, source: self._check_out(target, source, context), out, x)
            self._check_apart("copy_to", list(tree_leaves(out)), list(tree_leaves(x)))
            return tree_map(self._overwrite, out, x)
        except BackendError:
            raise
        except Exception as error:
            self._fail(error, f"on {device}")

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Queue the sums: in shards on CPUs if arrays are long, else on the first device."""
        self._check_values(xs, self._array)
        first_arrays = [next(tree_leaves(x), None) for x in xs]
        contexts = [array.ctx for array in first_arrays if array is not None]
        cpu_contexts = [context for context in contexts if context.device_type == "cpu"]
        has_cpu_twice = len(set(cpu_contexts)) < len(cpu_contexts)
        if not xs or has_cpu_twice:
            names = _names(contexts) or "none"
            raise BackendError(f"{self.name} sums one value per device, not those on {names}")
        self._refuse_foreign(xs)
        try:
            for terms in zip(*map(tree_leaves, xs), strict=True):
                check_terms(terms)
            self._check_apart("allreduce", list(tree_leaves(xs)))
            # Otherwise all is issued from the core of the last launch, whose device loses the time.
            with self._on_core_of(*tree_leaves(xs[0])):
                if self._on_gpus or _bytes_of(xs[0]) < MXNET_SHARDED_BYTES:
                    return self._gather_and_broadcast(*xs)
                return self._sum_in_shards(*xs)
        except BackendError:
            raise
        except Exception as error:
            self._fail(error, f"on {_names(contexts)}")

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy a NumPy array, or a tuple of them, to a device's context."""
        context = self._of_device(self._contexts, device)
        self._check_host_arrays(x)
        return tree_map(lambda leaf: self._load(leaf, context), x)

    def to_numpy(self, x: Array) -> Any:
        self.wait(x)
        return tree_map(lambda leaf: leaf.asnumpy(), x)

    def device_of(self, x: Array) -> Device:
        """Return the device of an array; the whole GPU if several devices are on that GPU."""
        return _device(x.ctx)

    def _on_core_of(self, *arrays: Array) -> AbstractContextManager[None]:
        """Return the context in which operators on these arrays are to be issued."""
        # To change cores takes as long as to issue an operator, so callers do it for many operators
        # only, such as those on a model's parameters.
        cores = self._issued_on.get(arrays[0].ctx) if arrays else None
        return on_cores(cores) if cores else nullcontext()

    def _refuse_foreign(self, value: Array) -> None:
        """Raise BackendError for an array on a device of another backend.

        Arrays are asked only if there are such devices, because asking takes a tenth of a launch.
        """
        if len(_contexts_of_all) > len(self._own_contexts):
            for leaf in tree_leaves(value):
                if isinstance(leaf, self._array) and leaf.ctx not in self._own_contexts:
                    raise foreign(self.name, _device(leaf.ctx), self.devices)

    def _check_out(self, out: Array, x: Array, context: Any) -> None:
        """Raise an error unless an array can be copied to `out`, which lies on a context."""
        if out.ctx != context:
            raise elsewhere(self.name, _device(out.ctx), _device(context))
        if out.shape != x.shape or out.dtype != x.dtype:
            raise ValueError(
                f"a copy of {x.shape} {x.dtype} cannot be written to {out.shape} {out.dtype}"
            )

    def _load(self, x: np.ndarray, context: Any) -> Array:
        """Copy a NumPy array to a context; raises BackendError for an unknown dtype."""
        try:
            loaded = self._mx.np.empty(x.shape, dtype=x.dtype, ctx=context)
        except (KeyError, TypeError):
            raise BackendError(
                f"{self.name} has no arrays of {x.dtype}: convert it first"
            ) from None
        if x.size:
            # `mx.np.array` ends in this call too, and takes three times the time.
            loaded._sync_copyfrom(x)
        return loaded

    def _copy(self, x: Array, context: Any) -> Array:
        """Queue a copy of an array to new memory on a context."""
        return self._overwrite(self._mx.np.empty(x.shape, dtype=x.dtype, ctx=context), x)

    def _gather_and_broadcast(self, first: Array, *others: Array) -> tuple[Array, ...]:
        """Sum values into the first one, and copy the sum to the other ones."""
        total = tree_map(self._add_terms, first, *others)
        copies = [tree_map(self._overwrite, x, total) for x in others]
        return (total, *copies)

    def _add_terms(self, total: Array, *terms: Array) -> Array:
        """Add arrays, which may lie on other devices, to `total`, and return it."""
        for term in terms:
            # Operators take operands of two CPU contexts, but not otherwise of two contexts.
            are_on_cpus = not self._on_gpus or _both_on_cpus(total, term)
            operand = term if are_on_cpus else term.as_in_ctx(total.ctx)
            self._mx.np.add(total, operand, out=total)
        return total

    def _sum_in_shards(self, *xs: Array) -> tuple[Array, ...]:
        """Queue the sum of values on CPUs, each device summing a shard; return the sums."""
        sums = tuple(tree_map(self._in_plain_order, x) for x in xs)
        arrays_of_values = [tree_leaves(x) for x in sums]
        terms = list(zip(*arrays_of_values, strict=True))
        self._sum_shards(terms)
        return sums

    def _in_plain_order(self, x: Array) -> Array:
        """Return an array in the order of its rows, not in MKL-DNN's own."""
        if x.ndim <= 2:
            return x
        # A result of a convolution may lie in MKL-DNN's order; `reshape` is an operator that undoes
        # it.
        vector = x.reshape(-1).as_nd_ndarray()
        return vector.reshape(x.shape).as_np_ndarray()

    def _fail_waiting(self, error: Exception, x: Array) -> NoReturn:
        """Raise ComputationError for an error that waiting for an array raised."""
        place = f"on {_name(x.ctx)}" if isinstance(x, self._array) else "at wait"
        # An operator's error reaches all that is computed from its result, on other devices too.
        has_doubt = len(self.devices) > 1
        doubt = " (or on a device before it: MXNet does not say)" if has_doubt else ""
        failure = ComputationError(
            f"{self.name} {place}: {type(error).__name__}: {self._reason(error)}{doubt}"
        )
        failure.__cause__ = error
        self._fail(failure)

    def _reason(self, error: BaseException) -> str:
        """Return the sentence of an MXNet error that says what is wrong."""
        # MXNet puts its stack trace before or after the sentence that matters.
        lines = [line.strip() for line in message_of(error).splitlines() if line.strip()]
        sentences = [line for line in lines if "Error" in line or "Check failed" in line]
        candidates = sentences or lines or [""]
        return candidates[-1].removeprefix(f"{type(error).__name__}: ")


def end_all(error: Exception) -> None:
    """Let every MXNet backend refuse further work because of an error.

    MXNet raises a failure only once, and does not say of which backend it was.
    """
    for backend in list(_loaded):
        with suppress(ComputationError):
            backend._fail(error)


def _device(context: Any) -> Device:
    """Return the device of a context."""
    return Device(context.device_type, context.device_id)


def _name(context: Any) -> str:
    """Return the name of a context, as that of its device: `cpu:1`."""
    return f"{context.device_type}:{context.device_id}"


def _names(contexts: Sequence[Any]) -> str:
    """Return the names of contexts, with `and` between them."""
    return " and ".join(map(_name, contexts))


def _overwrite(nd: Any, out: Array, x: Array) -> Array:
    """Queue a copy between CPUs to the memory of `out`, on the queue of `out`, and return it."""
    shape = x.shape
    if 0 in shape or shape == () or x.dtype == np.bool_:
        return _overwrite_by_source(out, x)
    # An operator runs on the queue of its first operand: here that of the destination.
    target, source = out.as_nd_ndarray(), x.as_nd_ndarray()
    rows, *shape_of_row = shape
    if prod(shape_of_row) >= FEWEST_IN_A_ROW:
        # Up to 3 times as fast as an assignment, which goes element by element.
        nd.contrib.index_copy(target, _all_rows(nd, rows, out.ctx), source, out=target)
    else:
        nd._internal._slice_assign(target, source, begin=(0,) * len(shape), end=shape, out=target)
    return out


@lru_cache(maxsize=256)
def _all_rows(nd: Any, rows: int, context: Any) -> Any:
    """Return the numbers of all rows, an argument of the operator that copies row by row."""
    # Written by Python: an operator would stand in the queue, and in its trace.
    return nd.array(np.arange(rows, dtype=np.int32), ctx=context, dtype="int32")


def _overwrite_anywhere(nd: Any, out: Array, x: Array) -> Array:
    """Queue a copy to the memory of `out` when there are GPUs, and return `out`."""
    if _both_on_cpus(out, x):
        return _overwrite(nd, out, x)
    return _overwrite_by_source(out, x)


def _both_on_cpus(first: Array, second: Array) -> bool:
    """Return whether two arrays lie on CPU contexts."""
    return first.ctx.device_type == second.ctx.device_type == "cpu"


def _overwrite_by_source(out: Array, x: Array) -> Array:
    """Queue MXNet's own copy to the memory of `out`, and return `out`."""
    # Between CPUs this copy runs on the source's worker, behind its computation; GPUs have workers
    # for copies.
    return x.copyto(out)


def _bytes_of(x: Array) -> int:
    """Return the bytes of all arrays of a value."""
    return sum(leaf.size * np.dtype(leaf.dtype).itemsize for leaf in tree_leaves(x))
