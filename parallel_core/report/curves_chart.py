"""The report's chart of a sweep: a panel for each cell, a curve for each label."""

import math
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from parallel_core.comparison.analysis import CellAnalysis, ExperimentAnalysis
from parallel_core.measurement.sweep import Curves
from parallel_core.plots.style import CurveStyle, curve_styles, curve_ticks
from parallel_core.report.charts import error_bars, framed

__all__ = ["curves_chart"]

PANEL = 11
"""The height of a panel, in rows of a bar chart."""


def curves_chart(experiment: ExperimentAnalysis) -> go.Figure | None:
    """Draw an experiment's curves in every cell, with intervals; None if it sweeps over nothing."""
    curves = experiment.experiment.curves
    cells = [cell for cell in experiment.believed if cell.curves]
    if curves is None or not cells:
        return None
    styles = curve_styles((label for cell in cells for label in cell.curves), curves)
    drawn = make_subplots(
        rows=len(cells),
        cols=1,
        shared_xaxes="all",
        shared_yaxes="all",
        vertical_spacing=0.25 / len(cells),
        subplot_titles=[escape(cell.cell.side) for cell in cells],
    )
    in_legend: set[str] = set()
    for row, cell in enumerate(cells, start=1):
        for label in cell.curves:
            line = _curve(cell, curves, label, styles[label])
            drawn.add_trace(line.update(showlegend=label not in in_legend), row, 1)
            in_legend.add(label)
    rows = PANEL * len(cells)
    framed(drawn, "", rows)
    drawn.update_xaxes(gridcolor="#8884", title="", type="linear")
    if curves.log_x:
        # On a linear axis the labels would stand too close.
        ticks = curve_ticks(cells[0].results.valid[0].series[curves.over], curves)
        drawn.update_xaxes(type="log", tickvals=list(ticks), ticktext=list(ticks.values()))
    drawn.update_xaxes(title={"text": curves.x_title}, row=len(cells))
    drawn.update_yaxes(gridcolor="#8884", title={"text": curves.y_title})
    # The range holds the estimates and not the intervals, which are wide if there are few processes.
    values = [value for trace in drawn.data for value in trace.y if math.isfinite(value)]
    if curves.log_y:
        low, high = math.log10(min(values)), math.log10(max(values))
        drawn.update_yaxes(type="log", autorange=False, range=[low - 0.1, high + 0.1], dtick=1)
    else:
        margin = 0.05 * (max(values) - min(values) or 1)
        drawn.update_yaxes(autorange=False, range=[min(*values, 0) - margin, max(values) + margin])
    # Above the first panel's title.
    return drawn.update_layout(legend={"y": 1 + 1.5 / rows})


def _curve(cell: CellAnalysis, curves: Curves, label: str, style: CurveStyle) -> go.Scatter:
    """Return a cell's curve; the legend switches the curves of one label in all panels."""
    intervals = cell.curves[label]
    name = escape(label or curves.y_title)
    return go.Scatter(
        x=list(cell.results.valid[0].series[curves.over]),
        y=[interval.estimate for interval in intervals],
        mode="lines+markers",
        name=name,
        legendgroup=label,
        line={"color": style.colour, "width": 2, "dash": style.dash},
        marker={"size": 6},
        error_y={**error_bars(intervals), "thickness": 1, "width": 2},
        hovertemplate=f"%{{y:.3g}} at %{{x}}<extra>{escape(cell.cell.side)}: {name}</extra>",
    )
