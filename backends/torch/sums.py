"""Sums of tensors that replace their terms: one value per device, on devices that share one memory."""

from collections.abc import Sequence

from backends.arrays import check_terms, sum_shard, tree_leaves, tree_map
from backends.protocol import Array
from backends.torch.streams.sharing import check_apart

__all__ = ["add_into", "check_sum", "sum_own_shard"]

TORCH_SHARDED_BYTES = 2**21
"""From here on all devices, a shard each, sum faster than the first one alone."""


def add_into(first: Array, *others: Array) -> Array:
    """Add values to the first one's memory, and return it."""
    check_sum((first, *others))
    return tree_map(_add_terms, first, *others)


def sum_own_shard(xs: tuple[Array, ...], shard: int, shards: int | None = None) -> None:
    """Replace one shard of every value by the sum there; None makes a shard for each value if that is worth it."""
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
    """List the arrays that are to be summed; raises ValueError if they are unequal, have no sum or share memory."""
    terms = list(zip(*map(tree_leaves, xs), strict=True))
    for same in terms:
        check_terms(same)
    check_apart(xs)
    return terms


def _add_terms(total: Array, *terms: Array) -> Array:
    for term in terms:
        total.add_(term)
    return total
