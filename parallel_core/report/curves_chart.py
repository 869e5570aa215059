"""The report's charts of curves: a panel for each cell of a sweep, and the learning curves of all cells in one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.cells import Cell
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, write_point
from parallel_core.plots.style import COLOURS, CurveStyle, Dash, curve_styles, curve_ticks
from parallel_core.report.scales import Scale, Tick, around, axis
from parallel_core.system.formatting import figure

__all__ = ["Curve", "CurvesChart", "Mark", "Panel", "curves_chart", "learning_chart", "trained"]

SHAPES = 6
"""The marks that the page draws: labels of one panel differ by shape too."""
MAX_POINTS = 400
"""Of a curve; a screen shows no more."""
CHANCE = 0.2
"""Of ten classes: an accuracy below is guessing, or hardly better."""
MARGIN = 0.05
"""Of the values' range, above and below them."""
DASHES: Mapping[Dash, str] = {"solid": "", "dot": "2 5", "dash": "8 5", "dashdot": "9 4 2 4"}


class Mark(NamedTuple):
    """A point in percent of the panel, its whisker's ends, and what it says when pointed at."""

    x: float
    y: float
    bounds: tuple[float, float] | None
    text: str


class Curve(NamedTuple):
    """A line through points in percent of the panel, with marks on some of them."""

    label: str
    style: str
    """The class by which the page's style sheet colours it; empty if `colour` does."""
    colour: str
    dash: str
    width: float
    shape: int | None
    points: str
    marks: tuple[Mark, ...]


