"""What a device computes of a pipeline on the way back: the last stage turns round, the others pass gradients on."""

from collections.abc import Callable

from backends import Array, Ops
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import LAYERS

__all__ = ["going_back", "turning"]


def turning(ops: Ops) -> Callable[[Array, Array, Array], Array]:
    """Make the last stage's function (parameters, x, labels) -> (gradients by the parameters, gradient by x)."""

    def turn(parameters: Array, x: Array, labels: Array) -> Array:
        loss = network.loss(ops, LAYERS[-(len(parameters) // 2) :])
        differentiate = ops.value_and_grad(lambda leaves, labels: loss(leaves[:-1], leaves[-1], labels))
        *gradients, by_x = differentiate((*parameters, x), labels)[1]
        return tuple(gradients), by_x

    return turn


def going_back(ops: Ops, compute: Callable[..., Array], to_images: bool) -> Callable[[Array, Array, Array], Array]:
    """Make the function (parameters, upstream, x) -> (gradients by the parameters, gradient by x).

    Nobody needs the gradient by the images.
    """

    def back(parameters: Array, upstream: Array, x: Array) -> Array:
        if to_images:
            return (network.pull_back(ops, compute)(parameters, upstream, x),)
        pull = network.pull_back(ops, lambda leaves: compute(leaves[:-1], leaves[-1]))
        *gradients, by_x = pull((*parameters, x), upstream)
        return tuple(gradients), by_x

    return back
