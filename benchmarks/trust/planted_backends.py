"""Backends with one fault each, over another backend: what a fault does not change is the real
one's.
"""

import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import backends
from backends import Array, Backend, Device

OVER = "PARALLEL_CORE_PLANTED_OVER"
"""The environment variable that names the real backend."""


class Planted:
    """A backend without a fault yet."""

    def __init__(self, *arguments: Any) -> None:
        self.name = type(self).__name__
        self.real: Backend = backends.load(os.environ[OVER], *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Twice(Planted):
    """Every multiplication is made twice."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ops = TwiceMultiplied(self.real.ops)


class TwiceMultiplied:
    """Operations that multiply matrices twice and return the mean of the two."""

    def __init__(self, ops: Any) -> None:
        self._real = ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def matmul(self, a: Array, b: Array) -> Array:
        """Multiply twice; the sum needs both, so that no compiler leaves one out."""
        real = self._real
        return real.multiply(real.add(real.matmul(a, b), real.matmul(a, b)), 0.5)


class SlowLaunches(Planted):
    """Every launch takes longer."""

    added_seconds = 300e-6

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Launch later."""
        until = perf_counter() + self.added_seconds
        while perf_counter() < until:
            pass
        return self.real.launch(fn, *args)


class SlowerLaunches(SlowLaunches):
    """Every launch takes a little longer."""

    added_seconds = 20e-6


class CopiesTwice(Planted):
    """Every copy is made twice."""

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Copy twice, into the same buffer."""
        copied = self.real.copy_to(x, device, out=out)
        return self.real.copy_to(x, device, out=copied)


class OneQueue(Planted):
    """Devices take turns, as if they had one queue."""

    last_device: object = None

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Launch when the other devices are idle."""
        device = device_of(args)
        if device != self.last_device:
            self.real.waitall()
        self.last_device = device
        return self.real.launch(fn, *args)


def device_of(args: Sequence[Any]) -> object:
    """Return the device of the first argument, as its framework calls it."""
    x = args[0]
    while isinstance(x, tuple):
        x = x[0]
    return getattr(x, "device", None) or x.context