class Panel(NamedTuple):
    """A panel and its curves; y grows upwards."""

    name: str
    y_title: str
    y_ticks: tuple[Tick, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class CurvesChart:
    """Panels with one x axis; the legend names each curve once."""

    panels: tuple[Panel, ...]
    legend: tuple[Curve, ...]
    x_title: str
    x_ticks: tuple[Tick, ...]
    table: tuple[tuple[str, ...], ...] = ()
    """The values in words, the first row the headings."""


class _Line(NamedTuple):
    """A curve before it has a place."""

    label: str
    xs: Sequence[float]
    values: Sequence[Interval]
    style: str = ""
    colour: str = ""
    dash: Dash = "solid"
    width: float = 2.0
    shape: int | None = None


def curves_chart(experiment: ExperimentAnalysis) -> CurvesChart | None:
    """Draw an experiment's curves in every cell, with intervals; None if it sweeps over nothing."""
    curves = experiment.experiment.curves
    cells = [cell for cell in experiment.believed if cell.curves]
    if curves is None or not cells:
        return None
    styles = curve_styles((label for cell in cells for label in cell.curves), curves)
    swept = cells[0].results.valid[0].series[curves.over]
    x_scale = around(swept) if curves.log_x else _linear(swept)
    x_ticks = axis(x_scale, lambda value: write_point(value, curves.over))
    if curves.log_x:
        # Measured points, for round values of bytes are powers of 2.
        x_ticks = tuple(Tick(x_scale.place(at), label) for at, label in curve_ticks(swept, curves).items())
    # The scale holds the estimates and not the intervals, which are wide if there are few processes.
    values = [interval.estimate for cell in cells for curve in cell.curves.values() for interval in curve]
    y_scale = _value_scale(values, curves)
    drawn = [
        Panel(
            cell.cell.side,
            curves.y_title,
            axis(y_scale, figure),
            tuple(_curve(_line_of(cell, curves, label, styles), x_scale, y_scale, curves) for label in cell.curves),
        )
        for cell in cells
    ]
    legend = {curve.label: curve for panel in drawn for curve in panel.curves}
    return CurvesChart(tuple(drawn), tuple(legend.values()), curves.x_title, x_ticks, _table(cells, curves))


def learning_chart(analysis: Analysis, experiment: ExperimentAnalysis) -> CurvesChart | None:
    """Draw the losses of all cells over each other, batch by batch, and the test accuracy after each epoch."""
    cells = trained(experiment)
    if not cells:
        return None
    losses, accuracies = [], []
    for number, (cell, result) in enumerate(cells):
        loss, accuracy = result.series["loss"], result.series["test_accuracy"]
        steps, stride = len(loss) / len(accuracy), math.ceil(len(loss) / MAX_POINTS)
        dash: Dash = "dot" if cell.engine == "sync" else "solid"
        # Curves that coincide hide each other: each later one is thinner, so that all can be seen.
        style = f"side-{analysis.backends.index(cell.backend) % len(COLOURS)}"
        line = _Line(
            cell.side,
            (),
            (),
            style,
            "",
            dash,
            max(1.5, 7 - 1.8 * number),
        )
        batches = range(0, len(loss), stride)
        losses.append(
            line._replace(xs=[(at + 1) / steps for at in batches], values=[_point(loss[at]) for at in batches])
        )
        epochs = range(1, len(accuracy) + 1)
        accuracies.append(line._replace(xs=list(epochs), values=list(map(_point, accuracy)), shape=number % SHAPES))
    x_scale = Scale(0, max(chain.from_iterable(line.xs for line in accuracies)))
    highest = max(point.estimate for line in losses for point in line.values)
    scales = (Scale(0, highest * (1 + MARGIN)), Scale(0, 1))
    drawn = tuple(
        Panel(name, "", axis(scale, figure), tuple(_curve(line, x_scale, scale, None) for line in lines))
        for name, lines, scale in zip(("loss per image", "test accuracy"), (losses, accuracies), scales, strict=True)
    )
    # Accuracies at the level of chance say nothing.
    has_learnt = any(accuracy >= CHANCE for _, result in cells for accuracy in result.series["test_accuracy"])
    return CurvesChart(drawn if has_learnt else drawn[:1], drawn[1].curves, "epoch", axis(x_scale, figure))


def trained(experiment: ExperimentAnalysis) -> list[tuple[Cell, Result]]:
    """Return each training cell with its first result; the other processes of a cell have the same losses."""
    first_results = [(cell.cell, cell.results.valid[0]) for cell in experiment.believed]
    return [(cell, result) for cell, result in first_results if "loss" in result.series]


def _line_of(cell: CellAnalysis, curves: Curves, label: str, styles: Mapping[str, CurveStyle]) -> _Line:
    colour, dash = styles[label]
    solid = [name for name, style in styles.items() if style.dash == "solid"]
    shape = solid.index(label) % SHAPES if label in solid else None
    xs = cell.results.valid[0].series[curves.over]
    return _Line(label or curves.y_title, xs, cell.curves[label], "", colour, dash, 2.0, shape)


def _curve(line: _Line, x_scale: Scale, y_scale: Scale, curves: Curves | None) -> Curve:
    known = [(x, value) for x, value in zip(line.xs, line.values, strict=False) if math.isfinite(value.estimate)]
    places = [(x_scale.place(x), 100 - y_scale.place(value.estimate)) for x, value in known]
    marks = tuple(
        Mark(x, y, _bounds(value, y_scale), f"{line.label}: {with_bounds(value)} at {_write_x(at, curves)}")
        for (x, y), (at, value) in zip(places, known, strict=True)
        if line.shape is not None or curves is not None
    )
    return Curve(
        line.label,
        line.style,
        line.colour,
        DASHES[line.dash],
        line.width,
        line.shape,
        " ".join(f"{x:.5g},{y:.5g}" for x, y in places),
        marks,
    )


def _bounds(value: Interval, scale: Scale) -> tuple[float, float] | None:
    if not math.isfinite(value.high):
        return None
    return 100 - scale.place(value.low), 100 - scale.place(value.high)


def _write_x(value: float, curves: Curves | None) -> str:
    return write_point(value, curves.over) if curves else f"epoch {figure(value)}"


def _table(cells: Sequence[CellAnalysis], curves: Curves) -> tuple[tuple[str, ...], ...]:
    swept = cells[0].results.valid[0].series[curves.over]
    columns = {
        f"{cell.cell.side}{': ' if label else ''}{label}": [with_bounds(value) for value in cell.curves[label]]
        for cell in cells
        for label in cell.curves
    }
    rows = zip((write_point(value, curves.over) for value in swept), *columns.values(), strict=False)
    return ((curves.x_title, *columns), *rows)


def _value_scale(values: Sequence[float], curves: Curves) -> Scale:
    finite = [value for value in values if math.isfinite(value)]
    positive = [value for value in finite if value > 0]
    return around(positive) if curves.log_y and positive else _linear([0, *finite])


def _linear(values: Sequence[float]) -> Scale:
    margin = MARGIN * (max(values) - min(values) or 1)
    return Scale(min(values) - margin * (min(values) < 0), max(values) + margin)


def _point(value: float) -> Interval:
    return Interval(value, -math.inf, math.inf)
