"""The seam between experiments and frameworks: the verbs of the book's chapters, and nothing else.

A verb enters this protocol only if every backend implements it, two experiments call it, and it cannot be composed
from the others. Data dependencies are visible as values (`gradients = backend.allreduce(gradients)`), so a schedule
can be read off an experiment's text.

An `Array` is opaque: a framework's array, a tuple of arrays, or a future of either. Experiments pass it from verb to
verb, and may index it (`step[0]`) if it is a tuple.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from inspect import isfunction
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

import numpy as np

from backends.arrays import row_ranges
from backends.devices import Device
from backends.errors import ComputationError

__all__ = ["VERBS", "Array", "Backend", "BaseBackend", "Engine", "FrameworkSettings", "HostArray", "Ops"]

Array: TypeAlias = Any
HostArray: TypeAlias = "np.ndarray | tuple[np.ndarray, ...]"
Engine = Literal["async", "sync"]
FrameworkSettings = Mapping[str, str | None]
"""Values of environment variables; None for one that must be unset."""


class Ops(Hashable, Protocol):
    """Pure framework functions in one spelling, to be passed to `Backend.launch`. No scheduling happens in them."""

    def matmul(self, a: Array, b: Array) -> Array:
        """Multiply matrices (m, k) and (k, n)."""

    def add(self, a: Array, b: Array | float) -> Array:
        """Add with broadcasting."""

    def multiply(self, a: Array, b: Array | float) -> Array:
        """Multiply element by element with broadcasting."""

    def power(self, x: Array, exponent: float) -> Array:
        """Raise each element to a power; if the exponent is not whole, elements must be positive."""

    def relu(self, x: Array) -> Array:
        """Clip at zero from below; the derivative at zero is zero."""

    def total(self, x: Array, axis: int | None = None) -> Array:
        """Sum all elements to an array of no dimensions, or those along one axis, which is dropped."""

    def flatten(self, x: Array) -> Array:
        """Reshape (n, …) to (n, product of the rest)."""

    def conv2d(self, x: Array, weight: Array, bias: Array) -> Array:
        """Correlate images (n, c, h, w) with filters (o, c, kh, kw) and add a bias (o,): no padding, stride 1."""

    def avg_pool2d(self, x: Array, size: int) -> Array:
        """Average over windows of `size` × `size` with stride `size`; rows and columns left over are dropped."""

    def cross_entropy(self, scores: Array, labels: Array) -> Array:
        """Sum over the rows (not average) of -log softmax(scores (n, k)) at integer labels (n,)."""

    def count_correct(self, scores: Array, labels: Array) -> Array:
        """Count the rows of scores (n, k) whose largest entry is at the label (n,)."""

    def split(self, x: Array, lengths: Sequence[int]) -> Array:
        """Divide a vector into consecutive vectors of these lengths, a tuple; they may share memory with it."""

    def concatenate(self, vectors: Sequence[Array]) -> Array:
        """Lay vectors end to end, in new memory, on the device of the first."""

    def to_host(self, x: Array) -> Array:
        """Copy to the host, on the queue that computes; on a CPU, to new memory. The book's way of communicating.

        From a GPU, wait for it by `waitall`, or use `copy_to`, which can be waited for by itself.
        """

    def zeros_like(self, x: Array) -> Array:
        """Make zeros of the same shape, dtype and device, for an array or a tuple."""

    def value_and_grad(self, fn: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
        """Make the function (parameters, *rest) -> (fn(parameters, *rest), its gradients by the parameters).

        `parameters` is a tuple of floating-point arrays, and so are the gradients; `fn` returns one number. If one of
        `rest` has no elements, value and gradients are zero: frameworks refuse to convolve nothing. Launched by itself,
        its gradients may be used one by one, as they become ready; those of the last parameters come first.
        """

    def sgd(self, parameters: Array, gradients: Array, rate: float) -> Array:
        """Return parameters - rate · gradients. The parameters are consumed: their memory may hold the result."""

    def sgd_while_finite(self, parameters: Array, gradients: Array, rate: float, guard: Array) -> tuple[Array, Array]:
        """Return (parameters - rate · gradients, guard), or unchanged parameters if a gradient is not finite.

        `guard`, float32 (1,), is 1 at first. It is NaN from the first step on in which the sum of the gradients'
        squares is NaN or infinite, and while it is NaN no parameter changes. The device decides this, so nothing waits
        for it. Parameters and gradients are consumed, the guard is not.
        """


class Backend(Protocol):
    """A framework with some logical devices and an engine that schedules work on them.

    After a computation has failed, every verb raises ComputationError.
    """

    name: str
    version: str
    engine: Engine
    devices: tuple[Device, ...]
    threads_per_device: int
    """Threads within one operator; if several workers serve a device, each has as many."""
    workers_per_device: int
    """Workers that serve a device's queue of computations: with 2, two independent ones run at the same time."""
    cores: Sequence[set[int]]
    """The cores that each device's work keeps to; empty for GPUs, and if the system does not say."""
    scheduler: str
    """What queues the work, in a sentence that a reader of results can use."""
    settings: FrameworkSettings
    """The environment variables that this backend set, or unset, for its framework to read, and the framework's own
    switches, which have a dot in their names."""
    variants: tuple[str, ...]
    """The variants of how it schedules that differ from the defaults, by name."""
    ops: Ops

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Enqueue `fn(*args)` on the device of its first array; return at once if the engine is asynchronous.

        New arrays in `fn` must come from its arguments (`ops.zeros_like`), which say the device.
        """

    def wait(self, x: Array) -> Array:
        """Block until `x` is computed, and no longer; return it. Raises ComputationError if computing it failed."""

    def waitall(self) -> None:
        """Block until all that was launched on any device is done. Raises ComputationError if any of it failed."""

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Enqueue a copy of `x` to `device`; it may overlap with computation that does not depend on it.

        The device may be HOST if others are GPUs. `out`, an array on that device of the same shape and dtype, is
        consumed: the copy is written to its memory. Without it the copy gets memory of its own, even if `x` is on that
        device already.
        """

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        """Divide the rows of `x` evenly over the devices, the extra rows to the first; shards may be empty."""

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Sum one value per device; return the sum on every device, in the order given. A tuple is one exchange.

        The values are consumed (their memory may hold the sums). Arrays of unequal shapes or dtypes are an error.
        """

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy a NumPy array, or a tuple of them, to a device; the dtype is kept."""

    def to_numpy(self, x: Array) -> Any:
        """Wait for `x` and return it as NumPy (a tuple for a tuple): an array that shares no memory with `x`."""


