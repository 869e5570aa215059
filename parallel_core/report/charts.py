"""The report's charts, drawn by plotly. Colour says the framework and hatching the synchronous engine.

plotly reads labels as a kind of HTML, so names are escaped.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from textwrap import wrap

import plotly.graph_objects as go

from parallel_core.comparison.cells import Cell, Comparison, Measured
from parallel_core.comparison.summary import believed
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, median_interval
from parallel_core.measurement.result import Result
from parallel_core.plots.style import COLOURS

__all__ = [
    "cost_model",
    "dispatch",
    "drawable",
    "figures",
    "framed",
    "largest_loss_difference",
    "learning",
    "times",
    "training_data",
]

ROW, FRAME = 22, 110
"""Pixels: of a bar, and of what surrounds the bars."""


def times(comparison: Comparison, experiment: str) -> go.Figure | None:
    """Draw every case's time in every cell, with intervals."""
    cells = believed(comparison, experiment)
    names = tuple(dict.fromkeys(name for measured in cells for name in measured.case_names))
    bars = []
    for measured in cells:
        found = {name: median_interval(measured.medians(name)) for name in names if measured.medians(name)}
        bars.append(bar(comparison, measured.cell, tuple(map(folded, found)), tuple(found.values()), " s"))
    return horizontal(bars, "seconds until all was done", len(names) * (len(cells) + 1))


def figures(comparison: Comparison, experiment: str) -> go.Figure | None:
    """Draw the figure that answers an experiment's question, in every cell, with intervals."""
    name = EXPERIMENTS[experiment].metric
    cells = [measured for measured in believed(comparison, experiment) if measured.metric(name)]
    bars = [
        bar(comparison, measured.cell, (escape(measured.cell.side),), (median_interval(measured.metric(name)),), "")
        for measured in cells
    ]
    drawn = horizontal(bars, name, len(cells))
    if drawn is not None:
        drawn.update_layout(showlegend=False, barmode="overlay")
    return drawn


def dispatch(comparison: Comparison) -> go.Figure | None:
    """Draw when control returned and when all was done, for a case of each experiment, on a logarithmic scale."""
    drawn = go.Figure()
    count = 0
    for measured in (one for experiment in comparison.experiments for one in believed(comparison, experiment)):
        cases = measured.cases(EXPERIMENTS[measured.cell.experiment].queued_case)
        if not cases:
            continue
        label = f"{escape(measured.cell.experiment)}<br>{escape(measured.cell.side)}"
        drawn.add_trace(
            go.Scatter(
                x=[median(case.dispatch_median for case in cases), median(case.median for case in cases)],
                y=[label, label],
                mode="lines+markers",
                line={"color": colour(comparison, measured.cell), "width": 3},
                marker={"size": 11, "symbol": ["circle-open", "circle"]},
                hovertemplate=["control returned after %{x:.3s}s", "done after %{x:.3s}s"],
                name=label,
            )
        )
        count += 1
    if not count:
        return None
    framed(drawn, "seconds: ○ control returned ● done", 1.8 * count)
    drawn.update_xaxes(type="log", dtick=1)
    return drawn.update_layout(showlegend=False)


def cost_model(comparison: Comparison) -> go.Figure | None:
    """Draw the time of waiting once, and each time, as measured and as the cost model predicts it."""
    rows = {
        "measured": ("measured_once_seconds", "measured_each_seconds"),
        "predicted, the slower side repeated": ("predicted_once_seconds", "predicted_each_seconds"),
        "predicted by the book's formula": ("book_predicted_once_seconds",),
    }
    cells = [
        measured
        for measured in believed(comparison, "async")
        if all(measured.metric(name) for names in rows.values() for name in names)
    ]
    bars = []
    for (label, metrics), shade in zip(rows.items(), COLOURS, strict=False):
        found = {
            f"{escape(measured.cell.side)},<br>{waiting}": median_interval(measured.metric(name))
            for measured in cells
            for name, waiting in zip(metrics, ("waiting once", "waiting each time"), strict=False)
        }
        bars.append(interval_bar(label, tuple(found), tuple(found.values()), " s", {"color": shade}))
    return horizontal(bars if cells else [], "seconds for all increments", 6 * len(cells))


