"""What PyTorch's backends do with tensors: make, copy and overwrite them, and sum them in place."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from backends.arrays import check_equal, check_terms, sum_shard, tree_leaves, tree_map
from backends.devices import HOST, Device
from backends.errors import BackendError
from backends.protocol import Array
from backends.torch.streams.sharing import check_apart, extent, gives_new_memory, overlap

SIGNED: Mapping[str, str] = MappingProxyType(
    {"torch.uint16": "int16", "torch.uint32": "int32", "torch.uint64": "int64"}
)
"""By unsigned dtypes that PyTorch cannot add, signed ones whose sums have the same bits."""
TORCH_SHARDED_BYTES = 2**21
"""From here on all devices, a shard each, sum faster than only the first one."""


def tensor(torch: Any, x: Any) -> Any:
    """Return a copy of a NumPy array as a tensor in ordinary memory.

    Raises BackendError for a dtype that PyTorch does not have.
    """
    x = np.asarray(x)
    # PyTorch refuses negative strides and other orders of bytes.
    has_negative_stride = any(stride < 0 for stride in x.strides)
    if has_negative_stride or not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="), order="C")
    try:
        return torch.tensor(x)
    except (TypeError, ValueError) as error:
        raise BackendError(
            f"torch has no arrays of {x.dtype}: convert it to another dtype, such as float32"
        ) from error


def page_locked(torch: Any, x: Any) -> Any:
    """Return a copy of a NumPy array as a tensor in page-locked memory.

    Raises BackendError for a dtype that PyTorch does not have.
    """
    dtype = tensor(torch, np.empty(0, x.dtype)).dtype
    copy = torch.empty(x.shape, dtype=dtype, pin_memory=True)
    np.copyto(copy.numpy(), x)
    return copy


@gives_new_memory
def clone(x: Array) -> Array:
    """Copy a value from one CPU device to another, to new memory."""
    # On one CPU, `.to(device)` would return the same tensor, and devices would share memory.
    return tree_map(lambda leaf: leaf.clone(), x)


def overwrite(out: Array, x: Array) -> Array:
    """Copy a value to the memory of `out`, of the same shapes and dtypes, and return `out`."""
    check_out(out, x)
    return tree_map(lambda target, source: target.copy_(source), out, x)


def allocate_like(torch: Any, x: Array, device: Device) -> Array:
    """Allocate memory on a device for a copy of a tensor; page-locked for HOST."""
    allocate = partial(torch.empty_like, x, memory_format=torch.contiguous_format)
    if device == HOST:
        return allocate(device="cpu", pin_memory=True)
    if device.kind == "gpu":
        return allocate(device=f"cuda:{device.index}")
    return allocate(device="cpu")


def detached_copy(x: Array) -> Any:
    """Return a computed value as NumPy, in separate memory."""
    return tree_map(lambda leaf: leaf.detach().to("cpu", copy=True).numpy(), x)


def check_out(out: Array, x: Array) -> None:
    """Raise ValueError unless a value can be copied to the memory of `out`."""
    targets, sources = list(tree_leaves(out)), list(tree_leaves(x))
    for target, source in zip(targets, sources, strict=True):
        check_equal((source, target), "copy_to with out")
    check_apart(out)
    target_extents = list(map(extent, targets))
    for position, (target, source) in enumerate(zip(targets, sources, strict=True)):
        source_extent = extent(source)
        extents_to_avoid = list(target_extents)
        # An array may be copied to itself, but not to the memory of an array that is still read.
        is_itself = source_extent == target_extents[position]
        if is_itself and source.stride() == target.stride():
            del extents_to_avoid[position]
        if overlap([source_extent], extents_to_avoid):
            raise ValueError(
                "out= must not share memory with what is copied: copy to new memory first"
            )


def add_into(first: Array, *others: Array) -> Array:
    """Add values to the first one's memory, and return it."""
    for terms in check_sum((first, *others)):
        _add_terms(*terms)
    return first


def sum_own_shard(xs: tuple[Array, ...], shard: int, shards: int | None = None) -> None:
    """Replace one of `shards` shards of every value by the values' sum there.

    None makes a shard for each value, or a single one if the values are short.
    """
    # A short sum is done before a second thread has woken up.
    if sum(x.nbytes for x in tree_leaves(xs[0])) < TORCH_SHARDED_BYTES:
        shards = 1
    if shards is None:
        shards = len(xs)
    if shard >= shards:
        return
    # Every device checks before it writes.
    for terms in check_sum(xs):
        if shards > 1 and all(x.is_contiguous() for x in terms):
            sum_shard([x.view(-1) for x in terms], shard, shards)
        elif shard == 0:
            total, *others = terms
            _add_terms(total, *others)
            for x in others:
                x.copy_(total)


def check_sum(xs: Sequence[Array]) -> list[tuple[Array, ...]]:
    """Return the terms of each sum: the arrays at one position of all values.

    Unsigned integers are returned as signed ones in the same memory. Raises ValueError if arrays
    that are to be summed are unequal, have no sum, or share memory.
    """
    terms_of_sums = list(zip(*map(tree_leaves, xs), strict=True))
    for terms in terms_of_sums:
        check_terms(terms)
    check_apart(xs)
    return [tuple(map(_as_signed, terms)) for terms in terms_of_sums]


def _as_signed(x: Array) -> Array:
    """Return a tensor of unsigned integers as one of signed integers in the same memory.

    Their dtypes are those of `SIGNED`; other tensors are returned themselves.
    """
    name = SIGNED.get(str(x.dtype))
    if name is None:
        return x
    import torch

    return x.view(getattr(torch, name))


def _add_terms(total: Array, *terms: Array) -> Array:
    """Add tensors to `total` in its memory, and return it."""
    for term in terms:
        total.add_(term)
    return total
