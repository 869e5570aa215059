"""PyTorch's functions in the spelling that all backends share. Importing this module imports torch."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from backends.arrays import tree_map
from backends.torch.streams.future import Announcing, ItemPath

Announce: TypeAlias = Callable[[ItemPath, Tensor], None]


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def add(a: Tensor, b: Tensor | float) -> Tensor:
    return a + b


def multiply(a: Tensor, b: Tensor | float) -> Tensor:
    return a * b


def power(x: Tensor, exponent: float) -> Tensor:
    return x.pow(exponent)


def relu(x: Tensor) -> Tensor:
    return functional.relu(x)


def total(x: Tensor, axis: int | None = None) -> Tensor:
    return x.sum(dim=axis)


def flatten(x: Tensor) -> Tensor:
    return x.flatten(start_dim=1)


def conv2d(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.conv2d(x, weight, bias)


def avg_pool2d(x: Tensor, size: int) -> Tensor:
    return functional.avg_pool2d(x, size)


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    # Torch takes class labels as int64 only.
    return functional.cross_entropy(scores, labels.long(), reduction="sum")


def count_correct(scores: Tensor, labels: Tensor) -> Tensor:
    return (scores.argmax(dim=1) == labels).sum()


def split(x: Tensor, lengths: Sequence[int]) -> tuple[Tensor, ...]:
    return torch.split(x, list(lengths))


def concatenate(vectors: Sequence[Tensor]) -> Tensor:
    return torch.cat(tuple(vectors))


def to_host(x: Tensor) -> Tensor:
    # `.to("cpu")` of a tensor on a CPU would be the same tensor.
    return x.to("cpu", non_blocking=True) if x.is_cuda else x.clone()


def zeros_like(x: Tensor) -> Tensor:
    return tree_map(torch.zeros_like, x)


def value_and_grad(fn: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
    def value_and_gradients(announce: Announce, parameters: tuple[Tensor, ...], *rest: Tensor) -> Any:
        if not all(x.numel() for x in rest):
            return parameters[0].new_zeros(()), tuple(map(torch.zeros_like, parameters))
        # Leaves of this call's own: gradients accumulate in no shared `.grad`, so devices do not race.
        leaves = tuple(parameter.detach().requires_grad_() for parameter in parameters)
        for place, leaf in enumerate(leaves):
            leaf.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda leaf, place=place: announce((1, place), leaf.grad)
            )
        value = fn(leaves, *rest)
        torch.autograd.backward(value)
        return value.detach(), tuple(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves)

    return Announcing(value_and_gradients)


def sgd(parameters: tuple[Tensor, ...], gradients: tuple[Tensor, ...], rate: float) -> tuple[Tensor, ...]:
    # Not in place: another device's thread may still read the old parameters.
    return tuple(p.sub(g, alpha=rate) for p, g in zip(parameters, gradients, strict=True))


def sgd_while_finite(
    parameters: tuple[Tensor, ...], gradients: tuple[Tensor, ...], rate: float, guard: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    # Squared first, as in the other backends: `linalg.vector_norm` overflows later.
    squares = [torch.dot(flat, flat) for flat in (gradient.reshape(-1) for gradient in gradients)]
    guard = guard + 0 * torch.stack(squares).sum()
    # Chosen on the device: reading the number would make a GPU's host wait.
    broken = guard.isnan()
    updated = sgd(parameters, gradients, rate)
    return tuple(torch.where(broken, old, new) for old, new in zip(parameters, updated, strict=True)), guard
