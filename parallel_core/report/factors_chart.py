"""The chart of why a cell took longer or shorter than the first one: its kernels, times its scheduling.

On a logarithmic scale a product is a sum of lengths: the first bar goes from 1 to the factor of the kernels, the second
from there by the factor of scheduling, and ends at the ratio of the times.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from parallel_core.comparison.analysis import ExperimentAnalysis
from parallel_core.comparison.verdicts import COMPUTES, SCHEDULES, TimeRatio
from parallel_core.measurement.confidence_intervals import Interval, Verdict, with_bounds
from parallel_core.report.scales import Scale, Tick, around, axis
from parallel_core.system.formatting import figure

__all__ = ["Factor", "FactorsChart", "FactorsRow", "factors_chart"]

NARROWEST = (0.8, 1.25)
"""The scale holds these ratios, so that one of 1.01 does not look large."""
WIDEST_WHISKER = 2.0
"""An interval farther off than this many times the largest ratio is cut: few processes give wide ones."""
IN_WORDS: Mapping[str, Mapping[Verdict, str]] = {"kernels": COMPUTES, "scheduling": SCHEDULES, "total": {}}


class Factor(NamedTuple):
    """A bar from one place to another, in percent of the chart's width, and what it says."""

    kind: str
    """`kernels`, `scheduling`, or `total` for a ratio that is not split."""
    value: str
    words: str
    start: float
    end: float
    bounds: tuple[float, float] | None


class FactorsRow(NamedTuple):
    """A cell: its whole ratio, and its factors."""

    name: str
    total: Factor
    factors: tuple[Factor, ...]
    """Empty if the ratio is not split."""


@dataclass(frozen=True)
class FactorsChart:
    """A row for each cell but the first, with which all are compared."""

    against: str
    rows: tuple[FactorsRow, ...]
    ticks: tuple[Tick, ...]
    one: float
    """Where equal times lie, in percent."""

    @property
    def split(self) -> bool:
        """Whether any ratio has factors."""
        return any(row.factors for row in self.rows)


def factors_chart(experiment: ExperimentAnalysis) -> FactorsChart | None:
    """Draw the factors of each cell's time over the first cell's; None if no cell is compared."""
    ratios = [cell.ratio for cell in experiment.believed if cell.ratio]
    if not ratios:
        return None
    scale = _scale(ratios)
    rows = tuple(FactorsRow(ratio.cell.side, _total(ratio, scale), _factors(ratio, scale)) for ratio in ratios)
    return FactorsChart(ratios[0].against.side, rows, axis(scale, lambda value: f"{figure(value)} ×"), scale.place(1))


def _scale(ratios: list[TimeRatio]) -> Scale:
    intervals = [one for ratio in ratios for one in (ratio.interval, ratio.kernels) if one is not None]
    estimates = [*NARROWEST, *(interval.estimate for interval in intervals)]
    low, high = min(estimates) / WIDEST_WHISKER, max(estimates) * WIDEST_WHISKER
    finite = [interval for interval in intervals if math.isfinite(interval.high)]
    bounds = [bound for interval in finite for bound in (interval.low, interval.high)]
    return around([*estimates, *(min(max(bound, low), high) for bound in bounds)])


def _total(ratio: TimeRatio, scale: Scale) -> Factor:
    return _factor("total", ratio.interval, ratio.verdict, 1.0, scale)


def _factors(ratio: TimeRatio, scale: Scale) -> tuple[Factor, ...]:
    if ratio.kernels is None or ratio.scheduling is None:
        return ()
    return (
        _factor("kernels", ratio.kernels, ratio.kernels_verdict, 1.0, scale),
        _factor("scheduling", ratio.scheduling, ratio.scheduling_verdict, ratio.kernels.estimate, scale),
    )


def _factor(kind: str, interval: Interval, verdict: Verdict | None, start: float, scale: Scale) -> Factor:
    bounds = None
    if math.isfinite(interval.high):
        bounds = (scale.place(start * interval.low), scale.place(start * interval.high))
    return Factor(
        kind,
        f"{with_bounds(interval)} ×",
        IN_WORDS[kind].get(verdict, verdict) if verdict else "",
        scale.place(start),
        scale.place(start * interval.estimate),
        bounds,
    )
