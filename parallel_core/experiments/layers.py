"""What the networks that are taken apart share: a dense layer, and the way back through any layer."""

from collections.abc import Callable

from backends import Array, Ops


def dense(ops: Ops, parameters: Array, x: Array) -> Array:
    """Multiply by the weight and add the bias."""
    weight, bias = parameters
    return ops.add(ops.matmul(x, weight), bias)


def pull_back(ops: Ops, fn: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function (parameters, upstream, *rest) -> the gradients by the parameters of fn(parameters, *rest).

    `upstream` is the gradient by the function's result, which is computed again: nothing is kept from the forward pass.
    """
    differentiate = ops.value_and_grad(
        lambda parameters, upstream, *rest: ops.total(ops.multiply(fn(parameters, *rest), upstream))
    )
    return lambda *args: differentiate(*args)[1]
