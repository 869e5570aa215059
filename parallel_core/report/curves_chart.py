"""The report's chart of a sweep: a panel for each cell, a curve for each label."""

import math
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from parallel_core.comparison.cells import Comparison, Measured
from parallel_core.comparison.summary import believed
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import Interval, median_interval
from parallel_core.measurement.sweep import Curves, labelled, write_point
from parallel_core.plots.style import COLOURS
from parallel_core.report.charts import drawable, framed

__all__ = ["curves"]

PANEL = 11
"""The height of a panel, in rows of a bar chart."""
DOTTED = ("dot", "dash", "dashdot")
OF_DOTTED = "#888888"
MAX_TICKS = 12


def curves(comparison: Comparison, experiment: str) -> go.Figure | None:
    """Draw an experiment's curves in every cell, with intervals; None where it sweeps over nothing."""
    described = EXPERIMENTS[experiment].curves
    if described is None:
        return None
    cells = [measured for measured in believed(comparison, experiment) if described.over in measured.valid[0].series]
    if not cells:
        return None
    lines = line_styles(cells, described)
    drawn = make_subplots(
        rows=len(cells),
        cols=1,
        shared_xaxes="all",
        shared_yaxes="all",
        vertical_spacing=0.25 / len(cells),
        subplot_titles=[escape(measured.cell.side) for measured in cells],
    )
    named: set[str] = set()
    for row, measured in enumerate(cells, start=1):
        for label in labelled(measured.valid[0].series, described.quantity):
            drawn.add_trace(curve(measured, described, label, lines[label], in_legend=label not in named), row, 1)
            named.add(label)
    rows = PANEL * len(cells)
    framed(drawn, "", rows)
    drawn.update_xaxes(gridcolor="#8884", title="", **ticks(cells[0].valid[0].series[described.over], described))
    drawn.update_xaxes(title={"text": described.x_title}, row=len(cells))
    drawn.update_yaxes(gridcolor="#8884", title={"text": described.y_title})
    # Not by the intervals, which are wide where there are few processes.
    found = [value for trace in drawn.data for value in trace.y if math.isfinite(value)]
    if described.log_y:
        low, high = (math.log10(bound) for bound in (min(found), max(found)))
        drawn.update_yaxes(type="log", autorange=False, range=[low - 0.1, high + 0.1], dtick=1)
    else:
        margin = 0.05 * (max(found) - min(found, default=0) or 1)
        drawn.update_yaxes(autorange=False, range=[min(*found, 0) - margin, max(found) + margin])
    # Above the first panel's title.
    return drawn.update_layout(legend={"y": 1 + 1.5 / rows})


def line_styles(cells: list[Measured], described: Curves) -> dict[str, dict[str, object]]:
    """Give each label a colour, and each bound or prediction grey and a kind of dots."""
    labels = dict.fromkeys(label for one in cells for label in labelled(one.valid[0].series, described.quantity))
    solid = [label for label in labels if label not in described.dotted]
    return {
        label: {"color": COLOURS[solid.index(label) % len(COLOURS)], "width": 2, "dash": "solid"}
        if label in solid
        else {"color": OF_DOTTED, "width": 2, "dash": DOTTED[described.dotted.index(label) % len(DOTTED)]}
        for label in labels
    }


def ticks(values: tuple[float, ...], described: Curves) -> dict[str, object]:
    """Name the values that were measured on the axis: on a linear one they would stand too close."""
    if not described.log_x:
        return {"type": "linear"}
    step = 1 + (len(values) - 1) // MAX_TICKS
    shown = values[::step]
    named = [write_point(value, described.over) for value in shown]
    return {"type": "log", "tickvals": list(shown), "ticktext": named}


def over_processes(measured: Measured, described: Curves, label: str) -> tuple[Interval, ...]:
    """Return a curve's value at each point, in the median of a cell's processes."""
    processes = [
        found[label] for result in measured.valid if label in (found := labelled(result.series, described.quantity))
    ]
    return tuple(median_interval(at_point) for at_point in zip(*processes, strict=False))


def curve(measured: Measured, described: Curves, label: str, line: dict[str, object], *, in_legend: bool) -> go.Scatter:
    """Make a curve. The legend's curves stand for all of their name."""
    found = over_processes(measured, described, label)
    intervals = [drawable(one) for one in found]
    name = escape(label or described.y_title)
    return go.Scatter(
        x=list(measured.valid[0].series[described.over]),
        y=[one.estimate for one in found],
        mode="lines+markers",
        name=name,
        legendgroup=label,
        showlegend=in_legend,
        line=line,
        marker={"size": 6},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [one.high - one.estimate for one in intervals],
            "arrayminus": [one.estimate - one.low for one in intervals],
            "thickness": 1,
            "width": 2,
        },
        hovertemplate=f"%{{y:.3g}} at %{{x}}<extra>{escape(measured.cell.side)}: {name}</extra>",
    )
