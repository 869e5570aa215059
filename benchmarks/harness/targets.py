"""A figure with its interval, and the target that it is held against."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from parallel_core.measurement.confidence_intervals import Interval, median_interval, with_bounds
from parallel_core.system.formatting import figure

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
        sign = "≥" if self.kind == "at least" else "≤"
        return f"{sign} {figure(self.bound)}"


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
        if self.interval.low == self.interval.high:
            return f"{figure(self.interval.estimate)} {self.unit}"
        return f"{with_bounds(self.interval)} {self.unit}"

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned; the verdict follows from the rest."""
        low = -math.inf if read["low"] is None else read["low"]
        high = math.inf if read["high"] is None else read["high"]
        target = None
        for kind, bound in (read["target"] or {}).items():
            target = Target(kind, bound)
        return cls(read["name"], Interval(read["estimate"], low, high), read["unit"], target)

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands in a document's `findings`; a bound that is infinite
        becomes null.
        """
        low, high = self.interval.low, self.interval.high
        return {
            "name": self.name,
            "estimate": self.interval.estimate,
            "low": low if math.isfinite(low) else None,
            "high": high if math.isfinite(high) else None,
            "unit": self.unit,
            "target": {self.target.kind: self.target.bound} if self.target else None,
            "verdict": self.verdict,
        }


def table_of(findings: Sequence[Finding]) -> str:
    """Write findings as a Markdown table."""
    rows = []
    for finding in findings:
        target, verdict = str(finding.target or ""), finding.verdict or ""
        rows.append([finding.name, finding.measured, target, verdict])
    return markdown_table(["", "measured", "target", ""], rows)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; a bar within a cell would begin another one."""
    lines = [f"| {' | '.join(headings)} |", f"| {' | '.join(['---'] * len(headings))} |"]
    for row in rows:
        escaped = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def tally(findings: Sequence[Finding]) -> str:
    """Say how many targets were met: `3 targets met, 1 missed, 2 undecided`."""
    verdicts = [finding.verdict for finding in findings]
    met, missed, undecided = map(verdicts.count, ("met", "missed", "undecided"))
    return f"{met} targets met, {missed} missed, {undecided} undecided"


def by_round(figure: Callable[..., float], *values: Sequence[float]) -> Interval:
    """Make a figure of values of each round, which share the cores or the process; return the
    rounds' median.
    """
    return median_interval([figure(*of_round) for of_round in zip(*values, strict=True)])


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval in another unit."""
    return Interval(factor * interval.estimate, factor * interval.low, factor * interval.high)


def share(count: int, total: int) -> Interval:
    """Return a share in percent, with its 95 % interval (Wilson 1927)."""
    z = 1.96
    estimate = count / total
    centre = (estimate + z**2 / (2 * total)) / (1 + z**2 / total)
    variance = estimate * (1 - estimate) / total + z**2 / (4 * total**2)
    half_width = z / (1 + z**2 / total) * math.sqrt(variance)
    low, high = max(0, centre - half_width), min(1, centre + half_width)
    return scaled(Interval(estimate, low, high), 100)
