"""A figure with its interval, and its target."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.system.formatting import figure

__all__ = ["Finding", "Target", "Verdict", "rows", "tally"]

Verdict = Literal["met", "missed", "undecided"]


@dataclass(frozen=True)
class Target:
    """A bound that a figure must keep."""

    kind: Literal["at least", "at most"]
    bound: float

    def verdict(self, interval: Interval) -> Verdict:
        """Return whether the whole interval keeps the bound; `undecided` if the bound lies within it."""
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

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned; the verdict follows from the rest."""
        bounds = (-math.inf if read["low"] is None else read["low"], math.inf if read["high"] is None else read["high"])
        target = next((Target(kind, bound) for kind, bound in (read["target"] or {}).items()), None)
        return cls(read["name"], Interval(read["estimate"], *bounds), read["unit"], target)

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands in a benchmark's `findings`; a bound that is infinite becomes null."""
        bounds = {"estimate": self.interval.estimate, "low": self.interval.low, "high": self.interval.high}
        return {
            "name": self.name,
            **{name: value if math.isfinite(value) else None for name, value in bounds.items()},
            "unit": self.unit,
            "target": {self.target.kind: self.target.bound} if self.target else None,
            "verdict": self.verdict,
        }


def rows(findings: Sequence[Finding]) -> list[str]:
    """Write findings as the lines of a Markdown table."""
    return [
        "| | measured | target | |",
        "| --- | --- | --- | --- |",
        *(
            f"| {one.name} | {with_bounds(one.interval)} {one.unit} | {one.target or ''} | {one.verdict or ''} |"
            for one in findings
        ),
    ]


def tally(verdicts: Sequence[str | None]) -> str:
    """Say how many targets were met: `3 targets met, 1 missed, 2 undecided`."""
    counts = {kind: verdicts.count(kind) for kind in ("met", "missed", "undecided")}
    return f"{counts['met']} targets met, {counts['missed']} missed, {counts['undecided']} undecided"