def learning(comparison: Comparison) -> go.Figure | None:
    """Draw the losses of all cells over each other, batch by batch, and the test accuracy after each epoch."""
    drawn = go.Figure()
    for number, (measured, result) in enumerate(trained(comparison)):
        losses, accuracies = result.series["loss"], result.series["test_accuracy"]
        steps = len(losses) // len(accuracies)
        shade, side = colour(comparison, measured.cell), escape(measured.cell.side)
        # Curves that coincide hide each other: each later one is thinner, so that all can be seen.
        line = {"color": shade, "width": max(1.5, 7 - 1.8 * number), "dash": dash(measured.cell)}
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


def largest_loss_difference(comparison: Comparison, batches: int | None = None) -> float | None:
    """Return by how much the cells' losses differ at most, over the first batches or all, as a share of the loss.

    None for fewer than two cells.
    """
    losses = [result.series["loss"] for _, result in trained(comparison)]
    if len(losses) < 2:
        return None
    return max(max(step) / min(step) - 1 for step in list(zip(*losses, strict=False))[:batches])


def training_data(comparison: Comparison) -> str:
    """Say what was trained on; empty where nothing was."""
    return "; ".join(sorted({result.data for _, result in trained(comparison) if result.data}))


def trained(comparison: Comparison) -> list[tuple[Measured, Result]]:
    """Return each training cell with its first result; other processes of a cell have the same losses."""
    return [
        (measured, measured.valid[0])
        for experiment in comparison.experiments
        for measured in believed(comparison, experiment)
        if "loss" in measured.valid[0].series
    ]


def bar(comparison: Comparison, cell: Cell, labels: Sequence[str], intervals: Sequence[Interval], unit: str) -> go.Bar:
    """Make a cell's bars, in its colour."""
    pattern = {"shape": "/" if cell.engine == "sync" else "", "fgopacity": 0.6, "fillmode": "replace"}
    shade = colour(comparison, cell)
    marker = {"color": shade, "pattern": pattern, "line": {"color": shade, "width": 1}}
    return interval_bar(escape(cell.side), labels, intervals, unit, marker)


def interval_bar(
    name: str, labels: Sequence[str], intervals: Sequence[Interval], unit: str, marker: Mapping[str, object]
) -> go.Bar:
    """Make bars with their intervals."""
    return go.Bar(
        name=name,
        y=list(labels),
        x=[found.estimate for found in intervals],
        orientation="h",
        marker=marker,
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [drawable(found).high - found.estimate for found in intervals],
            "arrayminus": [found.estimate - drawable(found).low for found in intervals],
            "color": "#888888",
        },
        customdata=[[drawable(found).low, drawable(found).high] for found in intervals],
        hovertemplate=f"%{{x:.4g}}{unit} (%{{customdata[0]:.4g}} … %{{customdata[1]:.4g}})<extra>{name}</extra>",
    )


def drawable(interval: Interval) -> Interval:
    """Return an interval that can be drawn: one without ends, of a single process, has no length."""
    return interval if math.isfinite(interval.high) else Interval(*[interval.estimate] * 3)


def horizontal(bars: Sequence[go.Bar], title: str, rows: int) -> go.Figure | None:
    """Make a chart of horizontal bars; None where there are none."""
    if not bars:
        return None
    return framed(go.Figure(list(bars)), title, rows).update_layout(barmode="group")


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


def folded(label: str) -> str:
    """Break a long label into lines, for narrow screens."""
    return "<br>".join(map(escape, wrap(label, 18)))


def colour(comparison: Comparison, cell: Cell) -> str:
    """Return a framework's colour, the same in all charts."""
    backends = list(dict.fromkeys(measured.cell.backend for measured in comparison.cells))
    return COLOURS[backends.index(cell.backend) % len(COLOURS)]


def dash(cell: Cell) -> str:
    """Return the line style of an engine."""
    return "dot" if cell.engine == "sync" else "solid"
