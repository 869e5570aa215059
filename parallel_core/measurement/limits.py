"""Limits on figures, as a person writes them: `hidden exchange >= 80 %`.

A limit holds if the whole interval of its figure keeps to it, and is broken if no part of it does.
In between nothing is said, so that a test which asks for the limit does not depend on chance.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from backends.errors import unknown
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.system.errors import RequestError

UnitName = Literal["share", "seconds", "ratio", "count"]
Verdict = Literal["holds", "broken", "open"]

FACTORS: Mapping[UnitName, Mapping[str, float]] = {
    "share": {"%": 0.01},
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "ratio": {"": 1.0},
    "count": {"": 1.0},
}
"""By unit, the words behind a number, and what they multiply it by."""
COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
IN_WORDS: Mapping[UnitName, str] = {
    "share": "is a share",
    "seconds": "is in seconds",
    "ratio": "is a number without a unit",
    "count": "is a number without a unit",
}
WRITTEN = re.compile(
    r"(?P<figure>.+?)\s*(?P<comparison>[<>]=?)\s*(?P<number>[\d.]+)\s*(?P<unit>.*)"
)


@dataclass(frozen=True)
class Limit:
    """A figure, and what it is to keep to: at least, or at most, a value in its own unit."""

    figure: str
    comparison: str
    """A key of COMPARE."""
    value: float
    written: str
    """The limit as it was written."""

    @property
    def is_least(self) -> bool:
        """Whether the figure is to be at least the value."""
        return self.comparison.startswith(">")

    def judge(self, interval: Interval) -> Verdict:
        """Return whether a figure with this interval keeps to the limit."""
        compare = COMPARE[self.comparison]
        keeps_low = compare(interval.low, self.value)
        keeps_high = compare(interval.high, self.value)
        # A bound that is not a number compares with nothing.
        if keeps_low != keeps_high or math.isnan(interval.low + interval.high):
            return "open"
        return "holds" if keeps_low else "broken"


def parse_limit(text: str, units: Mapping[str, UnitName]) -> Limit:
    """Read a limit; `units` are those of the figures that there are.

    Raises RequestError, in one line, for another form, figure or unit.
    """
    match = WRITTEN.fullmatch(text.strip())
    if match is None:
        raise RequestError(
            f"{text!r} is no limit: write one like 'hidden exchange >= 80 %', with >=, <=, > or <"
        )
    figure, number = match["figure"], match["number"]
    if figure not in units:
        raise RequestError(unknown("figure", figure, units))
    factors = FACTORS[units[figure]]
    if match["unit"] not in factors:
        allowed = " or ".join(f"{number} {word}".rstrip() for word in factors)
        raise RequestError(f"{text!r}: {figure} {IN_WORDS[units[figure]]}: write {allowed}")
    try:
        value = float(number) * factors[match["unit"]]
    except ValueError:
        raise RequestError(f"{text!r}: {number} is no number") from None
    return Limit(figure, match["comparison"], value, " ".join(text.split()))
