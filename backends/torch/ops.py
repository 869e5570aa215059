"""PyTorch's functions in the spelling that all backends share. Importing this module imports
torch.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from backends.arrays import (
    check_equal,
    check_lengths,
    check_shapes,
    check_vectors,
    tree_leaves,
    tree_map,
)
from backends.torch.cuda.labels import check_labels, is_recorded_here, loss_of_labels
from backends.torch.streams.future import Announcing, ItemPath
from backends.torch.streams.sharing import gives_new_memory

Announce: TypeAlias = Callable[[ItemPath, Tensor], None]

NO_LABEL = torch.iinfo(torch.int64).min


@gives_new_memory
def matmul(a: Tensor, b: Tensor) -> Tensor:
    # It takes only matrices.
    return torch.mm(a, b)


@gives_new_memory
def add(a: Tensor, b: Tensor | float) -> Tensor:
    if type(b) is Tensor:
        _check_dtypes(a, b)
    return a + b


@gives_new_memory
def multiply(a: Tensor, b: Tensor | float) -> Tensor:
    if type(b) is Tensor:
        _check_dtypes(a, b)
    return a * b


@gives_new_memory
def power(x: Tensor, exponent: float) -> Tensor:
    return x.pow(exponent)


@gives_new_memory
def relu(x: Tensor) -> Tensor:
    return functional.relu(x)


@gives_new_memory
def total(x: Tensor, axis: int | None = None) -> Tensor:
    if axis is not None and not x.ndim:
        raise ValueError("an array of no dimensions has no axis to sum along")
    return x.sum(dim=axis)


def flatten(x: Tensor) -> Tensor:
    return x.reshape(len(x), prod(x.shape[1:]))


@gives_new_memory
def conv2d(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    check_shapes("conv2d", x, weight, bias)
    return functional.conv2d(x, weight, bias)


@gives_new_memory
def avg_pool2d(x: Tensor, size: int) -> Tensor:
    check_shapes("avg_pool2d", x)
    return functional.avg_pool2d(x, size)


@gives_new_memory
def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    check_shapes("cross_entropy", scores, labels)
    if labels.is_cuda and is_recorded_here():
        labels, nothing = loss_of_labels(labels, scores.shape[1], scores.dtype)
        return nothing + _cross_entropy(scores, labels)
    if labels.is_cuda:
        check_labels(labels, scores.shape[1])
    return _cross_entropy(scores, labels)


@gives_new_memory
def count_correct(scores: Tensor, labels: Tensor) -> Tensor:
    check_shapes("count_correct", scores, labels)
    return (scores.argmax(dim=1) == labels).sum()


def split(x: Tensor, lengths: Sequence[int]) -> tuple[Tensor, ...]:
    check_lengths(x, lengths)
    return torch.split(x, list(lengths))


@gives_new_memory
def concatenate(vectors: Sequence[Tensor]) -> Tensor:
    check_vectors(vectors)
    return torch.cat(tuple(vectors))


@gives_new_memory
def to_host(x: Tensor) -> Tensor:
    # `.to("cpu")` of a tensor on a CPU would be the same tensor.
    return x.to("cpu", non_blocking=True) if x.is_cuda else x.clone()


@gives_new_memory
def zeros_like(x: Tensor) -> Tensor:
    return tree_map(torch.zeros_like, x)


def value_and_grad(fn: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
    def value_and_gradients(
        announce: Announce, parameters: tuple[Tensor, ...], *rest: Tensor
    ) -> Any:
        if not parameters:
            raise ValueError("value_and_grad needs parameters, and got an empty tuple")
        if not all(x.numel() for x in tree_leaves(rest) if isinstance(x, Tensor)):
            return parameters[0].new_zeros(()), tuple(map(torch.zeros_like, parameters))
        shared = _sharing_test()
        # Leaves of this call's own: gradients accumulate in no shared `.grad`, so devices do not
        # race.
        leaves = tuple(parameter.detach().requires_grad_() for parameter in parameters)
        for place, leaf in enumerate(leaves):
            leaf.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda leaf, place=place: announce((1, place), _own_gradient(leaf, shared))
            )
        value = fn(leaves, *rest)
        if value.shape != ():
            raise ValueError(
                "value_and_grad differentiates one number, not an array of shape "
                f"{tuple(value.shape)}"
            )
        if value.requires_grad:
            torch.autograd.backward(value)
        # A value that is a parameter, or part of one, gets separate memory.
        gradients = tuple(
            torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves
        )
        return value.detach().clone(), gradients

    return Announcing(value_and_gradients)


def _cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    # Torch takes class labels as int64 only, and by default leaves out the rows of label -100.
    return functional.cross_entropy(scores, labels.long(), ignore_index=NO_LABEL, reduction="sum")


def _check_dtypes(a: Tensor, b: Tensor) -> None:
    # Torch would compute in the wider dtype of the two.
    if b.dtype != a.dtype:
        raise ValueError(f"operands need one dtype, not {a.dtype} and {b.dtype}")


def _own_gradient(leaf: Tensor, shared: Callable[[Tensor], bool]) -> Tensor:
    # PyTorch copies a gradient only if something else holds the same tensor: it may be a view of
    # what is still read.
    gradient: Any = leaf.grad
    if shared(gradient):
        leaf.grad = gradient.clone()
    return leaf.grad  # type: ignore[return-value]


@cache
def _sharing_test() -> Callable[[Tensor], bool]:
    """Return a function that says whether anything else holds a new gradient's memory."""
    count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
    if count is None:
        return lambda _: True

    def holders(gradient: Any) -> int:
        return count(gradient.untyped_storage()._cdata)

    # Not at import: the first use of autograd may start CUDA, before its settings are made.
    alone: list[int] = []
    leaf = torch.ones(2, requires_grad=True)
    leaf.register_post_accumulate_grad_hook(lambda leaf: alone.append(holders(leaf.grad)))  # type: ignore
    torch.autograd.backward((leaf * leaf).sum())
    return lambda gradient: holders(gradient) > alone[0]


def as_unit(fn: Callable[..., Any]) -> Callable[..., Any]:
    # What is launched is one task of a worker, and eager PyTorch has no queue. For GPUs, see
    # `cuda/graphs.py`.
    return fn


@gives_new_memory
def sgd(
    parameters: tuple[Tensor, ...], gradients: tuple[Tensor, ...], rate: float
) -> tuple[Tensor, ...]:
    for pair in zip(parameters, gradients, strict=True):
        check_equal(pair, "sgd")
    # Not in place: another device's thread may still read the old parameters.
    return tuple(p.sub(g, alpha=rate) for p, g in zip(parameters, gradients, strict=True))


@gives_new_memory
def sgd_while_finite(
    parameters: tuple[Tensor, ...], gradients: tuple[Tensor, ...], rate: float, guard: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    # Squared first, as in the other backends: `linalg.vector_norm` overflows later.
    squares = [torch.dot(flat, flat) for flat in (gradient.reshape(-1) for gradient in gradients)]
    guard = guard + 0 * torch.stack(squares).sum()
    # Of no dimensions, as a parameter may be.
    broken = guard.isnan().any()
    if not broken.is_cuda:
        return tuple(p.clone() for p in parameters) if broken else sgd(
            parameters, gradients, rate
        ), guard
    # Chosen on the device: reading the number would make a GPU's host wait.
    updated = sgd(parameters, gradients, rate)
    return tuple(
        torch.where(broken, old, new) for old, new in zip(parameters, updated, strict=True)
    ), guard
