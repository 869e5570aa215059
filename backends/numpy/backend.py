"""NumPy behind the `Backend` protocol: the synchronous reference. Same verbs and order as the other two files.

Nothing is queued, so nothing is ever waited for, and every other backend's numbers are checked against this one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, final

import numpy as np

from backends.arrays import check_equal, row_ranges, tree_leaves, tree_map
from backends.devices import Device, Wanted, choose_devices
from backends.errors import BackendError, ComputationError
from backends.host import check_workers, cores_of, limit_blas_threads, threads_for
from backends.numpy import ops as numpy_ops
from backends.protocol import Array, Engine, FrameworkSettings, HostArray, Ops
from backends.variants import choose_variants

__all__ = ["NumPyBackend"]


@final
class NumPyBackend:
    """NumPy; its devices are names for parts of one memory."""

    name = "numpy"

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
            raise BackendError("numpy is the synchronous reference and has no async engine: use --engine sync")
        self.engine: Engine = "sync"
        check_workers(self.name, self.engine, workers_per_device)
        self.variants = choose_variants(self.name, self.engine, variants)
        self.workers_per_device = workers_per_device
        self.settings: FrameworkSettings = {}
        self.ops: Ops = numpy_ops
        self.version = np.__version__
        self.devices, _ = choose_devices(self.name, device_kind, devices, gpus=0, workers=workers_per_device)
        self.threads_per_device = threads_per_device or threads_for(len(self.devices), workers_per_device)
        self.scheduler = "none: NumPy computes on the calling thread"
        self.cores: Sequence[set[int]] = cores_of(self.devices, None)
        self._failure: ComputationError | None = None
        # NumPy read its environment before anyone could choose a backend.
        limit_blas_threads(self.name, self.threads_per_device)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        if self._failure:
            self._refuse()
        try:
            # The other frameworks overflow without a word, and so does their reference.
            with np.errstate(all="ignore"):
                return fn(*args)
        except Exception as error:
            self._fail(error)

    def wait(self, x: Array) -> Array:
        if self._failure:
            self._refuse()
        return x

    def waitall(self) -> None:
        if self._failure:
            self._refuse()

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:  # noqa: ARG002
        if out is None:
            return self.launch(tree_map, np.copy, x)
        return self.launch(tree_map, _overwrite, out, x)

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        return tuple(
            self.asarray(x[rows], device)
            for rows, device in zip(row_ranges(len(x), len(devices)), devices, strict=True)
        )

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        return self.launch(_sum_in_place, tuple(xs))

    def asarray(self, x: HostArray, device: Device) -> Array:  # noqa: ARG002
        return self.launch(tree_map, np.array, x)

    def to_numpy(self, x: Array) -> Any:
        return self.launch(tree_map, np.array, x)

    def _fail(self, error: BaseException) -> NoReturn:
        self._failure = ComputationError(f"numpy: {type(error).__name__}: {error}")
        raise self._failure from error

    def _refuse(self) -> NoReturn:
        raise ComputationError(f"numpy refuses further work after a failure ({self._failure}): load the backend again")


def _overwrite(out: np.ndarray, x: np.ndarray) -> np.ndarray:
    np.copyto(out, x)
    return out


def _sum_in_place(xs: tuple[Array, ...]) -> tuple[Array, ...]:
    for terms in zip(*map(tree_leaves, xs), strict=True):
        check_equal(terms)
        first, *others = terms
        for other in others:
            first += other
        for other in others:
            np.copyto(other, first)
    return xs
