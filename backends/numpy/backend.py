"""NumPy behind the `Backend` protocol: the synchronous reference.

Read it beside `mxnet/backend.py` and `torch/worker_threads.py`: same verbs, same order. Nothing is
queued, so there is nothing to wait for, and every other backend's numbers are checked against this
one.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations, product
from typing import Any, final

import numpy as np

from backends.arrays import check_equal, check_terms, tree_leaves, tree_map
from backends.base import BaseBackend, Setup
from backends.devices import Device, Wanted, choose_devices, foreign
from backends.errors import BackendError
from backends.host import check_workers, cores_of, limit_blas_threads, threads_for
from backends.numpy import ops as numpy_ops
from backends.protocol import Array, Engine, HostArray
from backends.registry.variants import choose_variants

NUMBERS = "biufc"
"""The kinds of dtypes whose arrays hold numbers, and not objects, text or dates."""


@final
class NumPyBackend(BaseBackend):
    """NumPy; its devices are names for parts of one memory."""

    name = "numpy"
    works_after_fork = True

    def __init__(
        self,
        devices: Wanted,
        device_kind: str,
        engine: Engine | None,
        threads_per_device: int | None,
        workers_per_device: int = 1,
        variants: Sequence[str] = (),
    ) -> None:
        if engine == "async":
            raise BackendError(
                "numpy is the synchronous reference and has no async engine: use --engine sync"
            )
        check_workers(self.name, "sync", workers_per_device)
        own_variants = choose_variants(self.name, "sync", variants)
        chosen, note = choose_devices(
            self.name, device_kind, devices, gpus=0, workers=workers_per_device
        )
        threads = threads_per_device or threads_for(len(chosen), workers_per_device)
        setup = Setup(
            np, numpy_ops, "sync", chosen, note, threads, workers_per_device, own_variants, {}
        )
        super().__init__(
            setup, "none: NumPy computes on the calling thread", cores_of(chosen, None)
        )
        # NumPy read its environment when it was imported, before a backend was chosen.
        limit_blas_threads(self.name, threads)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Compute `fn(*args)` at once."""
        if not any(isinstance(leaf, np.ndarray) for leaf in tree_leaves(args)):
            raise BackendError(
                "numpy's launch needs an array among its arguments: it says the device"
            )
        return self._compute(fn, *args)

    def wait(self, x: Array) -> Array:
        return x

    def waitall(self) -> None:
        pass

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Copy a value at once, to new memory or to that of `out`."""
        self._check_device(device)
        self._check_copied(x, np.ndarray)
        if out is None:
            return self._compute(tree_map, np.copy, x)
        return self._compute(_overwrite, out, x)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Sum the values in their own memory."""
        self._check_values(xs, np.ndarray)
        if not 0 < len(xs) <= len(self.devices):
            raise BackendError(
                f"numpy's allreduce takes one value per device, of {len(self.devices)}, not "
                f"{len(xs)}"
            )
        return self._compute(_sum_in_place, tuple(xs))

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy an array of numbers, or a tuple of them."""
        self._check_device(device)
        self._check_host_arrays(x)
        for leaf in tree_leaves(x):
            if leaf.dtype.kind not in NUMBERS:
                raise BackendError(f"numpy's asarray takes arrays of numbers, not of {leaf.dtype}")
        return self._compute(tree_map, _load, x)

    def to_numpy(self, x: Array) -> Any:
        return self._compute(tree_map, np.array, x)

    def _compute(self, fn: Callable[..., Array], *args: Any) -> Array:
        """Return `fn(*args)` as a value of arrays; raises ComputationError if it fails."""
        try:
            # The other frameworks overflow without a warning, and so does their reference.
            with np.errstate(all="ignore"):
                return tree_map(_as_result, fn(*args))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(error)

    def _check_device(self, device: Device) -> None:
        """Raise BackendError for a device that this backend does not have."""
        if not isinstance(device, Device) or device not in self.devices:
            raise foreign(self.name, device, self.devices)


def _load(x: np.ndarray) -> np.ndarray:
    """Return a copy of an array, in this machine's order of bytes as in the other frameworks."""
    return np.array(x, dtype=x.dtype.newbyteorder("="))


def _as_result(x: Any) -> np.ndarray:
    """Return an array that can be written to; raises TypeError if `x` holds no numbers."""
    # NumPy returns results of no dimensions as numbers, and broadcasts as read-only views.
    array = np.asarray(x)
    if array.dtype.kind not in NUMBERS:
        raise TypeError(
            f"a value is an array of numbers, or a tuple of values, not {type(x).__name__}"
        )
    return array if array.flags.writeable else array.copy()


def _overwrite(out: Array, x: Array) -> Array:
    """Copy a value into the memory of `out`, and return `out`."""

    def check_pair(target: np.ndarray, source: np.ndarray) -> None:
        check_equal((target, source), "copy_to")

    tree_map(check_pair, out, x)
    targets = list(tree_leaves(out))
    sources = list(tree_leaves(x))
    _check_disjoint(targets, sources)
    for target, source in zip(targets, sources, strict=True):
        np.copyto(target, source)
    return out


def _sum_in_place(xs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Replace each value by the sum of all, and return the values."""
    _check_disjoint(list(tree_leaves(xs)))
    arrays_of_values = [tree_leaves(x) for x in xs]
    for terms in zip(*arrays_of_values, strict=True):
        check_terms(terms)
        first, *others = terms
        for other in others:
            first += other
        for other in others:
            np.copyto(other, first)
    return xs


def _check_disjoint(consumed: Sequence[np.ndarray], others: Iterable[np.ndarray] = ()) -> None:
    """Raise ValueError if a consumed array overlaps another consumed one, or one of `others`."""
    pairs_of_consumed = combinations(consumed, 2)
    pairs_with_others = product(consumed, others)
    for x, y in chain(pairs_of_consumed, pairs_with_others):
        # `may_share_memory` compares only bounds: fast, but true of arrays that alternate, too.
        if np.may_share_memory(x, y) and np.shares_memory(x, y):
            raise ValueError(
                "an array that is consumed shares memory with another one: its contents would be "
                "overwritten"
            )
