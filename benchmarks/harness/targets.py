"""A figure with its interval, and its target."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, Self

from parallel_core.measurement.confidence_intervals import Interval, median_interval, with_bounds
from parallel_core.system.formatting import figure, percent

Verdict = Literal["met", "missed", "undecided"]


@dataclass(frozen=True)
class Target:
    """A bound that a figure must keep."""

    kind: Literal["at least", "at most"]
    bound: float

    def verdict(self, interval: Interval) -> Verdict:
        """Return whether the whole interval keeps the bound; `undecided` if the bound lies within
        it.
        """
        low, high, bound = interval.low, interval.high, self.bound
        if self.kind == "at most":
            low, high, bound = -high, -low, -bound
        if low >= bound:
            return "met"
        return "missed" if high < bound else "undecided"

    def __str__(self) -> str:
        return f"{'≥' if self.kind == 'at least' else '≤'} {figure(self.bound)}"


@dataclass(frozen=True)
class Finding:
    """A figure with its interval; `unit` is `×` for a ratio."""

    name: str
    interval: Interval
    unit: str = "×"
    target: Target | None = None

    @property
    def verdict(self) -> Verdict | None:
        """What the target allows to say; None without one."""
        return self.target.verdict(self.interval) if self.target else None

    @property
    def measured(self) -> str:
        """The figure with its interval, if it is not exact, and its unit."""
        exact = self.interval.low == self.interval.high
        return (
            f"{figure(self.interval.estimate) if exact else with_bounds(self.interval)} {self.unit}"
        )

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned; the verdict follows from the rest."""
        bounds = (
            -math.inf if read["low"] is None else read["low"],
            math.inf if read["high"] is None else read["high"],
        )
        target = next((Target(kind, bound) for kind, bound in (read["target"] or {}).items()), None)
        return cls(read["name"], Interval(read["estimate"], *bounds), read["unit"], target)

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands in a benchmark's `findings`; a bound that is infinite
        becomes null.
        """
        bounds = {
            "estimate": self.interval.estimate,
            "low": self.interval.low,
            "high": self.interval.high,
        }
        return {
            "name": self.name,
            **{name: value if math.isfinite(value) else None for name, value in bounds.items()},
            "unit": self.unit,
            "target": {self.target.kind: self.target.bound} if self.target else None,
            "verdict": self.verdict,
        }


def table_of(findings: Sequence[Finding]) -> str:
    """Write findings as a Markdown table."""
    rows = [[one.name, one.measured, str(one.target or ""), one.verdict or ""] for one in findings]
    return markdown_table(["", "measured", "target", ""], rows)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; a bar within a cell would begin another one."""
    lines = [
        headings,
        ["---"] * len(headings),
        *([cell.replace("|", "\\|") for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_round(figure: Callable[..., float], *values: Sequence[float]) -> Interval:
    """Make a figure of values of each round, which share the cores or the process; return the
    rounds' median.
    """
    return median_interval([figure(*of_round) for of_round in zip(*values, strict=True)])


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval in another unit."""
    return Interval(*(factor * value for value in astuple(interval)))


def bounds(count: int, of: int) -> str:
    """Write the 95 % interval of a share (Wilson 1927)."""
    z = 1.96
    share = count / of
    centre = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * (share * (1 - share) / of + z**2 / (4 * of**2)) ** 0.5
    return f"{percent(max(0, centre - half))}–{percent(min(1, centre + half))}"


def tally(verdicts: Sequence[str | None]) -> str:
    """Say how many targets were met: `3 targets met, 1 missed, 2 undecided`."""
    counts = {kind: verdicts.count(kind) for kind in ("met", "missed", "undecided")}
    return (
        f"{counts['met']} targets met, {counts['missed']} missed, {counts['undecided']} undecided"
    )
