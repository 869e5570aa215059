"""What columns share: each different value is kept once, and an entry of a column is its place among them."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar, final

import numpy as np

__all__ = ["Places", "coded", "recoded"]

Value = TypeVar("Value", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)


@final
class Places(dict[Value, int]):
    """Gives each value that is asked for a place: the next one if it is new."""

    def __missing__(self, value: Value) -> int:
        place = self[value] = len(self)
        return place


def coded(values: Iterable[Value]) -> tuple[tuple[Value, ...], np.ndarray]:
    """Return the different values, in the order in which they come, and the place of each one among them."""
    places: Places[Value] = Places()
    codes = np.fromiter((places[value] for value in values), np.int32)
    return tuple(places), codes


def recoded(
    values: Sequence[Value], codes: np.ndarray, change: Callable[[Value], Other]
) -> tuple[tuple[Other, ...], np.ndarray]:
    """Return a coded column with each value changed: those that become equal become one."""
    used = np.unique(codes)
    changed, places = coded([change(values[code]) for code in used.tolist()])
    translation = np.zeros(len(values), np.int32)
    translation[used] = places
    return changed, translation[codes]
