"""The protocol as plain functions of NumPy's arrays: what each verb gives, whoever shares memory with whom.

Nothing is written in place, so the values of a valid program cannot depend on the order in which a backend works.
Memory is shared only if the protocol allows it: by `split`, `flatten` and functions that return their arguments.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, final

import numpy as np

from backends.arrays import tree_map
from backends.conformance.programs import namespace_for
from backends.devices import Device
from backends.numpy import ops as numpy_ops
from backends.protocol import Array, BaseBackend


@final
class Reference(BaseBackend):
    """A backend that never writes to what it was given."""

    name = "reference"

    def __init__(self, devices: int) -> None:
        self.devices = tuple(Device("cpu", number) for number in range(1, devices + 1))
        self.ops: Any = REFERENCE_OPS

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        with np.errstate(all="ignore"):
            return fn(*args)

    def wait(self, x: Array) -> Array:
        return x

    def waitall(self) -> None:
        pass

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:  # noqa: ARG002
        return _copy(x)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        total = tree_map(lambda *terms: np.sum(terms, axis=0, dtype=terms[0].dtype), *xs)
        return tuple(_copy(total) for _ in xs)

    def asarray(self, x: Array, device: Device) -> Array:  # noqa: ARG002
        return _copy(x)

    def to_numpy(self, x: Array) -> Any:
        return _copy(x)


def reference_namespace(devices: int) -> dict[str, Any]:
    """Return the names that statements find, for the reference."""
    return namespace_for(Reference(devices)) | {"late": _at_once}


def _at_once(x: Array, m: Array) -> Array:  # noqa: ARG001
    return x.copy()


def _copy(x: Array) -> Array:
    return tree_map(lambda leaf: np.array(leaf, order="C"), x)


def _keeping_dtype(op: Callable[..., Array]) -> Callable[..., Array]:
    # NumPy computes with an array of no dimensions and a number of Python's in float64.
    def call(x: Array, *args: Array, **named: Array) -> Array:
        result = op(x, *args, **named)
        return result.astype(x.dtype) if isinstance(result, np.ndarray) else result

    return call


def _value_and_grad(fn: Callable[..., Array]) -> Callable[..., Any]:
    def value_and_gradients(parameters: tuple[Array, ...], *rest: Array) -> Any:
        value, gradients = numpy_ops.value_and_grad(fn)(parameters, *rest)
        pairs = zip(gradients, parameters, strict=True)
        return np.array(value, parameters[0].dtype), tuple(np.array(g, p.dtype) for g, p in pairs)

    return value_and_gradients


def _sgd(parameters: Array, gradients: Array, rate: float) -> Array:
    return tuple(np.asarray(p - rate * g, p.dtype) for p, g in zip(parameters, gradients, strict=True))


def _sgd_while_finite(parameters: Array, gradients: Array, rate: float, guard: Array) -> tuple[Array, Array]:
    if np.isfinite(guard).all() and all(np.isfinite(np.square(gradient).sum()) for gradient in gradients):
        return _sgd(parameters, gradients, rate), guard.copy()
    return _copy(parameters), np.full_like(guard, np.nan)


COMPUTING = ("add", "avg_pool2d", "conv2d", "cross_entropy", "matmul", "multiply", "power", "relu", "total")

REFERENCE_OPS = SimpleNamespace(
    **{
        **{name: getattr(numpy_ops, name) for name in vars(numpy_ops) if not name.startswith("_")},
        **{name: _keeping_dtype(getattr(numpy_ops, name)) for name in COMPUTING},
        "value_and_grad": _value_and_grad,
        "sgd": _sgd,
        "sgd_while_finite": _sgd_while_finite,
    }
)
