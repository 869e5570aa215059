"""Values are arrays or tuples of values (a model's parameters, say); every verb takes both."""

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["leaves", "map_leaves"]


def map_leaves(fn: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply `fn` to every array of a value, beside the arrays at the same place in `others`; tuples stay tuples."""
    if isinstance(value, tuple | list):
        return tuple(map_leaves(fn, *items) for items in zip(value, *others, strict=True))
    return fn(value, *others)


def leaves(value: Any) -> Iterator[Any]:
    """Iterate over the arrays of a value, depth first."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, tuple | list):
            pending.extend(reversed(item))
        else:
            yield item
