"""Charts of bars, each beside its name and its value in words: figures, times, the cost model, dispatch.

Colour says the framework and hatching the synchronous engine; the names say both.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from humanize import metric

from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.plots.style import COLOURS
from parallel_core.report.scales import Scale, Tick, around, axis, from_zero, write_seconds

__all__ = [
    "Bar",
    "BarGroup",
    "BarsChart",
    "case_times_chart",
    "cost_model_chart",
    "dispatch_chart",
    "metric_chart",
    "side_style",
    "whisker",
    "write_times",
]

WIDEST_WHISKER = 1.5
"""Of the longest bar: an interval from two processes may reach much farther, and its bounds are written beside it."""
COST_MODEL_METRICS = {
    "waiting once": {
        "measured": "measured_once_seconds",
        "predicted": "predicted_once_seconds",
        "book’s formula": "book_predicted_once_seconds",
    },
    "waiting each time": {"measured": "measured_each_seconds", "predicted": "predicted_each_seconds"},
}


class Bar(NamedTuple):
    """A bar from one place to another, in percent of the chart's width, with the bounds of its whisker."""

    name: str
    value: str
    start: float
    end: float
    style: str
    """The class by which the page's style sheet colours it."""
    bounds: tuple[float, float] | None = None


class BarGroup(NamedTuple):
    """Bars under one heading, which is empty if they need none."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class BarsChart:
    """Groups of bars on one scale; marks are drawn only where lengths alone would not tell the values."""

    groups: tuple[BarGroup, ...]
    ticks: tuple[Tick, ...] = ()


class _Value(NamedTuple):
    name: str
    interval: Interval
    style: str


def metric_chart(analysis: Analysis, experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw the metric that answers an experiment's question, in every cell, with intervals."""
    values = [
        _Value(cell.cell.side, cell.metric, side_style(analysis, cell.cell))
        for cell in experiment.believed
        if cell.metric
    ]
    return _chart({"": values}, with_bounds) if values else None


def case_times_chart(analysis: Analysis, experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw every case's time in every cell, with intervals."""
    names = dict.fromkeys(name for cell in experiment.believed for name in cell.times)
    groups = {
        name: [
            _Value(cell.cell.side, cell.times[name], side_style(analysis, cell.cell))
            for cell in experiment.believed
            if name in cell.times
        ]
        for name in names
    }
    return _chart(groups, write_times) if groups else None


def cost_model_chart(analysis: Analysis, experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw the time of waiting once, and each time, as measured and as the cost model predicts it, if it does."""
    wanted = {name for names in COST_MODEL_METRICS.values() for name in names.values()}
    groups = {
        f"{cell.cell.side}, {waiting}": [
            _Value(label, cell.metrics[name], _cost_model_style(analysis, cell, label)) for label, name in names.items()
        ]
        for cell in experiment.believed
        if wanted <= set(cell.metrics)
        for waiting, names in COST_MODEL_METRICS.items()
    }
    return _chart(groups, write_times) if groups else None


def dispatch_chart(analysis: Analysis) -> BarsChart | None:
    """Draw a bar from when control returned to when all was done, for a case of each experiment and cell."""
    moments: dict[Cell, tuple[float, float]] = {}
    for analysed in analysis.believed:
        cases = analysed.results.cases(EXPERIMENTS[analysed.cell.experiment].timeline_case)
        if cases:
            returned, done = median(case.dispatch_median for case in cases), median(case.median for case in cases)
            moments[analysed.cell] = (returned, done)
    positive = [moment for both in moments.values() for moment in both if moment > 0]
    if not positive:
        return None
    scale = around(positive)
    groups: dict[str, list[Bar]] = {}
    for cell, (returned, done) in moments.items():
        value = f"{metric(returned, 's')} of {metric(done, 's')}"
        bar = Bar(cell.side, value, scale.place(returned), scale.place(done), side_style(analysis, cell))
        groups.setdefault(cell.experiment, []).append(bar)
    drawn = tuple(BarGroup(name, tuple(bars)) for name, bars in groups.items())
    return BarsChart(drawn, axis(scale, write_seconds))


def side_style(analysis: Analysis, cell: Cell) -> str:
    """Return the classes by which the style sheet gives a cell its framework's colour and its engine's hatching."""
    number = analysis.backends.index(cell.backend) % len(COLOURS)
    return f"side-{number} hatched" if cell.engine == "sync" else f"side-{number}"


def whisker(interval: Interval, scale: Scale) -> tuple[float, float] | None:
    """Return where an interval begins and ends on a scale; None for that of a single process, which has no bounds."""
    if not math.isfinite(interval.high):
        return None
    return scale.place(interval.low), scale.place(interval.high)


def write_times(interval: Interval) -> str:
    """Write a time with its bounds: `20.1 ms (19.8–20.9)`."""
    if not math.isfinite(interval.high):
        return metric(interval.estimate, "s")
    estimate, low, high = (metric(value, "s") for value in (interval.estimate, interval.low, interval.high))
    unit = estimate.partition(" ")[2]
    if low.endswith(f" {unit}") and high.endswith(f" {unit}"):
        return f"{estimate} ({low.removesuffix(f' {unit}')}–{high.removesuffix(f' {unit}')})"
    return f"{estimate} ({low} – {high})"


def _cost_model_style(analysis: Analysis, cell: CellAnalysis, label: str) -> str:
    return side_style(analysis, cell.cell) if label == "measured" else "predicted"


def _chart(groups: Mapping[str, Sequence[_Value]], write: Callable[[Interval], str]) -> BarsChart:
    scale = _scale(value.interval for values in groups.values() for value in values)
    return BarsChart(
        tuple(BarGroup(name, tuple(_bar(value, scale, write) for value in values)) for name, values in groups.items())
    )


def _bar(value: _Value, scale: Scale, write: Callable[[Interval], str]) -> Bar:
    interval = value.interval
    start, end = sorted((scale.place(0), scale.place(interval.estimate)))
    return Bar(value.name, write(interval), start, end, value.style, whisker(interval, scale))


def _scale(intervals: Iterable[Interval]) -> Scale:
    known = list(intervals)
    longest = max(abs(interval.estimate) for interval in known) * WIDEST_WHISKER
    bounds = [bound for interval in known for bound in (interval.low, interval.high) if math.isfinite(bound)]
    return from_zero([*(interval.estimate for interval in known), *(min(max(b, -longest), longest) for b in bounds)])
