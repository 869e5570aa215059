"""A backend of someone else's, written against the protocol: tests install it in a folder of its
own.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from backends import Array, BackendError, ComputationError, Device, Engine


class MineOps:
    """The functions that the experiment of the test launches."""

    def matmul(self, a: Array, b: Array) -> Array:
        return a @ b

    def as_unit(self, fn: Callable[..., Array]) -> Callable[..., Array]:
        return fn


class MineBackend:
    """NumPy again, with one value per array."""

    name = "mine"
    version = "1.0"
    engine: Engine = "sync"
    workers_per_device = 1
    scheduler = "none: a plug-in computes at once"
    variants: tuple[str, ...] = ()

    def __init__(
        self,
        devices: int | tuple[Device, ...],
        device_kind: Literal["auto", "cpu", "gpu"],
        engine: Engine | None,
        threads_per_device: int | None,
    ) -> None:
        if device_kind == "gpu" or engine == "async":
            raise BackendError("mine computes on CPUs, with --engine sync alone")
        if isinstance(devices, int):
            devices = tuple(Device("cpu", number) for number in range(1, devices + 1))
        self.devices = devices
        self.threads_per_device = threads_per_device or 1
        self.cores: Sequence[set[int]] = []
        self.settings: dict[str, str | None] = {}
        self.ops: Any = MineOps()

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        try:
            return fn(*args)
        except Exception as error:
            raise ComputationError(f"mine: {error}") from error

    def wait(self, x: Array) -> Array:
        return x

    def waitall(self) -> None:
        pass

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:  # noqa: ARG002
        return x.copy()

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        return tuple(np.array_split(x, len(devices)))

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(sum(xs[1:], xs[0]) for _ in xs)

    def asarray(self, x: np.ndarray, device: Device) -> Array:  # noqa: ARG002
        return x.copy()

    def to_numpy(self, x: Array) -> Any:
        return x.copy()
