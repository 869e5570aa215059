"""The report's charts of bars: figures, times, differences, the cost model, dispatch.

Colour says the kind of work, and a hollow bar that there is no queue; frameworks are named.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

from parallel_core.comparison.account import PARTS
from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.answers import difference_in_words, reasons_in_words
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation.asynchrony import EACH, ONCE, SINGLE
from parallel_core.measurement.confidence_intervals import Interval, with_bounds, with_seconds
from parallel_core.plots.bars import Bar, BarsChart
from parallel_core.plots.scales import Axis, Scale, around, from_zero, write_seconds
from parallel_core.system.formatting import figure, seconds

WIDEST_WHISKER = 1.5
"""Of the longest bar: an interval from two processes may reach much farther, and its bounds are written beside it."""
STYLES = {"operations": "compute", "overhead": "host", "transfer": "copy", "rest": "wait", "total": "total"}
"""The classes of parts of a time: the colours of the same work in a timeline."""
LAYERS = (
    ("the operation, in one unit", "compute"),
    ("+ the framework’s call of each", "host"),
    ("+ a launch of each", "exchange"),
    ("+ a wait for each", "wait"),
)
COST_MODEL_METRICS = {
    "waiting once": {
        "measured": "measured_once_seconds",
        "predicted": "predicted_once_seconds",
        "book’s formula": "book_predicted_once_seconds",
    },
    "waiting each time": {"measured": "measured_each_seconds", "predicted": "predicted_each_seconds"},
}


class _Value(NamedTuple):
    name: str
    interval: Interval
    style: str


def metric_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw the metric that answers an experiment's question, in every cell, with intervals."""
    values = [_Value(cell.cell.side, cell.metric, _style_of(cell.cell)) for cell in experiment.believed if cell.metric]
    return _chart({"": values}, with_bounds, figure) if values else None


def case_times_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw every case's time in every cell, with intervals."""
    names = dict.fromkeys(name for cell in experiment.believed for name in cell.times)
    groups = {
        name: [
            _Value(cell.cell.side, cell.times[name], _style_of(cell.cell))
            for cell in experiment.believed
            if name in cell.times
        ]
        for name in names
    }
    return _chart(groups, with_seconds, write_seconds) if groups else None


def differences_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw what each framework's time differs by from another's: its parts, each from where the one before ended."""
    compared = [one for one in (*experiment.between_frameworks, *experiment.between_engines) if one.parts]
    if not compared:
        return None
    scale = from_zero(end for one in compared for end in accumulate(part.estimate for part in one.parts.values()))
    groups = {}
    for one in compared:
        told = "; ".join(filter(None, (difference_in_words(one), reasons_in_words(one))))
        rows = [(PARTS[part], seconds, STYLES[part]) for part, seconds in one.parts.items()]
        bars = [*_stacked(rows), *_stacked([("together", one.seconds, STYLES["total"])])]
        if one.verdict == "too few runs":
            # The bounds of two processes reach farther than anybody believes.
            bars = [each._replace(value=each.value.partition(" (")[0]) for each in bars]
        groups[f"{one.cell.side} against {one.against.side}: {told}"] = bars
    return BarsChart(groups, Axis("", scale, write_seconds))


def _stacked(rows: Sequence[tuple[str, Interval, str]]) -> list[Bar]:
    """Draw seconds as bars of which each begins where the one before ended: names, seconds and styles."""
    bars, at = [], 0.0
    for name, taken, style in rows:
        bars.append(Bar(name, with_seconds(taken), at, at + taken.estimate, style))
        at += taken.estimate
    return bars


def layers_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw what a tiny operation takes, layer by layer: as a unit, and what each call, launch and wait adds to that."""
    drawn: dict[str, list[tuple[str, Interval, str]]] = {}
    for cell in experiment.believed:
        bare, steps = cell.results.bare_medians(ONCE), cell.results.valid[0].parameters.get("steps")
        if bare and steps and {SINGLE, ONCE, EACH} <= set(cell.times):
            ends = [0.0, median(bare), *(cell.times[case].estimate for case in (SINGLE, ONCE, EACH))]
            added = [(after - before) / steps for before, after in pairwise(ends)]
            alone = [Interval(one, -math.inf, math.inf) for one in added]
            drawn[cell.cell.side] = [(name, one, style) for (name, style), one in zip(LAYERS, alone, strict=True)]
    if not drawn:
        return None
    scale = from_zero(end for rows in drawn.values() for end in accumulate(one.estimate for _, one, _ in rows))
    groups = {side: _stacked(rows) for side, rows in drawn.items()}
    return BarsChart(groups, Axis("", scale, write_seconds))


def cost_model_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw the time of waiting once, and each time, as measured and as the cost model predicts it, if it does."""
    wanted = {name for names in COST_MODEL_METRICS.values() for name in names.values()}
    groups = {
        f"{cell.cell.side}, {waiting}": [
            _Value(label, cell.metrics[name], _cost_model_style(cell, label)) for label, name in names.items()
        ]
        for cell in experiment.believed
        if wanted <= set(cell.metrics)
        for waiting, names in COST_MODEL_METRICS.items()
    }
    return _chart(groups, with_seconds, write_seconds) if groups else None


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
    groups: dict[str, list[Bar]] = {}
    for cell, (returned, done) in moments.items():
        value = f"{seconds(returned)} of {seconds(done)}"
        bar = Bar(cell.side, value, returned, done, _style_of(cell))
        groups.setdefault(cell.experiment, []).append(bar)
    return BarsChart(groups, Axis("", around(positive), write_seconds))


def _style_of(cell: Cell) -> str:
    """Return the classes by which the style sheet draws a cell's bars: hollow without a queue."""
    return "total hollow" if cell.engine == "sync" else "total"


def _cost_model_style(cell: CellAnalysis, label: str) -> str:
    return _style_of(cell.cell) if label == "measured" else "predicted"


def _chart(
    groups: Mapping[str, Sequence[_Value]], write: Callable[[Interval], str], write_mark: Callable[[float], str]
) -> BarsChart:
    scale = _scale(value.interval for values in groups.values() for value in values)
    drawn = {name: [_bar(value, write(value.interval)) for value in values] for name, values in groups.items()}
    return BarsChart(drawn, Axis("", scale, write_mark))


def _bar(value: _Value, written: str) -> Bar:
    interval = value.interval
    # That of a single process has no bounds.
    bounds = (interval.low, interval.high) if math.isfinite(interval.high) else None
    return Bar(value.name, written, 0, interval.estimate, value.style, bounds)


def _scale(intervals: Iterable[Interval]) -> Scale:
    known = list(intervals)
    longest = max(abs(interval.estimate) for interval in known) * WIDEST_WHISKER
    bounds = [bound for interval in known for bound in (interval.low, interval.high) if math.isfinite(bound)]
    return from_zero([*(interval.estimate for interval in known), *(min(max(b, -longest), longest) for b in bounds)])
