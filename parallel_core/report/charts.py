"""The report's charts, drawn by plotly. Colour says the framework and hatching the synchronous engine.

plotly reads labels as a kind of HTML, so names are escaped.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from textwrap import wrap

import plotly.graph_objects as go

from parallel_core.comparison.analysis import Analysis, ExperimentAnalysis
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Result
from parallel_core.plots.style import COLOURS, GREY

__all__ = [
    "case_times_chart",
    "cost_model_chart",
    "dispatch_chart",
    "error_bars",
    "framed",
    "learning_chart",
    "metric_chart",
    "trained",
]

ROW, FRAME = 22, 110
"""Pixels: of a bar, and of what surrounds the bars."""
COST_MODEL_METRICS = {
    "measured": ("measured_once_seconds", "measured_each_seconds"),
    "predicted, the slower side repeated": ("predicted_once_seconds", "predicted_each_seconds"),
    "predicted by the book's formula": ("book_predicted_once_seconds",),
}


def case_times_chart(analysis: Analysis, experiment: ExperimentAnalysis) -> go.Figure | None:
    """Draw every case's time in every cell, with intervals."""
    cells = experiment.believed
    names = dict.fromkeys(name for cell in cells for name in cell.times)
    bars = []
    for cell in cells:
        times = {"<br>".join(map(escape, wrap(name, 18))): cell.times[name] for name in names if name in cell.times}
        bars.append(_interval_bars(escape(cell.cell.side), times, " s", _marker(analysis, cell.cell)))
    return _bar_chart(bars, "seconds until all was done", len(names) * (len(cells) + 1))


def metric_chart(analysis: Analysis, experiment: ExperimentAnalysis) -> go.Figure | None:
    """Draw the metric that answers an experiment's question, in every cell, with intervals."""
    bars = []
    for cell in experiment.believed:
        if cell.metric:
            side = escape(cell.cell.side)
            bars.append(_interval_bars(side, {side: cell.metric}, "", _marker(analysis, cell.cell)))
    drawn = _bar_chart(bars, experiment.experiment.metric, len(bars))
    if drawn is not None:
        drawn.update_layout(showlegend=False, barmode="overlay")
    return drawn


def dispatch_chart(analysis: Analysis) -> go.Figure | None:
    """Draw when control returned and when all was done, for a case of each experiment, on a logarithmic scale."""
    drawn = go.Figure()
    for cell in analysis.believed:
        cases = cell.results.cases(EXPERIMENTS[cell.cell.experiment].queued_case)
        if not cases:
            continue
        label = f"{escape(cell.cell.experiment)}<br>{escape(cell.cell.side)}"
        drawn.add_trace(
            go.Scatter(
                x=[median(case.dispatch_median for case in cases), median(case.median for case in cases)],
                y=[label, label],
                mode="lines+markers",
                line={"color": _colour(analysis, cell.cell), "width": 3},
                marker={"size": 11, "symbol": ["circle-open", "circle"]},
                hovertemplate=["control returned after %{x:.3s}s", "done after %{x:.3s}s"],
                name=label,
            )
        )
    if not drawn.data:
        return None
    framed(drawn, "seconds: ○ control returned ● done", 1.8 * len(drawn.data))
    drawn.update_xaxes(type="log", dtick=1)
    return drawn.update_layout(showlegend=False)


def cost_model_chart(analysis: Analysis) -> go.Figure | None:
    """Draw the time of waiting once, and each time, as measured and as the cost model predicts it."""
    wanted = {name for names in COST_MODEL_METRICS.values() for name in names}
    cells = [one for one in analysis.believed if one.cell.experiment == "async" and wanted <= set(one.metrics)]
    bars = []
    for (label, names), shade in zip(COST_MODEL_METRICS.items(), COLOURS, strict=False):
        intervals = {
            f"{escape(cell.cell.side)},<br>{waiting}": cell.metrics[name]
            for cell in cells
            for name, waiting in zip(names, ("waiting once", "waiting each time"), strict=False)
        }
        bars.append(_interval_bars(label, intervals, " s", {"color": shade}))
    return _bar_chart(bars if cells else [], "seconds for all increments", 6 * len(cells))


