"""What PyTorch's backends do with tensors: make, copy and overwrite them, and sum them in place."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from backends.arrays import check_equal, check_terms, sum_shard, tree_leaves, tree_map
from backends.devices import HOST, Device
from backends.errors import BackendError
from backends.protocol import Array
from backends.torch.streams.sharing import check_apart, extent, gives_new_memory, overlap

TORCH_SHARDED_BYTES = 2**21
"""From here on all devices, a shard each, sum faster than only the first one."""


def tensor(torch: Any, x: Any) -> Any:
    """Return a NumPy array as a tensor in separate, ordinary memory; raises BackendError for
    unknown dtypes.
    """
    # From a separate tensor: PyTorch warns of arrays that cannot be written to. It refuses negative
    # strides and other orders of bytes.
    x = np.asarray(x)
    if any(stride < 0 for stride in x.strides) or not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="), order="C")
    try:
        return torch.tensor(x)
    except (TypeError, ValueError) as error:
        raise BackendError(
            f"torch has no arrays of {x.dtype}: convert it to another dtype, such as float32"
        ) from error


def page_locked(torch: Any, x: Any) -> Any:
    """Return a NumPy array as a tensor in separate, page-locked memory; raises BackendError for
    unknown dtypes.
    """
    dtype = tensor(torch, np.empty(0, x.dtype)).dtype
    copy = torch.empty(x.shape, dtype=dtype, pin_memory=True)
    np.copyto(copy.numpy(), x)
    return copy


@gives_new_memory
def clone(x: Array) -> Array:
    """Copy a value from one CPU device to another, to new memory."""
    # `.to(device)` would return the same tensor: on one CPU, two devices would share their
    # parameters.
    return tree_map(lambda leaf: leaf.clone(), x)


def overwrite(out: Array, x: Array) -> Array:
    """Copy a value to the memory of another, of the same shapes and dtypes, and return that."""
    check_out(out, x)
    return tree_map(lambda target, source: target.copy_(source), out, x)


def allocate_like(torch: Any, x: Array, device: Device) -> Array:
    """Allocate memory on a device for a copy of a tensor; page-locked for HOST."""
    return torch.empty_like(
        x,
        device=f"cuda:{device.index}" if device.kind == "gpu" else "cpu",
        memory_format=torch.contiguous_format,
        **({"pin_memory": True} if device == HOST else {}),
    )


def detached_copy(x: Array) -> Any:
    """Return a computed value as NumPy, in separate memory."""
    return tree_map(lambda leaf: leaf.detach().to("cpu", copy=True).numpy(), x)


def check_out(out: Array, x: Array) -> None:
    targets, sources = list(tree_leaves(out)), list(tree_leaves(x))
    for target, source in zip(targets, sources, strict=True):
        check_equal((source, target), "copy_to with out")
    check_apart(out)
    places = list(map(extent, targets))
    for target, source, own in zip(targets, sources, places, strict=True):
        # An array may be copied to itself, and nowhere else where one is still to be read.
        itself = extent(source) == own and source.stride() == target.stride()
        if overlap([extent(source)], [place for place in places if not (itself and place is own)]):
            raise ValueError(
                "out= must not share memory with what is copied: copy to new memory first"
            )


def add_into(first: Array, *others: Array) -> Array:
    """Add values to the first one's memory, and return it."""
    check_sum((first, *others))
    return tree_map(_add_terms, first, *others)


def sum_own_shard(xs: tuple[Array, ...], shard: int, shards: int | None = None) -> None:
    """Replace one shard of every value by the sum there; None makes a shard for each value if that
    is worth it.
    """
    # A short sum is done before a second thread has woken up.
    if sum(x.nbytes for x in tree_leaves(xs[0])) < TORCH_SHARDED_BYTES:
        shards = 1
    if shard >= (shards := shards or len(xs)):
        return
    # Every device checks before it writes.
    for same in check_sum(xs):
        if shards > 1 and all(x.is_contiguous() for x in same):
            sum_shard([x.view(-1) for x in same], shard, shards)
        elif shard == 0:
            _add_terms(*same)
            for x in same[1:]:
                x.copy_(same[0])


def check_sum(xs: Sequence[Array]) -> list[tuple[Array, ...]]:
    """List the arrays that are to be summed; raises ValueError if they are unequal, have no sum or
    share memory.
    """
    terms = list(zip(*map(tree_leaves, xs), strict=True))
    for same in terms:
        check_terms(same)
    check_apart(xs)
    return terms


def _add_terms(total: Array, *terms: Array) -> Array:
    for term in terms:
        total.add_(term)
    return total
