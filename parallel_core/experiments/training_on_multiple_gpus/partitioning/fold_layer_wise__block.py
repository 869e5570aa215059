"""What a device computes with its blocks of the layers: a part of the scores, and the gradients by what it holds."""

from collections.abc import Callable
from functools import reduce

from backends import Array, Ops
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network

__all__ = ["dense_gradients", "part_of_scores", "update"]


def part_of_scores(ops: Ops) -> Callable[[Array, Array], Array]:
    """Make the function (a device's dense parameters, all features) -> its part of the scores, without their bias."""

    def apply(own: Array, xs: Array) -> Array:
        *blocks, bias, last = own
        sums = reduce(ops.add, (ops.matmul(x, block) for x, block in zip(xs, blocks, strict=True)))
        return ops.matmul(ops.relu(ops.add(sums, bias)), last)

    return apply


def dense_gradients(ops: Ops) -> Callable[..., Array]:
    """Make the function (a device's dense parameters, last bias, scores, all features, labels) -> three gradients.

    They are those by the dense parameters, by the bias and by the features, a tuple each.
    """
    loss = ops.value_and_grad(lambda leaves, labels: ops.cross_entropy(ops.add(*leaves), labels))

    def back(own: Array, bias: Array, scores: Array, xs: Array, labels: Array) -> Array:
        by_scores, by_bias = loss((scores, *bias), labels)[1]
        count = len(own)
        pull = network.pull_back(ops, lambda leaves: part_of_scores(ops)(leaves[:count], leaves[count:]))
        gradients = pull((*own, *xs), by_scores)
        return gradients[:count], (by_bias,), gradients[count:]

    return back


def update(ops: Ops, rate: float) -> Callable[..., Array]:
    """Make the function (own parameters, gradients but the convolution's, images, gradients by own features …)."""
    convolve = network.pull_back(ops, network.forward(ops, [network.features]))

    def descend(own: Array, others: Array, images: Array, *by_features: Array) -> Array:
        gradients = (convolve(own[0], reduce(ops.add, by_features), images), *others)
        return tuple(ops.sgd(*pair, rate) for pair in zip(own, gradients, strict=True))

    return descend
