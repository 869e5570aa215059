"""The seam between experiments and frameworks: the verbs of the book's chapters, and nothing else.

A verb enters this protocol only if every backend implements it, two experiments call it, and it
cannot be composed from other verbs. Data dependencies are visible as values (`gradients =
backend.allreduce(gradients)`), so a schedule can be read off an experiment's text.

An `Array` is opaque: a framework's array, a tuple of values, or a future of either. Experiments
pass it from verb to verb, and may index it (`step[0]`, `step[-1][1]`) if it is a tuple, before it
is ready too.

What follows holds for every verb and op, and `parallel-core conformance` checks a backend against
it.

- Memory: a result has separate memory, which can be written to. `split`, `flatten`, and launched
  functions that return arguments or parts of them may give views instead, which share memory with
  their argument.
- Consuming: `allreduce`, `copy_to` with `out`, `sgd` and `sgd_while_finite` consume values, for
  their memory may hold the result. What was launched before, in the order of the program, reads the
  old contents, by whatever name it knows them: a view, an item, a tuple. Afterwards a consumed
  value, and what may share memory with it, must not be passed to a verb; other parts (`split(x)[1]`
  if `split(x)[0]` was consumed) stay usable. What a call consumes must not overlap itself, (x, x)
  say, or another of its arguments. If it does, the call or its computation fails, or the result is
  as if the memories were different.
- Errors: BackendError, in one line, for a request that is seen to be wrong at the call; the backend
  goes on. A computation that fails, whatever it raises, is a ComputationError: at the call, at the
  next wait for what is computed from it, or at the latest at `waitall`. It names the backend, and
  the device that failed if the framework knows it, and from then on every verb raises
  ComputationError. There is never garbage without an error, another exception, or a hang. Only
  KeyboardInterrupt during a verb passes through; the backend then works on or refuses.
- Dtypes: float32, float64, int32, int64, uint8 and bool are kept by every verb, and float16, int8
  and the like if the framework has them; BackendError if not. Ops compute in float32 and in
  float64, and operands of one op have one dtype, which the result has too; numbers beside them
  change nothing.
- Shapes: verbs take 0 to 4 dimensions, also without elements. Of the ops, `flatten`, `split`,
  `concatenate`, `to_host`, `zeros_like` and the `rest` of `value_and_grad` may be without elements.
  Results are arrays, of shape () too.
- Threads: several threads may call verbs at the same time, on values that share no memory.
- Processes: in a child that was forked after it was loaded, every verb raises BackendError; only
  those of NumPy work.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from inspect import isfunction
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from backends.devices import Device

Array = Any
HostArray: TypeAlias = "np.ndarray | tuple[np.ndarray, ...]"
Engine = Literal["async", "sync"]
FrameworkSettings = Mapping[str, str | None]
"""Values of environment variables; None for one that must be unset."""


class Ops(Hashable, Protocol):
    """Pure framework functions in one spelling, to be passed to `Backend.launch`.

    No scheduling happens in them. Those from `matmul` to `cross_entropy` can be differentiated.
    Where a number is asked for, Python's and NumPy's will do. Shapes that do not fit are errors.
    """

    def matmul(self, a: Array, b: Array) -> Array:
        """Multiply matrices (m, k) and (k, n)."""

    def add(self, a: Array, b: Array | float) -> Array:
        """Add with broadcasting."""

    def multiply(self, a: Array, b: Array | float) -> Array:
        """Multiply element by element with broadcasting."""

    def power(self, x: Array, exponent: float) -> Array:
        """Raise each element to a power.

        If the exponent is not whole, elements must be positive.
        """

    def relu(self, x: Array) -> Array:
        """Clip at zero from below; the derivative at zero is zero."""

    def total(self, x: Array, axis: int | None = None) -> Array:
        """Sum all elements to an array of no dimensions, or drop one axis by a sum along it."""

    def flatten(self, x: Array) -> Array:
        """Reshape (n, …) to (n, product of the rest), for n = 0 too, and (n,) to (n, 1).

        It may share memory with x.
        """

    def conv2d(self, x: Array, weight: Array, bias: Array) -> Array:
        """Correlate images (n, c, h, w) with filters (o, c, kh, kw), and add a bias (o,).

        There is no padding, and the stride is 1.
        """

    def avg_pool2d(self, x: Array, size: int) -> Array:
        """Average over windows of `size` × `size` with stride `size`.

        Rows and columns left over are dropped.
        """

    def cross_entropy(self, scores: Array, labels: Array) -> Array:
        """Sum -log softmax(scores (n, k)) at labels (n,) over the rows; the sum is no average.

        The result has no dimensions.
        Labels are of any integer dtype. One outside of 0 … k - 1 is an error, also a negative one.
        """

    def count_correct(self, scores: Array, labels: Array) -> Array:
        """Count the rows of scores (n, k) whose largest entry is at the label (n,).

        Of equal entries the first one counts. Labels are of any integer dtype; one outside of
        0 … k - 1 counts as wrong. The result has no dimensions, and a dtype that holds the number
        exactly.
        """

    def split(self, x: Array, lengths: Sequence[int]) -> Array:
        """Divide a vector into consecutive vectors of these lengths, which sum to its own: a tuple.

        They may share memory with it.
        """

    def concatenate(self, vectors: Sequence[Array]) -> Array:
        """Lay vectors end to end, in new memory, on the device of the first."""

    def to_host(self, x: Array) -> Array:
        """Copy to the host, on the queue that computes; on a CPU, to new memory.

        The book's way of communicating. From a GPU, wait for it by `waitall`, or use `copy_to`,
        which can be waited for by itself.
        """

    def zeros_like(self, x: Array) -> Array:
        """Make zeros of the same shape, dtype and device, for an array or a tuple."""

    def value_and_grad(self, fn: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
        """Make a function of (parameters, *rest) that returns fn's value and its gradients.

        `parameters` is a tuple of floating-point arrays, one at least, and `rest` are arrays. `fn`
        computes with only ops (it may read `.shape`), and returns one number, an array of no
        dimensions that depends on a parameter. Value and gradients share memory with nothing, not
        with each other either; a gradient has its parameter's shape and dtype.

        The gradient by a parameter that is not used is zero. An array may be passed as several
        parameters, which are distinguished, and among `rest`, where it is a constant. If one of
        `rest` has no elements, value and gradients are zero: frameworks refuse to convolve nothing.
        Launched by itself, its gradients may be used one by one, as they become ready; those of the
        last parameters come first.
        """

    def as_unit(self, fn: Callable[..., Array]) -> Callable[..., Array]:
        """Make a function that computes what `fn` does as one unit, queued as a whole.

        `fn` takes arrays and tuples of arrays, all on one device, and computes with only ops, of
        its arguments and of numbers that do not change. A launch of what is returned gives the same
        values, and takes what the operations take by themselves: a measure of kernels, without
        their scheduling. The first launch for arguments of some shapes, dtypes and device may take
        longer, and may call `fn` more than once; later ones need not call it.

        What is no plain composition is launched as `fn` itself would be, and may be queued
        operation by operation: a function that differentiates or updates (a training step), copies
        to the host, concatenates, or uses arrays that are not its arguments, as a `cross_entropy`
        may.
        """

    def sgd(self, parameters: Array, gradients: Array, rate: float) -> Array:
        """Return parameters - rate · gradients, for tuples of arrays. The parameters are consumed.

        Each gradient has its parameter's shape, () too, and dtype; another parameter may have
        another dtype.
        """

    def sgd_while_finite(
        self, parameters: Array, gradients: Array, rate: float, guard: Array
    ) -> tuple[Array, Array]:
        """Return `sgd`'s result and the guard; nothing changes once a gradient is not finite.

        `guard`, float32 (1,) whatever the parameters' dtypes, is 1 at first. It is NaN from the
        first step on in which the sum of the gradients' squares is NaN or infinite, and while it is
        NaN no parameter changes. The device decides this, so nothing waits for it. Parameters and
        gradients are consumed, the guard is not.
        """


class Backend(Protocol):
    """A framework with some logical devices and an engine that schedules work on them.

    Foreign devices, which are not among `devices`, are refused with BackendError, and so are arrays
    that lie there, if arrays know their device: by `launch` the first of its arguments, which says
    the device, by `copy_to` and by `allreduce` all.
    """

    name: str
    version: str
    engine: Engine
    devices: tuple[Device, ...]
    threads_per_device: int
    """Threads within one operator; if several workers serve a device, each has as many."""
    workers_per_device: int
    """Workers that serve a device's queue of computations: with 2, two independent ones run at the
    same time.
    """
    cores: Sequence[set[int]]
    """The cores that each device's work keeps to; empty for GPUs, and if the system does not
    say.
    """
    settings: FrameworkSettings
    """The environment variables that this backend set, or unset, for its framework to read, and the
    framework's own switches, which have a dot in their names.
    """
    variants: tuple[str, ...]
    """The variants of how it schedules that differ from the defaults, by name."""
    ops: Ops

    @property
    def scheduler(self) -> str:
        """The queue that does the work, in a sentence; it may say what was done by now."""

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Enqueue `fn(*args)` on the device of its first array.

        Return at once if the engine is asynchronous.

        Without an array among `args`, however deep in tuples, it raises BackendError; it may raise
        it also if an array lies in another memory than the first one. What else is among them, such
        as numbers and functions, is passed on as it is; a list must not change before `fn` is
        computed. `fn` returns an array or a tuple, nested too; it calls no verbs, and writes to its
        arguments by `ops.sgd` and `ops.sgd_while_finite` only. New arrays in it must come from its
        arguments (`ops.zeros_like`), which say the device. What it raises is the computation's
        failure, also StopIteration, SystemExit and GeneratorExit; so is, before it is ready, an
        index that its tuple does not have.
        """

    def wait(self, x: Array) -> Array:
        """Block until `x` is computed, and no longer; return it.

        Raises ComputationError if computing it failed.
        """

    def waitall(self) -> None:
        """Block until all that was launched on any device is done.

        Raises ComputationError if any of it failed.
        """

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Enqueue a copy of `x` to `device`.

        It may overlap with computation that does not depend on it. Arrays of `x` may lie on several
        devices, and with GPUs the device may be HOST. `out`, a value on that device, is consumed:
        the copy is written to its memory, if the framework writes to values. Its arrays must have
        the shapes and dtypes of `x`; there is no broadcasting and no casting, and anything else is
        an error: a value that knows to be on another device raises BackendError, and so does what
        is no array of the backend, such as a number. Without `out` the
        copy gets new memory, even if `x` is on that device already.
        """

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        """Divide the rows of `x` evenly over the devices, the extra rows to the first.

        Shards may be empty. Each shard is a copy, as by `asarray`.
        """

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        """Sum one value per device; return the sum on every device, in the order given.

        A tuple is one exchange. The values are consumed. Unequal shapes or dtypes are an error, and
        so are sums of bool. No value at all, and two on one device, raise BackendError; if arrays
        do not know their device, more values than devices do.
        """

    def asarray(self, x: HostArray, device: Device) -> Array:
        """Copy a NumPy array, or a tuple of them, nested too, to a device; the dtype is kept.

        The array may lie in any order (`x.T`, `x[::-1]`) and be read-only. A dtype that the
        framework does not have raises BackendError.
        """

    def to_numpy(self, x: Array) -> Any:
        """Wait for `x` and return it as NumPy: arrays of its dtype, in separate memory."""


VERBS = tuple(
    name for name, value in vars(Backend).items() if isfunction(value) and not name.startswith("_")
)
"""The protocol's verbs, in its order."""