def learning_chart(analysis: Analysis) -> go.Figure | None:
    """Draw the losses of all cells over each other, batch by batch, and the test accuracy after each epoch."""
    drawn = go.Figure()
    for number, (cell, result) in enumerate(trained(analysis)):
        losses, accuracies = result.series["loss"], result.series["test_accuracy"]
        steps = len(losses) // len(accuracies)
        shade, side = _colour(analysis, cell), escape(cell.side)
        # Curves that coincide hide each other: each later one is thinner, so that all can be seen.
        dash = "dot" if cell.engine == "sync" else "solid"
        line = {"color": shade, "width": max(1.5, 7 - 1.8 * number), "dash": dash}
        epochs = [(step + 1) / steps for step in range(len(losses))]
        drawn.add_trace(go.Scatter(x=epochs, y=losses, mode="lines", line=line, name=side, legendgroup=side))
        drawn.add_trace(
            go.Scatter(
                x=list(range(1, len(accuracies) + 1)),
                y=accuracies,
                mode="markers",
                marker={"color": shade, "size": max(5, 15 - 3 * number), "symbol": "diamond"},
                name=f"{side}, accuracy",
                legendgroup=side,
                showlegend=False,
                yaxis="y2",
            )
        )
    if not drawn.data:
        return None
    framed(drawn, "epoch", 14)
    bare = {"showgrid": False, "zeroline": False, "tickmode": "linear", "dtick": 0.25}
    drawn.update_layout(
        yaxis={"title": {"text": "loss per image (lines)"}, "rangemode": "tozero", "autorange": True},
        yaxis2={"title": {"text": "test accuracy (◆)"}, "overlaying": "y", "side": "right", "range": [0, 1], **bare},
    )
    return drawn


def trained(analysis: Analysis) -> list[tuple[Cell, Result]]:
    """Return each training cell with its first result; the other processes of a cell have the same losses."""
    first_results = [(cell.cell, cell.results.valid[0]) for cell in analysis.believed]
    return [(cell, result) for cell, result in first_results if "loss" in result.series]


def _marker(analysis: Analysis, cell: Cell) -> Mapping[str, object]:
    shade = _colour(analysis, cell)
    pattern = {"shape": "/" if cell.engine == "sync" else "", "fgopacity": 0.6, "fillmode": "replace"}
    return {"color": shade, "pattern": pattern, "line": {"color": shade, "width": 1}}


def _colour(analysis: Analysis, cell: Cell) -> str:
    return COLOURS[analysis.backends.index(cell.backend) % len(COLOURS)]


def _interval_bars(name: str, intervals: Mapping[str, Interval], unit: str, look: Mapping[str, object]) -> go.Bar:
    drawn = [_drawable(interval) for interval in intervals.values()]
    return go.Bar(
        name=name,
        y=list(intervals),
        x=[interval.estimate for interval in drawn],
        orientation="h",
        marker=look,
        error_x={**error_bars(drawn), "color": GREY},
        customdata=[[interval.low, interval.high] for interval in drawn],
        hovertemplate=f"%{{x:.4g}}{unit} (%{{customdata[0]:.4g}} … %{{customdata[1]:.4g}})<extra>{name}</extra>",
    )


def error_bars(intervals: Sequence[Interval]) -> dict[str, object]:
    """Return what plotly draws of intervals beside their estimates."""
    drawn = [_drawable(interval) for interval in intervals]
    return {
        "type": "data",
        "symmetric": False,
        "array": [interval.high - interval.estimate for interval in drawn],
        "arrayminus": [interval.estimate - interval.low for interval in drawn],
    }


def _drawable(interval: Interval) -> Interval:
    """Return an interval that can be drawn: an unbounded one, of a single process, becomes a point."""
    return interval if math.isfinite(interval.high) else Interval(*[interval.estimate] * 3)


def _bar_chart(bars: Sequence[go.Bar], title: str, rows: int) -> go.Figure | None:
    return framed(go.Figure(list(bars)), title, rows).update_layout(barmode="group") if bars else None


def framed(drawn: go.Figure, title: str, rows: float) -> go.Figure:
    """Give a chart its axes' look: no background of its own, the first row on top, room for the labels."""
    axis = {"automargin": True, "gridcolor": "#8884", "zerolinecolor": "#8888", "fixedrange": False}
    drawn.update_layout(
        height=round(FRAME + ROW * rows),
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "traceorder": "normal"},
        xaxis={**axis, "title": {"text": title}},
        yaxis={**axis, "autorange": "reversed"},
    )
    return drawn
