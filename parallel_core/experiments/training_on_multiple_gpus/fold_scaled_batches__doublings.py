"""The points of a sweep in doublings."""

from collections.abc import Iterator

__all__ = ["doublings"]


def doublings(first: int, last: int) -> Iterator[int]:
    """Count from first to last by doubling; `last` is left out where it is not reached exactly."""
    while first <= last:
        yield first
        first *= 2
