"""Sums of tensors that replace their terms: one value per device, on devices that share one memory."""

from collections.abc import Sequence

from backends.arrays import check_equal, sum_shard, tree_leaves, tree_map
from backends.protocol import Array
from backends.torch.streams.sharing import check_apart

__all__ = ["add_into", "check_terms", "sum_own_shard"]

TORCH_SHARDED_BYTES = 2**21
"""From here on all devices, a shard each, sum faster than the first one alone."""


def add_into(first: Array, *others: Array) -> Array:
    """Add values to the first one's memory, and return it."""
    check_terms((first, *others))
    return tree_map(_add_terms, first, *others)


def sum_own_shard(xs: tuple[Array, ...], shard: int, shards: int | None = None) -> None:
    """Replace one shard of every value by the sum there; None makes a shard for each value if that is worth it."""
    # Every device checks before any of them writes.
    terms = check_terms(xs)
    # A short sum is done before a second thread has woken up.
    if sum(same[0].nbytes for same in terms) < TORCH_SHARDED_BYTES:
        shards = 1
    if shard >= (shards := shards or len(xs)):
        return
    for same in terms:
        if all(x.is_contiguous() for x in same):
            sum_shard([x.view(-1) for x in same], shard, shards)
        elif shard == 0:
            _add_terms(*same)
            for x in same[1:]:
                x.copy_(same[0])


def check_terms(xs: Sequence[Array]) -> list[tuple[Array, ...]]:
    """List the arrays that are to be summed; raises ValueError if they are unequal, have no sum or share memory."""
    terms = list(zip(*map(tree_leaves, xs), strict=True))
    for same in terms:
        check_equal(same)
        if str(same[0].dtype) == "torch.bool":
            raise ValueError("allreduce needs numbers: arrays of bool have no sum")
    check_apart(xs)
    return terms


def _add_terms(total: Array, *terms: Array) -> Array:
    for term in terms:
        total.add_(term)
    return total
