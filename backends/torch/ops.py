"""PyTorch's functions in the spelling that all backends share. Importing this module imports
torch.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any

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

Announce = Callable[[ItemPath, Tensor], None]

NO_LABEL = torch.iinfo(torch.int64).min


@gives_new_memory
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices."""
    # `mm` takes only matrices.
    return torch.mm(a, b)


@gives_new_memory
def add(a: Tensor, b: Tensor | float) -> Tensor:
    """Add element by element."""
    if type(b) is Tensor:
        _check_dtypes(a, b)
    return a + b


@gives_new_memory
def multiply(a: Tensor, b: Tensor | float) -> Tensor:
    """Multiply element by element."""
    if type(b) is Tensor:
        _check_dtypes(a, b)
    return a * b


@gives_new_memory
def power(x: Tensor, exponent: float) -> Tensor:
    """Raise each element to a power."""
    return x.pow(exponent)


@gives_new_memory
def relu(x: Tensor) -> Tensor:
    """Replace negative elements by zero."""
    return functional.relu(x)


@gives_new_memory
def total(x: Tensor, axis: int | None = None) -> Tensor:
    """Sum all elements, or those along an axis."""
    if axis is not None and not x.ndim:
        raise ValueError("an array of no dimensions has no axis to sum along")
    return x.sum(dim=axis)


def flatten(x: Tensor) -> Tensor:
    """Reshape an array to a matrix with a row for each of its items."""
    return x.reshape(len(x), prod(x.shape[1:]))