VERBS = tuple(name for name, value in vars(Backend).items() if isfunction(value) and not name.startswith("_"))
"""The protocol's verbs, in its order."""


class BaseBackend:
    """What the backends of this package share: how rows are divided, and that a backend works until its first failure.

    Abstract. Backends of others need not inherit from it.
    """

    name: str
    asarray: Callable[..., Array]

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        ranges = row_ranges(len(x), len(devices))
        return tuple(self.asarray(x[rows], device) for rows, device in zip(ranges, devices, strict=True))

    def _fail(self, error: BaseException, place: str = "") -> NoReturn:
        """Raise ComputationError, now and from every verb that is called later: results would be garbage."""
        raised = error
        # What a group of processes raises says already what went wrong.
        if not isinstance(error, ComputationError):
            at = f"{self.name} {place}".rstrip()
            raised = ComputationError(f"{at}: {type(error).__name__}: {self._reason(error)}")
            raised.__cause__ = error
        # Verbs that refuse take the place of this object's own, so that no verb asks each time.
        refusal = f"{self.name} refuses further work after a failure ({raised}): load the backend again"
        vars(self).update(dict.fromkeys(VERBS, partial(_refuse, refusal)))
        raise raised

    def _reason(self, error: BaseException) -> str:
        """Return the line of an error's message that says what is wrong."""
        return next(iter(str(error).strip().splitlines()), "no reason given")


def _refuse(message: str, *_: object, **__: object) -> NoReturn:
    raise ComputationError(message)
