"""NumPy behind the `Backend` protocol: the synchronous reference.

Read it beside `mxnet/backend.py` and `torch/worker_threads.py`: same verbs, same order. Nothing is queued, so there is
nothing to wait for, and every other backend's numbers are checked against this one.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from backends.arrays import check_equal, tree_leaves, tree_map
from backends.devices import Device, Wanted, choose_devices
from backends.errors import BackendError
from backends.host import check_workers, cores_of, limit_blas_threads, threads_for
from backends.numpy import ops as numpy_ops
from backends.protocol import Array, BaseBackend, Engine, FrameworkSettings, HostArray, Ops
from backends.variants import choose_variants

__all__ = ["NumPyBackend"]


@final
class NumPyBackend(BaseBackend):
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
        # NumPy read its environment when it was imported, before a backend was chosen.
        limit_blas_threads(self.name, self.threads_per_device)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        try:
            # The other frameworks overflow without a warning, and so does their reference.
            with np.errstate(all="ignore"):
                return fn(*args)
        except Exception as error:
            self._fail(error)

    def wait(self, x: Array) -> Array:
        return x

    def waitall(self) -> None:
        pass

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:  # noqa: ARG002
        if out is None:
            return self.launch(tree_map, np.copy, x)
        return self.launch(tree_map, _overwrite, out, x)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        return self.launch(_sum_in_place, tuple(xs))

    def asarray(self, x: HostArray, device: Device) -> Array:  # noqa: ARG002
        return self.launch(tree_map, np.array, x)

    def to_numpy(self, x: Array) -> Any:
        return self.launch(tree_map, np.array, x)


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
