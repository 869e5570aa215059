"""MXNet behind the `Backend` protocol.

Read it beside `torch/worker_threads.py`: same verbs, same order. MXNet's engine queues every
operator, on CPUs too: Python returns at once, the engine tracks which operator reads and writes
which array, and each device's worker runs what is ready. So `launch` is `fn(*args)`, and a value is
MXNet's own array. The synchronous engine is MXNet's NaiveEngine, which runs every operator where it
is called. What is set before MXNet is imported stands in `loading.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache, partial
from math import prod
from typing import Any, NoReturn, final
from weakref import WeakSet

import numpy as np

from backends.arrays import check_terms, tree_leaves, tree_map
from backends.devices import HOST, Device, elsewhere, foreign
from backends.errors import BackendError, ComputationError, message_of
from backends.host import core_numbers, on_cores
from backends.protocol import Array, BaseBackend, HostArray, Setup
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

        self._mx, self._array, self._contexts = (
            setup.framework,
            setup.framework.nd.NDArray,
            contexts,
        )
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
        # If workers have all cores, Python takes one of theirs. To issue each device's operators
        # from its own core takes from each the same; otherwise they would meet late, one by all of
        # Python's time.
        shared = self.engine == "async" and set().union(*cores) == set(core_numbers())
        self._issued_on = dict(zip(contexts.values(), cores, strict=False)) if shared else {}
        _loaded.add(self)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        first = args[0] if args else None
        if not isinstance(first, self._array):
            # Most first arguments are arrays: to look for one takes a fifth of what it takes to
            # issue an operator.
            first = next(
                (leaf for leaf in tree_leaves(args) if isinstance(leaf, self._array)), None
            )
        if first is None:
            raise BackendError(
                f"{self.name} launches on the device of the first array, and there is no array"
            )
        self._refuse_foreign(first)
        try:
            if not isinstance(args[0], tuple):
                return fn(*args)
            with self._on_core_of(first):
                return fn(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if isinstance(error, BackendError) and fn in (self.ops.sgd, self.ops.sgd_while_finite):
                # It refused its arguments before it enqueued anything.
                raise
            self._fail(error, f"on {_name(first.ctx)}")

    def wait(self, x: Array) -> Array:
        for leaf in tree_leaves(x):
            try:
                leaf.wait_to_read()
            except Exception as error:
                # MXNet reports an error to the first wait only; what is read later is garbage
                # without a warning.
                self._fail_waiting(error, leaf)
        return x

    def waitall(self) -> None:
        try:
            self._mx.npx.waitall()
        except Exception as error:
            end_all(error)
            self._fail(error, f"on {' or '.join(map(str, self.devices))}")

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        context = self._context(device)
        self._refuse_foreign(x)
        try:
            if out is None:
                return tree_map(lambda leaf: self._copy(leaf, context), x)
            tree_map(lambda target, leaf: self._check_out(target, leaf, context), out, x)
            self._check_apart("copy_to", list(tree_leaves(out)), list(tree_leaves(x)))
            return tree_map(self._overwrite, out, x)
        except BackendError:
            raise
        except Exception as error:
            self._fail(error, f"on {device}")

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        self._check_values(xs, self._array)
        contexts = [leaf.ctx for x in xs for leaf in list(tree_leaves(x))[:1]]
        on_cpus = [context for context in contexts if context.device_type == "cpu"]
        if not xs or len(set(on_cpus)) < len(on_cpus):
            raise BackendError(
                f"{self.name} sums one value per device, not those on {_names(contexts) or 'none'}"
            )
        self._refuse_foreign(xs)
        try:
            for terms in zip(*map(tree_leaves, xs), strict=True):
                check_terms(terms)
            self._check_apart("allreduce", list(tree_leaves(xs)))
            # From the first device's core: the thread would stay on that of the last launch, and
            # take all from it.
            with self._on_core_of(*tree_leaves(xs[0])):
                if self._on_gpus or _bytes_of(xs[0]) < MXNET_SHARDED_BYTES:
                    return self._gather_and_broadcast(*xs)
                return self._sum_in_shards(*xs)
        except BackendError:
            raise
        except Exception as error:
            self._fail(error, f"on {_names(contexts)}")

    def asarray(self, x: HostArray, device: Device) -> Array:
        context = self._context(device)
        self._check_host_arrays(x)
        return tree_map(lambda leaf: self._load(leaf, context), x)

    def to_numpy(self, x: Array) -> Any:
        self.wait(x)
        return tree_map(lambda leaf: leaf.asnumpy(), x)

    def device_of(self, x: Array) -> Device:
        """Return the device of an array; the whole GPU for one of several devices on it."""
        return _device(x.ctx)

    def _on_core_of(self, *arrays: Array) -> AbstractContextManager[None]:
        # To change cores takes as long as to issue one operator: it is worth it for many, as for a
        # model's parameters.
        cores = self._issued_on.get(arrays[0].ctx) if arrays else None
        return on_cores(cores) if cores else nullcontext()

    def _context(self, device: Device) -> Any:
        try:
            return self._contexts[device]
        except (KeyError, TypeError):
            raise foreign(self.name, device, self.devices) from None

    def _refuse_foreign(self, value: Array) -> None:
        """Raise BackendError for an array on a device of another backend.

        Arrays are asked only if there are such devices, for to ask one takes a tenth of a launch.
        """
        if len(_contexts_of_all) > len(self._own_contexts):
            for leaf in tree_leaves(value):
                if isinstance(leaf, self._array) and leaf.ctx not in self._own_contexts:
                    raise foreign(self.name, _device(leaf.ctx), self.devices)

    def _check_out(self, out: Array, x: Array, context: Any) -> None:
        if out.ctx != context:
            raise elsewhere(self.name, _device(out.ctx), _device(context))
        if out.shape != x.shape or out.dtype != x.dtype:
            raise ValueError(
                f"a copy of {x.shape} {x.dtype} cannot be written to {out.shape} {out.dtype}"
            )

    def _load(self, x: np.ndarray, context: Any) -> Array:
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
        return self._overwrite(self._mx.np.empty(x.shape, dtype=x.dtype, ctx=context), x)

    def _gather_and_broadcast(self, first: Array, *others: Array) -> tuple[Array, ...]:
        total = tree_map(self._add_terms, first, *others)
        return (total, *(tree_map(self._overwrite, x, total) for x in others))

    def _add_terms(self, total: Array, *terms: Array) -> Array:
        for term in terms:
            # Operators take operands of two CPU contexts, but not otherwise of two contexts.
            on_cpus = not self._on_gpus or _both_on_cpus(total, term)
            self._mx.np.add(total, term if on_cpus else term.as_in_ctx(total.ctx), out=total)
        return total

    def _sum_in_shards(self, *xs: Array) -> tuple[Array, ...]:
        in_order = tuple(tree_map(self._in_plain_order, x) for x in xs)
        self._sum_shards(list(zip(*map(tree_leaves, in_order), strict=True)))
        return in_order

    def _in_plain_order(self, x: Array) -> Array:
        # A result of a convolution may lie in an order of MKL-DNN's own; `reshape` is an operator
        # that undoes it.
        return x if x.ndim <= 2 else x.reshape(-1).as_nd_ndarray().reshape(x.shape).as_np_ndarray()

    def _fail_waiting(self, error: Exception, x: Array) -> NoReturn:
        place = f"on {_name(x.ctx)}" if isinstance(x, self._array) else "at wait"
        # An operator's error reaches what was computed from its result.
        doubt = " (or on a device before it: MXNet does not say)" if len(self.devices) > 1 else ""
        failure = ComputationError(
            f"{self.name} {place}: {type(error).__name__}: {self._reason(error)}{doubt}"
        )
        failure.__cause__ = error
        self._fail(failure)

    def _reason(self, error: BaseException) -> str:
        # MXNet puts its stack trace before or after the sentence that matters.
        lines = [line.strip() for line in message_of(error).splitlines() if line.strip()]
        sentences = [line for line in lines if "Error" in line or "Check failed" in line]
        return (sentences or lines or [""])[-1].removeprefix(f"{type(error).__name__}: ")


def end_all(error: Exception) -> None:
    """Let every backend refuse further work: MXNet reports a failure once, and does not say whose
    it was.
    """
    for backend in list(_loaded):
        with suppress(ComputationError):
            backend._fail(error)


def _device(context: Any) -> Device:
    return Device(context.device_type, context.device_id)


def _name(context: Any) -> str:
    return f"{context.device_type}:{context.device_id}"


def _names(contexts: Sequence[Any]) -> str:
    return " and ".join(map(_name, contexts))


def _overwrite(nd: Any, out: Array, x: Array) -> Array:
    shape = x.shape
    if 0 in shape or shape == () or x.dtype == np.bool_:
        return _overwrite_by_source(out, x)
    # An operator runs on the device of its first operand: here on the destination, whose queue does
    # the copy.
    target, source = out.as_nd_ndarray(), x.as_nd_ndarray()
    rows, *row = shape
    if prod(row) >= FEWEST_IN_A_ROW:
        # Row by row: speed-up up to 3 over an assignment, which goes element by element.
        nd.contrib.index_copy(target, _all_rows(nd, rows, out.ctx), source, out=target)
    else:
        nd._internal._slice_assign(target, source, begin=(0,) * len(shape), end=shape, out=target)
    return out


@lru_cache(maxsize=256)
def _all_rows(nd: Any, rows: int, context: Any) -> Any:
    # Written by Python: an operator would stand in the queue, and in its trace.
    return nd.array(np.arange(rows, dtype=np.int32), ctx=context, dtype="int32")


def _overwrite_anywhere(nd: Any, out: Array, x: Array) -> Array:
    return _overwrite(nd, out, x) if _both_on_cpus(out, x) else _overwrite_by_source(out, x)


def _both_on_cpus(first: Array, second: Array) -> bool:
    return first.ctx.device_type == second.ctx.device_type == "cpu"


def _overwrite_by_source(out: Array, x: Array) -> Array:
    # MXNet's own copy between CPUs runs on the source's worker, behind its computation; GPUs have
    # workers for copies.
    return x.copyto(out)


def _bytes_of(x: Array) -> int:
    return sum(leaf.size * np.dtype(leaf.dtype).itemsize for leaf in tree_leaves(x))