@gives_new_memory
def conv2d(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Correlate images with filters, and add a bias."""
    check_shapes("conv2d", x, weight, bias)
    return functional.conv2d(x, weight, bias)


@gives_new_memory
def avg_pool2d(x: Tensor, size: int) -> Tensor:
    """Average over windows of `size` by `size`."""
    check_shapes("avg_pool2d", x)
    return functional.avg_pool2d(x, size)


@gives_new_memory
def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum -log softmax of the scores at the labels; fails for labels that do not exist."""
    check_shapes("cross_entropy", scores, labels)
    classes = scores.shape[1]
    if labels.is_cuda and is_recorded_here():
        valid_labels, zero_or_nan = loss_of_labels(labels, classes, scores.dtype)
        return zero_or_nan + _cross_entropy(scores, valid_labels)
    if labels.is_cuda:
        check_labels(labels, classes)
    return _cross_entropy(scores, labels)


@gives_new_memory
def count_correct(scores: Tensor, labels: Tensor) -> Tensor:
    """Count the rows whose largest score is at the label."""
    check_shapes("count_correct", scores, labels)
    return (scores.argmax(dim=1) == labels).sum()


def split(x: Tensor, lengths: Sequence[int]) -> tuple[Tensor, ...]:
    """Divide a vector into views of these lengths."""
    check_lengths(x, lengths)
    return torch.split(x, list(lengths))


@gives_new_memory
def concatenate(vectors: Sequence[Tensor]) -> Tensor:
    """Lay vectors end to end, in new memory."""
    check_vectors(vectors)
    return torch.cat(tuple(vectors))


@gives_new_memory
def to_host(x: Tensor) -> Tensor:
    """Copy a tensor to the host, on the queue that computes."""
    # `.to("cpu")` of a tensor on a CPU would be the same tensor.
    return x.to("cpu", non_blocking=True) if x.is_cuda else x.clone()


@gives_new_memory
def zeros_like(x: Tensor) -> Tensor:
    return tree_map(torch.zeros_like, x)


def value_and_grad(fn: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
    """Return the function that gives `fn`'s value and its gradients by the parameters."""

    def value_and_gradients(
        announce: Announce, parameters: tuple[Tensor, ...], *rest: Tensor
    ) -> Any:
        """Differentiate `fn`, and announce each gradient when it is ready."""
        if not parameters:
            raise ValueError("value_and_grad needs parameters, and got an empty tuple")
        if not all(x.numel() for x in tree_leaves(rest) if isinstance(x, Tensor)):
            return parameters[0].new_zeros(()), tuple(map(torch.zeros_like, parameters))
        is_shared = _sharing_test()
        # This call has leaves of its own: a `.grad` that devices shared would be a race.
        leaves = tuple(parameter.detach().requires_grad_() for parameter in parameters)

        def announce_gradient(position: int, leaf: Tensor) -> None:
            """Announce a leaf's gradient, when PyTorch has computed it."""
            # The result is the value, and then the tuple of gradients.
            announce((1, position), _own_gradient(leaf, is_shared))

        for position, leaf in enumerate(leaves):
            hook = partial(announce_gradient, position)
            leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        value = fn(leaves, *rest)
        if value.shape != ():
            raise ValueError(
                "value_and_grad differentiates one number, not an array of shape "
                f"{tuple(value.shape)}"
            )
        if value.requires_grad:
            torch.autograd.backward(value)
        gradients = tuple(
            torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves
        )
        # Cloned, because the value may be a parameter, or part of one.
        return value.detach().clone(), gradients

    return Announcing(value_and_gradients)


def _cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum -log softmax of the scores at labels of any integer dtype."""
    # Torch takes class labels as int64 only, and by default leaves out the rows of label -100.
    return functional.cross_entropy(scores, labels.long(), ignore_index=NO_LABEL, reduction="sum")


def _check_dtypes(a: Tensor, b: Tensor) -> None:
    """Raise ValueError if two operands have different dtypes."""
    # Torch would compute in the wider dtype of the two.
    if b.dtype != a.dtype:
        raise ValueError(f"operands need one dtype, not {a.dtype} and {b.dtype}")


def _own_gradient(leaf: Tensor, is_shared: Callable[[Tensor], bool]) -> Tensor:
    """Return a leaf's gradient in memory that nothing else holds."""
    # PyTorch copies a gradient only if something else holds the same tensor. So the gradient may be
    # a view of a tensor that is still read.
    gradient: Any = leaf.grad
    if is_shared(gradient):
        leaf.grad = gradient.clone()
    return leaf.grad  # type: ignore[return-value]


@cache
def _sharing_test() -> Callable[[Tensor], bool]:
    """Return a function that says whether anything else holds a new gradient's memory."""
    use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
    if use_count is None:
        return lambda _: True

    def count_holders(gradient: Any) -> int:
        return use_count(gradient.untyped_storage()._cdata)

    # The holders of a gradient that nothing else holds are counted here and not at import: the
    # first use of autograd may start CUDA, before its settings are made.
    counts: list[int] = []
    leaf = torch.ones(2, requires_grad=True)
    leaf.register_post_accumulate_grad_hook(lambda leaf: counts.append(count_holders(leaf.grad)))  # type: ignore
    torch.autograd.backward((leaf * leaf).sum())
    (count_if_unshared,) = counts
    return lambda gradient: count_holders(gradient) > count_if_unshared


def as_unit(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` itself: eager PyTorch has no queue."""
    # A launch is one task of a worker already. For GPUs, see `cuda/graphs.py`.
    return fn


@gives_new_memory
def sgd(
    parameters: tuple[Tensor, ...], gradients: tuple[Tensor, ...], rate: float
) -> tuple[Tensor, ...]:
    """Return new parameters, each less its gradient times the rate."""
    for pair in zip(parameters, gradients, strict=True):
        check_equal(pair, "sgd")
    # Not in place: another device's thread may still read the old parameters.
    return tuple(p.sub(g, alpha=rate) for p, g in zip(parameters, gradients, strict=True))


@gives_new_memory
def sgd_while_finite(
    parameters: tuple[Tensor, ...], gradients: tuple[Tensor, ...], rate: float, guard: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return `sgd`'s result, or the old parameters if the new guard is NaN, and the guard."""
    # Squared first, as in the other backends: `linalg.vector_norm` overflows later.
    vectors = [gradient.reshape(-1) for gradient in gradients]
    squares = [torch.dot(vector, vector) for vector in vectors]
    # 0 times an infinite number is NaN, and once the guard is NaN it stays so.
    new_guard = guard + 0 * torch.stack(squares).sum()
    # A tensor of no dimensions, as a parameter may be.
    is_broken = new_guard.isnan().any()
    if is_broken.is_cuda:
        # The GPU chooses: reading the number would make the host wait.
        updated = sgd(parameters, gradients, rate)
        pairs = zip(parameters, updated, strict=True)
        return tuple(torch.where(is_broken, old, new) for old, new in pairs), new_guard
    if is_broken:
        return tuple(p.clone() for p in parameters), new_guard
    return sgd(parameters, gradients, rate), new_guard
