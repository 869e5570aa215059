"""MXNet's functions in the spelling that all backends share.

Importing this module imports mxnet.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, reduce
from itertools import chain
from math import prod
from operator import add as plus
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import autograd, npx
from mxnet import np as mnp

from backends.arrays import check_equal, check_shapes, parts_of, tree_leaves, tree_map
from backends.mxnet.engine import check_apart, dimensions_of

Array: TypeAlias = mnp.ndarray

UPDATED_TOGETHER = 50
"""MXNet's operators on several arrays write beyond their memory from the 51st on
(`multi_sgd_update` from the 61st).
"""

STATIC = (("static_alloc", True), ("static_shape", True))
"""Flags of a CachedOp: memory is planned once. Without them each operator is pushed by itself."""

# NumPy semantics: arrays of no dimensions and empty shards exist; 2 says in all threads, and not
# only in this one.
npx.set_np()
mx.util.set_np_shape(2)


def matmul(a: Array, b: Array) -> Array:
    """Multiply matrices."""
    if dimensions_of(a) != 2 or dimensions_of(b) != 2:
        check_shapes("matmul", a, b)
    return mnp.dot(a, b)


def add(a: Array, b: Array | float) -> Array:
    return a + _operand(a, b)


def multiply(a: Array, b: Array | float) -> Array:
    return a * _operand(a, b)


def power(x: Array, exponent: float) -> Array:
    """Raise each element to a power."""
    if exponent == 0:
        # MXNet's derivative of a power is zero times infinity at zero; that of `ones_like` is zero.
        return mnp.ones_like(x)
    return x ** float(exponent)


def relu(x: Array) -> Array:
    return npx.relu(x)


def total(x: Array, axis: int | None = None) -> Array:
    """Sum all elements, or those along an axis."""
    if axis is not None:
        remaining = tuple(np.delete(x.shape, axis))
        if 0 in remaining:
            # MXNet's own sum does not give arrays without elements.
            return x.reshape(remaining)
    return x.sum(axis=axis)


def flatten(x: Array) -> Array:
    """Reshape an array to a matrix with a row for each of its items."""
    if x.size == 0:
        # MXNet's own operator takes no arrays without elements.
        return x.reshape(len(x), prod(x.shape[1:]))
    return npx.batch_flatten(x)


def conv2d(x: Array, weight: Array, bias: Array) -> Array:
    """Correlate images with filters, and add a bias."""
    filters, _, *kernel = weight.shape
    if len(kernel) != 2:
        check_shapes("conv2d", x, weight, bias)
    return npx.convolution(x, weight, bias, kernel=kernel, num_filter=filters)


def avg_pool2d(x: Array, size: int) -> Array:
    return npx.pooling(x, pool_type="avg", kernel=(size, size), stride=(size, size))


def cross_entropy(scores: Array, labels: Array) -> Array:
    """Sum -log softmax of the scores at the labels; fails for labels that do not exist."""
    check_shapes("cross_entropy", scores, labels)
    # `pick` would take the nearest class for a label that does not exist, and `take` fails when it
    # runs. But `take` compares in the labels' dtype, which the number of classes may not fit.
    is_wide = labels.dtype in (np.int32, np.int64)
    wide_labels = labels if is_wide else labels.astype("int32")
    classes = _classes(scores.shape[-1], scores.ctx)
    checked_labels = mx.nd.take(classes, wide_labels.as_nd_ndarray(), mode="raise").as_np_ndarray()
    log_probabilities = npx.log_softmax(scores, axis=-1)
    return -npx.pick(log_probabilities, checked_labels, axis=-1).sum()


def count_correct(scores: Array, labels: Array) -> Array:
    """Count the rows whose largest score is at the label."""
    check_shapes("count_correct", scores, labels)
    is_correct = scores.argmax(axis=1) == labels.astype("int64")
    return is_correct.sum()


def split(x: Array, lengths: Sequence[int]) -> tuple[Array, ...]:
    """Divide a vector into views of these lengths."""
    return parts_of(x, lengths)


def concatenate(vectors: Sequence[Array]) -> Array:
    """Lay vectors end to end, in new memory."""
    # MXNet's own concatenate takes 12 times the time: it copies element by element.
    first, *_ = vectors
    length = sum(len(vector) for vector in vectors)
    joined = mnp.empty((length,), dtype=first.dtype, ctx=first.ctx)
    target = joined.as_nd_ndarray()
    start = 0
    for vector in vectors:
        stop = start + len(vector)
        if start < stop:
            source = vector.as_nd_ndarray()
            mx.nd._internal._slice_assign(target, source, begin=start, end=stop, out=target)
        start = stop
    return joined


def to_host(x: Array) -> Array:
    # MXNet queues this copy behind the computation of its source, between CPUs too.
    return x.copyto(mx.cpu(0))


def zeros_like(x: Array) -> Array:
    return tree_map(mnp.zeros_like, x)


def value_and_grad(fn: Callable[..., Array]) -> Callable[..., tuple[Array, tuple[Array, ...]]]:
    """Return the function that gives `fn`'s value and its gradients by the parameters."""

    def value_and_gradients(
        parameters: tuple[Array, ...], *rest: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        if not all(x.size for x in tree_leaves(rest)):
            return zeros_like(parameters[0]).sum(), zeros_like(parameters)
        # MXNet differentiates only by arrays that were marked before recording. A detached array is
        # a new name of the same memory, so that each parameter has a mark of its own, also if an
        # array is passed twice or is one of `rest`.
        leaves = tuple(parameter.detach() for parameter in parameters)
        # A mark has a buffer, to which only `backward` would write: any array will do.
        buffers = [leaf.detach() for leaf in leaves]
        autograd.mark_variables(leaves, buffers)
        with autograd.record():
            value = fn(leaves, *rest)
        if value.shape != ():
            raise ValueError(
                f"value_and_grad differentiates one number, not an array of shape {value.shape}"
            )
        gradients = _gradients(value, leaves)
        is_parameter = any(value is leaf for leaf in leaves)
        value = value.copy() if is_parameter else value.detach()
        return value, tuple(gradient.as_np_ndarray() for gradient in gradients)

    return value_and_gradients


def as_unit(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does all of `fn` as one operator of MXNet's."""
    # One call from Python and one entry of a device's queue: 2,000 increments of two numbers take a
    # fiftieth of the time that they take one by one.
    units: dict[object, Callable[..., Any]] = {}

    def unit(*args: Any) -> Any:
        """Call `fn`, as one operator that is made when arguments of a kind first come."""
        kind = tree_map(lambda x: (x.shape, str(x.dtype), x.ctx), args)
        if kind not in units:
            units[kind] = _recorded(fn, args) or fn
        return units[kind](*args)

    return unit


def sgd(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float
) -> tuple[Array, ...]:
    """Queue the updates of parameters in their own memory, and return the parameters."""
    _refuse_recording()
    check_apart("sgd", parameters, gradients)
    # One operator updates a group: issuing eight takes Python as long as one of them computes.
    pairs = zip(parameters, gradients, strict=True)
    for group_parameters, group_gradients in _groups(pairs):
        count = len(group_parameters)
        # Each parameter, followed by its gradient.
        arrays = chain(*zip(group_parameters, group_gradients, strict=True))
        mx.nd.multi_sgd_update(
            *arrays,
            lrs=(float(rate),) * count,
            wds=(0,) * count,
            num_weights=count,
            out=group_parameters,
        )
    return tuple(parameters)


def sgd_while_finite(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float, guard: Array
) -> tuple[tuple[Array, ...], Array]:
    """Queue updates that change nothing once a gradient is not finite."""
    _refuse_recording()
    check_apart("sgd_while_finite", (*parameters, *gradients), (guard,))
    for parameter in parameters:
        if parameter.grad is None:
            parameter.attach_grad()
    # The zeros are those that `attach_grad` made for `backward`, which is not called here.
    zeros = [parameter.grad for parameter in parameters]
    triples = zip(parameters, gradients, zeros, strict=True)
    groups = list(_groups(_with_dimensions(*triple) for triple in triples))
    squares = [_sum_of_squares(group_gradients) for _, group_gradients, _ in groups]
    sum_of_squares = reduce(plus, squares)
    # 0 times an infinite number is NaN, and once the guard is NaN it stays so.
    new_guard = (guard + 0 * sum_of_squares).astype("float32", copy=False)
    for group_parameters, group_gradients, group_zeros in groups:
        if group_parameters[0].dtype == np.float32:
            _update_float32(group_parameters, group_gradients, group_zeros, float(rate), new_guard)
        else:
            _update_others(group_parameters, group_gradients, float(rate), new_guard)
    return tuple(parameters), new_guard


def _operand(x: Array, other: Array | float) -> Array | float:
    """Return a second operand as MXNet takes it; raises ValueError for another dtype."""
    if not isinstance(other, mnp.ndarray):
        # MXNet knows numbers of Python only.
        return float(other)
    if other.dtype != x.dtype:
        raise ValueError(f"operands need one dtype, not {x.dtype} and {other.dtype}")
    return other


def _refuse_recording() -> None:
    """Raise ValueError within a function that is differentiated or recorded."""
    # MXNet would record nothing of an update, and take the new parameters for the old ones.
    if autograd.is_recording():
        raise ValueError("an update of parameters cannot be differentiated")


@cache
def _classes(count: int, context: mx.Context) -> Any:
    """Return the numbers of all classes on a context."""
    return mx.nd.arange(count, ctx=context)


def _gradients(value: Array, leaves: Sequence[Array]) -> list[Any]:
    """Return the gradients of a recorded value by marked arrays, in new memory."""
    # Not `backward`, which writes to the buffer in `.grad`: a second call would overwrite the
    # result of the first one.
    try:
        return list(autograd.grad(value, list(leaves)))
    except mx.MXNetError:
        # MXNet refuses if the value does not depend on a leaf. So the sum of no elements of each
        # leaf, which is zero, is added to the value.
        with autograd.record():
            for leaf in leaves:
                value = value + leaf.reshape(-1)[:0].sum().astype(value.dtype)
        return list(autograd.grad(value, list(leaves)))


def _groups(updates: Iterable[tuple[Array, ...]]) -> Iterator[tuple[list[Any], ...]]:
    """Divide the updates of parameters into groups, each of which one operator takes.

    An update is a parameter with its gradient, say. Yields for each group the list of its
    parameters, the list of its gradients, and so on. The parameters of a group have one dtype.
    """
    updates_of_dtype: dict[object, list[tuple[Array, ...]]] = {}
    for update in updates:
        updates_of_dtype.setdefault(update[0].dtype, []).append(update)
    for alike in updates_of_dtype.values():
        for start in range(0, len(alike), UPDATED_TOGETHER):
            columns = zip(*alike[start : start + UPDATED_TOGETHER], strict=True)
            yield tuple([x.as_nd_ndarray() for x in column] for column in columns)


def _with_dimensions(*arrays: Array) -> tuple[Array, ...]:
    """Return arrays of equal shapes, as views of one dimension if they have none."""
    # Some operators on several arrays refuse arrays of no dimensions.
    if arrays[0].shape:
        return arrays
    check_equal(arrays, "sgd_while_finite")
    return tuple(x.as_nd_ndarray().reshape((1,)).as_np_ndarray() for x in arrays)


def _sum_of_squares(arrays: Sequence[Any]) -> Array:
    """Return the sum of the squares of all elements of some arrays."""
    if arrays[0].dtype == np.float32:
        # `multi_all_finite` takes thirty times the time.
        sums = mx.nd.multi_sum_sq(*arrays, num_arrays=len(arrays))
        return sums.as_np_ndarray().sum()
    # `multi_sum_sq` would sum in float32, in which squares of float64 overflow.
    squares = [mnp.square(x.as_np_ndarray()).sum() for x in arrays]
    return reduce(plus, squares)


def _update_float32(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    zeros: Sequence[Any],
    rate: float,
    guard: Array,
) -> None:
    """Queue one operator that updates float32 parameters unless the guard is NaN."""
    # Adam is MXNet's only operator that leaves its weights unchanged if a number on the device is
    # NaN. With these constants it is plain descent: the mean is the gradient itself, and the root
    # mean square, by which it divides, is 0 and becomes 1 by the addition of epsilon.
    count = len(parameters)
    # For each parameter: itself, gradient, mean, root mean square.
    quadruples = zip(parameters, gradients, gradients, zeros, strict=True)
    mx.nd._internal._multi_adamw_update(
        *chain(*quadruples),
        guard.as_nd_ndarray(),
        lrs=(rate,) * count,
        wds=(0,) * count,
        etas=(1,) * count,
        beta1=0,
        beta2=1,
        epsilon=1,
        num_weights=count,
        out=parameters,
    )


def _update_others(
    parameters: Sequence[Any], gradients: Sequence[Any], rate: float, guard: Array
) -> None:
    """Queue the updates of parameters of another dtype, one by one, unless the guard is NaN."""
    # Adam changes nothing in another dtype, and `where` ends the process if there are no elements.
    for parameter, gradient in zip(parameters, gradients, strict=True):
        check_equal((parameter, gradient), "sgd_while_finite")
        if parameter.size:
            old = parameter.as_np_ndarray()
            new = old - rate * gradient.as_np_ndarray()
            mnp.where(mnp.isnan(guard), old, new).copyto(old)


def _recorded(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return a function that does as one operator what `fn` does with arguments of this kind.

    None if no operator can: `fn` updates, or uses other arrays or several devices, say.
    """
    # A detached array is a new name of the same memory, so that each argument has its own, also if
    # an array is passed twice.
    leaves = tree_map(lambda x: x.detach(), args)
    variables = list(tree_leaves(leaves))
    buffers = [x.detach() for x in variables]
    autograd.mark_variables(variables, buffers)
    try:
        with autograd.record(train_mode=False):
            value = fn(*leaves)
        results = list(tree_leaves(value))
        symbols = [autograd.get_symbol(x) for x in results]
        group = mx.sym.Group(symbols).as_np_ndarray()
    except Exception:
        # An update refuses to be recorded, and a value that was not recorded has no symbol. If `fn`
        # itself is wrong, it fails again when it is launched as it is.
        return None
    inputs = group.list_inputs()
    position_of = {autograd.get_symbol(x).name: position for position, x in enumerate(variables)}
    has_other_inputs = any(name not in position_of for name in inputs)
    arrays = (*variables, *results)
    is_on_one_device = len({x.ctx for x in arrays}) == 1
    has_array_twice = len({id(x) for x in arrays}) < len(arrays)
    if has_other_inputs or not is_on_one_device or has_array_twice:
        return None
    # By default 15 operators at most are one entry; a larger number than needed takes memory.
    operator_count = len(group.get_internals().list_outputs())
    operator = mx.nd.CachedOp(group, (*STATIC, ("forward_bulk_size", operator_count)))
    positions = [position_of[name] for name in inputs]
    nesting = tree_map(lambda _: None, value)

    def unit(*args: Any) -> Any:
        """Queue the operator on these arguments, and return its results as `fn` nests them."""
        arrays = list(tree_leaves(args))
        computed = operator(*(arrays[position] for position in positions))
        # MXNet returns a single result by itself, and several in a list.
        remaining = iter([computed] if len(results) == 1 else computed)
        return tree_map(lambda _: next(remaining), nesting)

    return unit
