"""The report's charts: figures, times, differences, the cost model, dispatch, curves and timelines.

Of bars, colour says the kind of work, and a hollow one that there is no queue; frameworks are
named.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from parallel_core.comparison.account import PARTS
from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.cells import Cell
from parallel_core.comparison.screen import title_of
from parallel_core.comparison.storage import TimelineOf
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.declaration import Layer, shown_case
from parallel_core.measurement.confidence_intervals import Interval, with_bounds, with_seconds
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import write_point
from parallel_core.report.plots.bars import Bar, BarsChart
from parallel_core.report.plots.curves import (
    COLOURS,
    DOTTED,
    Curve,
    CurvesChart,
    exact,
    learning_chart,
    sweep_chart,
)
from parallel_core.report.plots.timeline import Panel, TimelinesChart
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import figure, seconds
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import few_lanes, overlap_phrases

STYLES = {"operations": "compute", "overhead": "host", "transfer": "copy", "rest": "wait"}
"""The classes of parts of a time: the colours of the same work in a timeline."""
MAX_BLOCKS = 1200
"""The blocks in all timelines of an experiment: each takes about 200 bytes of the page."""
MAX_BLOCKS_OF_PAGE = 6000


def metric_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw the metric that answers an experiment's question, in every cell, with intervals."""
    bars = [
        _bar(analysed.cell.side, analysed.metric, _style_of(analysed.cell), with_bounds)
        for analysed in experiment.believed
        if analysed.metric
    ]
    return BarsChart({"": bars}, figure) if bars else None


def case_times_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw every case's time in every cell, with intervals."""
    groups: dict[str, list[Bar]] = {}
    for analysed in experiment.believed:
        style = _style_of(analysed.cell)
        for name, interval in analysed.times.items():
            bar = _bar(analysed.cell.side, interval, style)
            groups.setdefault(name, []).append(bar)
    return BarsChart(groups) if groups else None


def differences_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw what each framework's time differs by from another's: its parts, one after the other."""
    groups = {}
    for difference in (*experiment.between_frameworks, *experiment.between_engines):
        if not difference.parts:
            continue
        rows = [(PARTS[part], seconds, STYLES[part]) for part, seconds in difference.parts.items()]
        bars = [*_stacked(rows), *_stacked([("together", difference.seconds, "total")])]
        if difference.verdict == "too few runs":
            # The bounds of two processes reach farther than anybody believes.
            bars = [bar._replace(value=bar.value.partition(" (")[0]) for bar in bars]
        words = "; ".join(filter(None, (difference.in_words, difference.reasons_in_words)))
        groups[f"{difference.cell.side} against {difference.against.side}: {words}"] = bars
    return BarsChart(groups) if groups else None


def layers_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw what a step of an experiment takes, layer by layer, if it declares such layers."""
    layers = experiment.experiment.layers
    groups = {}
    for analysed in experiment.believed:
        steps = analysed.results.valid[0].parameters.get("steps")
        seconds = [_seconds_of_layer(analysed, layer) for layer in layers]
        if not layers or not steps or not all(seconds):
            continue
        rows = []
        for layer, (before, after) in zip(layers, pairwise([0.0, *seconds]), strict=True):
            rows.append((layer.name, exact((after - before) / steps), layer.style))
        groups[analysed.cell.side] = _stacked(rows)
    return BarsChart(groups) if groups else None


def _seconds_of_layer(analysed: CellAnalysis, layer: Layer) -> float:
    """Return the seconds of a layer and those before it; 0 if they were not measured."""
    if layer.is_bare:
        bare = analysed.results.medians(layer.case, "bare_seconds")
        return median(bare) if bare else 0.0
    return analysed.times[layer.case].estimate if layer.case in analysed.times else 0.0


def cost_model_chart(experiment: ExperimentAnalysis) -> BarsChart | None:
    """Draw metrics beside what predicts them, if an experiment declares predictions.

    Left out are the cells that have not all of them.
    """
    predictions = experiment.experiment.predictions
    wanted = {name for names in predictions.values() for name in names.values()}
    groups = {}
    for analysed in experiment.believed:
        if not wanted <= set(analysed.metrics):
            continue
        for predicted, names in predictions.items():
            bars = []
            for label, name in names.items():
                style = _style_of(analysed.cell) if label == "measured" else "predicted"
                bars.append(_bar(label, analysed.metrics[name], style))
            groups[f"{analysed.cell.side}, {predicted}"] = bars
    return BarsChart(groups) if groups else None


