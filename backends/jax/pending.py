"""Arrays of a step that has not been enqueued yet: what a launch returns while steps are recorded."""

from typing import Any, Protocol, final

import jax

__all__ = ["ARRAYS", "Pending"]


class _Computing(Protocol):
    def compute(self) -> None:
        """Enqueue the step, after which each of its arrays that somebody holds has its value."""


@final
class Pending:
    """An array whose shape and dtype are known, and whose value comes when its step is enqueued."""

    __slots__ = ("__weakref__", "_value", "device", "place", "shape_dtype", "step")

    def __init__(self, step: _Computing, place: tuple[int, int], shape_dtype: Any, device: Any) -> None:
        self.step = step
        self.place = place
        """The launch in its step, and the array among its results."""
        self.shape_dtype, self.device = shape_dtype, device
        self._value: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        shape: tuple[int, ...] = self.shape_dtype.shape
        return shape

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.shape_dtype.dtype

    @property
    def is_known(self) -> bool:
        """Whether it has its value, which the device may not have computed yet."""
        return self._value is not None

    @property
    def value(self) -> Any:
        """The array of JAX; its step is enqueued if it was not."""
        if self._value is None:
            self.step.compute()
        return self._value

    @value.setter
    def value(self, array: Any) -> None:
        self._value = array


ARRAYS = (jax.Array, Pending)
"""The types of a backend's arrays."""
