"""MXNet's functions in the spelling that all backends share. Importing this module imports mxnet."""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import TypeAlias

import mxnet as mx
from mxnet import autograd, npx
from mxnet import np as mnp

from backends.arrays import tree_map

Array: TypeAlias = mnp.ndarray

# NumPy semantics: arrays of no dimensions and empty shards exist.
npx.set_np()


def matmul(a: Array, b: Array) -> Array:
    return mnp.dot(a, b)


def add(a: Array, b: Array | float) -> Array:
    return a + b


def multiply(a: Array, b: Array | float) -> Array:
    return a * b


def power(x: Array, exponent: float) -> Array:
    return x**exponent


def relu(x: Array) -> Array:
    return npx.relu(x)


def total(x: Array, axis: int | None = None) -> Array:
    return x.sum(axis=axis)


def flatten(x: Array) -> Array:
    return npx.batch_flatten(x)


def conv2d(x: Array, weight: Array, bias: Array) -> Array:
    return npx.convolution(x, weight, bias, kernel=weight.shape[2:], num_filter=weight.shape[0])


def avg_pool2d(x: Array, size: int) -> Array:
    return npx.pooling(x, pool_type="avg", kernel=(size, size), stride=(size, size))


def cross_entropy(scores: Array, labels: Array) -> Array:
    return -npx.pick(npx.log_softmax(scores, axis=-1), labels, axis=-1).sum()


def count_correct(scores: Array, labels: Array) -> Array:
    return (scores.argmax(axis=1).astype(labels.dtype) == labels).sum()


def split(x: Array, lengths: Sequence[int]) -> tuple[Array, ...]:
    return tuple(x[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0)))


def concatenate(vectors: Sequence[Array]) -> Array:
    # MXNet's own concatenate takes 12 times as long: it copies element by element.
    first, *_ = vectors
    whole = mnp.empty((sum(len(vector) for vector in vectors),), dtype=first.dtype, ctx=first.ctx)
    target = whole.as_nd_ndarray()
    ends = accumulate(map(len, vectors), initial=0)
    for vector, (start, stop) in zip(vectors, pairwise(ends), strict=True):
        if start < stop:
            mx.nd._internal._slice_assign(target, vector.as_nd_ndarray(), begin=start, end=stop, out=target)
    return whole


def to_host(x: Array) -> Array:
    # MXNet queues this copy behind the computation of its source, between CPUs too.
    return x.copyto(mx.cpu(0))


def zeros_like(x: Array) -> Array:
    return tree_map(mnp.zeros_like, x)


def value_and_grad(fn: Callable[..., Array]) -> Callable[..., tuple[Array, tuple[Array, ...]]]:
    def value_and_gradients(parameters: tuple[Array, ...], *rest: Array) -> tuple[Array, tuple[Array, ...]]:
        if not all(x.size for x in rest):
            return zeros_like(parameters[0]).sum(), zeros_like(parameters)
        for parameter in parameters:
            # MXNet differentiates only by arrays that were marked before recording.
            if parameter.grad is None:
                parameter.attach_grad()
        with autograd.record():
            value = fn(parameters, *rest)
        # Not backward(): it writes to the one buffer in `.grad`, so a second call would overwrite the first's result.
        gradients = autograd.grad(value, list(parameters))
        return value.detach(), tuple(gradient.as_np_ndarray() for gradient in gradients)

    return value_and_gradients


def sgd(parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float) -> tuple[Array, ...]:
    # One operator for all of them: issuing eight would take Python as long as one of them computes.
    old = [parameter.as_nd_ndarray() for parameter in parameters]
    pairs = zip(old, (gradient.as_nd_ndarray() for gradient in gradients), strict=True)
    count = len(old)
    mx.nd.multi_sgd_update(*chain(*pairs), lrs=(rate,) * count, wds=(0,) * count, num_weights=count, out=old)
    return tuple(parameters)


def sgd_while_finite(
    parameters: tuple[Array, ...], gradients: tuple[Array, ...], rate: float, guard: Array
) -> tuple[tuple[Array, ...], Array]:
    old = [parameter.as_nd_ndarray() for parameter in parameters]
    new = [gradient.as_nd_ndarray() for gradient in gradients]
    count = len(old)
    # `multi_all_finite` takes thirty times as long.
    squares = mx.nd.multi_sum_sq(*new, num_arrays=count).as_np_ndarray()
    guard = guard + 0 * squares.sum()
    # The one operator of MXNet that leaves its weights alone if a number on the device is NaN. With these constants
    # it is plain descent: the mean is the gradient itself, its root mean square stays 0, and 1 is added to that.
    # The zeros are those that `attach_grad` made for `backward`, which is not called here.
    zeros = [zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in parameters]
    squared = [zero.as_nd_ndarray() for zero in zeros]
    mx.nd._internal._multi_adamw_update(
        *chain(*zip(old, new, new, squared, strict=True)),
        guard.as_nd_ndarray(),
        lrs=(rate,) * count,
        wds=(0,) * count,
        etas=(1,) * count,
        beta1=0,
        beta2=1,
        epsilon=1,
        num_weights=count,
        out=old,
    )
    return tuple(parameters), guard