def dispatch_chart(analysis: Analysis) -> BarsChart | None:
    """Draw a bar from when control returned to when all was done.

    There is one for a case of each experiment and cell.
    """
    groups: dict[str, list[Bar]] = {}
    for analysed in analysis.believed:
        cell = analysed.cell
        usual = EXPERIMENTS[cell.experiment].queued_case
        cases = analysed.results.cases(shown_case(analysed.results.case_names, usual))
        if cases:
            returned = median(case.dispatch_median for case in cases)
            done = median(case.median for case in cases)
            written = f"{seconds(returned)} of {seconds(done)}"
            bar = Bar(cell.side, written, returned, done, _style_of(cell))
            groups.setdefault(cell.experiment, []).append(bar)
    return BarsChart(groups, log=True) if groups else None


def _style_of(cell: Cell) -> str:
    """Return the classes by which the style sheet draws a cell's bars: hollow without a queue."""
    return "total hollow" if cell.engine == "sync" else "total"


def _bar(
    name: str, interval: Interval, style: str, write: Callable[[Interval], str] = with_seconds
) -> Bar:
    # The interval of a single process has no bounds.
    bounds = (interval.low, interval.high) if math.isfinite(interval.high) else None
    return Bar(name, write(interval), 0, interval.estimate, style, bounds)


def _stacked(rows: Sequence[tuple[str, Interval, str]]) -> list[Bar]:
    """Draw seconds as bars of which each begins where the one before ended.

    A row has a name, seconds and the bar's style.
    """
    bars = []
    start = 0.0
    for name, interval, style in rows:
        end = start + interval.estimate
        bars.append(Bar(name, with_seconds(interval), start, end, style))
        start = end
    return bars


def curves_chart(
    experiment: ExperimentAnalysis,
) -> tuple[CurvesChart | None, tuple[tuple[str, ...], ...]]:
    """Draw an experiment's curves in every cell, with intervals, and write them as a table.

    The table's first row has the headings. Both are empty if the experiment sweeps over nothing.
    """
    curves = experiment.experiment.curves
    cells = [analysed for analysed in experiment.believed if analysed.curves]
    if curves is None or not cells:
        return None, ()
    swept = cells[0].results.valid[0].series[curves.over]
    columns = {curves.x_title: [write_point(value, curves.over) for value in swept]}
    for analysed in cells:
        for label, values in analysed.curves.items():
            heading = f"{analysed.cell.side}: {label}" if label else analysed.cell.side
            columns[heading] = [with_bounds(value) for value in values]
    rows = zip(*columns.values(), strict=False)
    panels = {analysed.cell.side: analysed.curves for analysed in cells}
    return sweep_chart(curves, swept, panels), (tuple(columns), *rows)


def learning_curves(analysis: Analysis, experiment: ExperimentAnalysis) -> CurvesChart | None:
    """Draw the learning curves of all cells over each other; None if it trains nothing."""
    curves = []
    for cell, result in trained(experiment):
        colour = f"c{analysis.backends.index(cell.backend) % COLOURS}"
        dash = DOTTED[0] if cell.engine == "sync" else ""
        curves.append((Curve(cell.side, colour, (), dash=dash), result))
    return learning_chart(curves) if curves else None


def trained(experiment: ExperimentAnalysis) -> list[tuple[Cell, Result]]:
    """Return each training cell with its first result.

    The other processes of a cell have the same losses.
    """
    first_results = [(cell.cell, cell.results.valid[0]) for cell in experiment.believed]
    return [(cell, result) for cell, result in first_results if "loss" in result.series]


def timelines_chart(
    experiment: ExperimentAnalysis, timeline_of: TimelineOf, experiments: int = 1
) -> tuple[TimelinesChart | None, dict[str, str]]:
    """Draw the timelines of an experiment's cells; return the reason for each cell without one.

    `experiments` is the number of those that share the page.
    """
    panels: list[Panel] = []
    without: dict[str, str] = {}
    max_blocks = min(MAX_BLOCKS, MAX_BLOCKS_OF_PAGE // experiments)
    usual = experiment.experiment.drawn_case
    for analysed in experiment.believed:
        side = analysed.cell.side
        try:
            timeline = timeline_of(analysed.cell)
        except RequestError as error:
            without[side] = str(error)
            continue
        filled = {case.name: case for case in cases_of(timeline) if case.nanoseconds}
        if not filled:
            without[side] = "; ".join(timeline.notes) or "nothing in its trace took any time"
            continue
        case = filled[shown_case(list(filled), usual)]
        lanes = few_lanes(case, max_blocks // len(experiment.believed))
        took = seconds(lanes.seconds) + ("" if case.name == usual else f" of “{case.name}”")
        # The same case by the clock, without a profiler.
        timed = [same.again_seconds for same in analysed.results.cases(case.name)]
        took += f" (timed: {seconds(median(timed))})" if timed else ""
        remarks = ", ".join((took, *overlap_phrases(figures_of(case))))
        panels.append(Panel(title_of(analysed.results.valid[0].backend), remarks, lanes))
    return TimelinesChart(panels) if panels else None, without
