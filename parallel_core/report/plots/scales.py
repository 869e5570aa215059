"""Scales and axes of charts: where a value lies between two bounds, and which round values are
marked.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parallel_core.system.formatting import seconds

WANTED_TICKS = 6
MARGIN = 0.06
"""Of a logarithmic scale's length, on both sides."""
LINEAR_MARGIN = 0.05
FEW_DECADES = 2.5
"""A logarithmic scale up to so long has marks within its decades."""


@dataclass(frozen=True)
class Scale:
    """The values from `low` to `high`, along a line."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies, as a share of the line; what lies outside is drawn at the
        nearer end.
        """
        low, high, inside = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, inside = math.log(low), math.log(high), math.log(inside)
        return (inside - low) / (high - low)

    @property
    def marks(self) -> tuple[float, ...]:
        """Round values on the scale, three to seven where it is linear."""
        decades = math.log10(self.high / self.low) if self.log else 0.0
        if decades > FEW_DECADES:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return tuple(
                10.0**power for power in range(first, last + 1, math.ceil(decades / WANTED_TICKS))
            )
        if decades > 1:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            few = (1, 2, 5) if decades < 2 else (1, 3)
            return tuple(
                at
                for power in powers
                for one in few
                if self.low <= (at := one * 10.0**power) <= self.high
            )
        step = _round_step((self.high - self.low) / WANTED_TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple(number * step for number in range(first, last + 1))


class Axis(NamedTuple):
    """A scale under its title, and how its values are written; its marks are round unless `marked`
    names some.
    """

    title: str
    scale: Scale
    write: Callable[[float], str]
    marked: Sequence[float] = ()

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The places of the marks, as shares of the line, with their labels."""
        return tuple(
            (self.scale.place(value), self.write(value))
            for value in self.marked or self.scale.marks
        )


def linear(values: Iterable[float]) -> Scale:
    """Return a linear scale that holds the values, with a margin above, and below if one is
    negative.
    """
    known = list(values)
    margin = LINEAR_MARGIN * (max(known) - min(known) or 1)
    return Scale(min(known) - margin * (min(known) < 0), max(known) + margin)


def from_zero(values: Iterable[float]) -> Scale:
    """Return a linear scale that holds the values and 0."""
    known = [0.0, *values]
    return Scale(min(known), max(known) if max(known) > min(known) else min(known) + 1.0)


def around(values: Iterable[float]) -> Scale:
    """Return a logarithmic scale that holds the values, which are positive, with a margin."""
    logs = [math.log(value) for value in values]
    margin = MARGIN * (max(logs) - min(logs)) or 0.5
    return Scale(math.exp(min(logs) - margin), math.exp(max(logs) + margin), log=True)


def write_seconds(value: float) -> str:
    """Write a marked time: `20 ms`; nothing has no unit."""
    if not value:
        return "0"
    number, _, unit = seconds(value).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least * (1 - 1e-9))
