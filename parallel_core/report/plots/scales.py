"""Scales and axes of charts: the positions of values, and the values that are marked."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parallel_core.system.formatting import seconds

WANTED_TICKS = 6
MARGIN = 0.06
"""The margin on both sides, as a share of a logarithmic scale's length."""
LINEAR_MARGIN = 0.05
FEW_DECADES = 2.5
"""The decades up to which a logarithmic scale has marks within its decades."""


@dataclass(frozen=True)
class Scale:
    """A scale from `low` to `high` along a line."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value, as a share of the line.

        A value outside of the scale has the position of the nearer end.
        """
        inside = min(max(value, self.low), self.high)
        if self.log:
            return math.log(inside / self.low) / math.log(self.high / self.low)
        return (inside - self.low) / (self.high - self.low)

    @property
    def marks(self) -> tuple[float, ...]:
        """Round values on the scale; on a linear scale there are three to seven."""
        decades = math.log10(self.high / self.low) if self.log else 0.0
        if decades > FEW_DECADES:
            stride = math.ceil(decades / WANTED_TICKS)
            lowest = math.ceil(math.log10(self.low))
            highest = math.floor(math.log10(self.high))
            return tuple(10.0**power for power in range(lowest, highest + 1, stride))
        if decades >= 2:
            return self._within_decades((1, 3))
        if decades > 1:
            return self._within_decades((1, 2, 5))
        step = _round_step((self.high - self.low) / WANTED_TICKS)
        lowest = math.ceil(self.low / step - 1e-9)
        highest = math.floor(self.high / step + 1e-9)
        return tuple(number * step for number in range(lowest, highest + 1))

    def _within_decades(self, digits: Sequence[int]) -> tuple[float, ...]:
        """Return the values on the scale that are one of the digits times a power of ten."""
        lowest = math.floor(math.log10(self.low))
        highest = math.ceil(math.log10(self.high))
        values: list[float] = []
        for power in range(lowest, highest + 1):
            values += [digit * 10.0**power for digit in digits]
        return tuple(value for value in values if self.low <= value <= self.high)


class Axis(NamedTuple):
    """A scale with a title and labelled marks."""

    title: str
    scale: Scale
    write: Callable[[float], str]
    """The function that writes the label of a value."""
    marked: Sequence[float] = ()
    """The values that are marked; empty for round values."""

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The positions of the marks, as shares of the line, with their labels."""
        values = self.marked or self.scale.marks
        return tuple((self.scale.place(value), self.write(value)) for value in values)


def linear(values: Iterable[float]) -> Scale:
    """Return a linear scale that holds the values, with a margin above them.

    If a value is negative, there is a margin below them too.
    """
    values = list(values)
    low, high = min(values), max(values)
    length = (high - low) or 1
    margin = LINEAR_MARGIN * length
    if low < 0:
        low -= margin
    return Scale(low, high + margin)


def from_zero(values: Iterable[float]) -> Scale:
    """Return a linear scale that holds the values and 0."""
    values = [0.0, *values]
    low, high = min(values), max(values)
    if high == low:
        high = low + 1.0
    return Scale(low, high)


def around(values: Iterable[float]) -> Scale:
    """Return a logarithmic scale that holds positive values, with a margin on both sides."""
    logs = [math.log(value) for value in values]
    low, high = min(logs), max(logs)
    margin = MARGIN * (high - low) or 0.5
    return Scale(math.exp(low - margin), math.exp(high + margin), log=True)


def write_seconds(value: float) -> str:
    """Write a time at a mark: `20 ms`; a time of 0 has no unit."""
    if not value:
        return "0"
    number, _, unit = seconds(value).partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {unit}"


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    round_values = [digit * power for digit in (1, 2, 5, 10)]
    return min(value for value in round_values if value >= least * (1 - 1e-9))
