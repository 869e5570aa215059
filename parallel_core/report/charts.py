"""The report's charts: dispatch, layers, curves and timelines; frameworks are named in words."""

from itertools import pairwise
from statistics import median

from parallel_core.compare.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.compare.results import CellResults
from parallel_core.compare.storage import TimelineOf
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.declaration import Layer, shown_case
from parallel_core.report.plots.curves import (
    COLOURS,
    DOTTED,
    Curve,
    CurvesChart,
    learning_chart,
    sweep_chart,
)
from parallel_core.report.plots.stacked import Part, Row, StackedChart
from parallel_core.report.plots.timeline import Panel, TimelinesChart
from parallel_core.report.tables import Table, curves_table
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import percent, seconds
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.lanes import few_lanes, overlap_phrases

MAX_BLOCKS = 1200
"""The most blocks in all timelines of an experiment: each takes about 200 bytes of the page."""
MAX_BLOCKS_OF_PAGE = 6000


def layers_chart(experiment: ExperimentAnalysis) -> StackedChart | None:
    """Draw the time of a step of an experiment, layer by layer, if it declares layers."""
    layers = experiment.experiment.layers
    rows = []
    for analysed in experiment.believed:
        steps = analysed.results.valid[0].parameters.get("steps")
        ends = [_seconds_up_to(analysed, layer) for layer in layers]
        are_measured = all(ends)
        if not layers or not steps or not are_measured:
            continue
        parts = []
        for layer, (start, end) in zip(layers, pairwise([0.0, *ends]), strict=True):
            parts.append(Part(layer.name, start / steps, end / steps, layer.style))
        rows.append(Row(analysed.results.title, parts, seconds(ends[-1] / steps)))
    return StackedChart({"": rows}) if rows else None


def _seconds_up_to(analysed: CellAnalysis, layer: Layer) -> float:
    """Return the seconds of a layer and the layers before it; 0 if they were not measured."""
    if layer.is_bare:
        bare = analysed.results.medians(layer.case, "bare_seconds")
        return median(bare) if bare else 0.0
    if layer.case not in analysed.times:
        return 0.0
    return analysed.times[layer.case].estimate


def dispatch_chart(analysis: Analysis) -> StackedChart | None:
    """Draw the share of a case's time that had passed when Python continued.

    Every experiment has a group with a row for each cell; its heading names the case.
    """
    groups: dict[str, list[Row]] = {}
    for analysed in analysis.believed:
        cell = analysed.cell
        usual = EXPERIMENTS[cell.experiment].queued_case
        shown = shown_case(analysed.results.case_names, usual)
        cases = analysed.results.cases(shown)
        if cases:
            returned = median(case.dispatch_median for case in cases)
            done = median(case.median for case in cases)
            share = min(returned / done, 1.0)
            parts = [
                Part("until Python continues", 0.0, share, "compute"),
                Part("until all is done", share, 1.0, "compute hollow"),
            ]
            written = f"{seconds(returned)} of {seconds(done)}"
            row = Row(analysed.results.title, parts, written)
            groups.setdefault(f"{cell.experiment}: {shown}", []).append(row)
    return StackedChart(groups, percent) if groups else None


def curves_chart(experiment: ExperimentAnalysis) -> tuple[CurvesChart | None, Table]:
    """Return the chart of an experiment's curves in every cell, and the same values as a table.

    Without curves they are None and empty.
    """
    curves = experiment.experiment.curves
    cells = [analysed for analysed in experiment.believed if analysed.curves]
    if curves is None or not cells:
        return None, ()
    swept = cells[0].results.valid[0].series[curves.over]
    panels = {analysed.results.title: analysed.curves for analysed in cells}
    return sweep_chart(curves, swept, panels), curves_table(experiment, curves, swept)


def learning_curves(analysis: Analysis, experiment: ExperimentAnalysis) -> CurvesChart | None:
    """Draw the learning curves of all cells over each other; None if there are none."""
    curves = []
    for results in trained(experiment):
        colour = f"c{analysis.backends.index(results.cell.backend) % COLOURS}"
        dash = DOTTED[0] if results.cell.engine == "sync" else ""
        curve = Curve(results.title, colour, (), dash=dash)
        curves.append((curve, results.valid[0]))
    return learning_chart(curves) if curves else None


def trained(experiment: ExperimentAnalysis) -> list[CellResults]:
    """Return the results of the cells that trained. The losses of all results of one are equal."""
    believed = [analysed.results for analysed in experiment.believed]
    return [results for results in believed if "loss" in results.valid[0].series]


def timelines_chart(
    experiment: ExperimentAnalysis, timeline_of: TimelineOf, experiments: int = 1
) -> tuple[TimelinesChart | None, dict[str, str]]:
    """Draw the timelines of an experiment's cells; also return the reasons of cells without one.

    `experiments` is the number of experiments that share the page.
    """
    panels: list[Panel] = []
    reasons: dict[str, str] = {}
    max_blocks = min(MAX_BLOCKS, MAX_BLOCKS_OF_PAGE // experiments)
    usual = experiment.experiment.drawn_case
    for analysed in experiment.believed:
        side = analysed.results.title
        try:
            timeline = timeline_of(analysed.cell)
        except RequestError as error:
            reasons[side] = str(error)
            continue
        cases = {case.name: case for case in cases_of(timeline) if case.nanoseconds}
        if not cases:
            notes = "; ".join(map(str, timeline.notes))
            reasons[side] = notes or "nothing in its trace took any time"
            continue
        case = cases[shown_case(list(cases), usual)]
        lanes = few_lanes(case, max_blocks // len(experiment.believed))
        duration = seconds(lanes.seconds)
        if case.name != usual:
            duration += f" of “{case.name}”"
        # The same case by the clock, without a profiler.
        timed = [same_case.again_seconds for same_case in analysed.results.cases(case.name)]
        if timed:
            duration += f" (timed: {seconds(median(timed))})"
        remarks = ", ".join((duration, *overlap_phrases(CaseFigures(case))))
        panels.append(Panel(analysed.results.title, remarks, lanes))
    return TimelinesChart(panels) if panels else None, reasons
