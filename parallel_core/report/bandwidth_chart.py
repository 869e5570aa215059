"""The report's chart of bandwidths over sizes: a panel for each cell, a curve for each algorithm."""

import math
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from parallel_core.bandwidth import by_algorithm
from parallel_core.byte_sizes import write_size
from parallel_core.comparison.cells import Comparison, Measured
from parallel_core.comparison.interval import Interval, median_interval
from parallel_core.comparison.summary import believed
from parallel_core.report.charts import COLOURS, drawable, framed

__all__ = ["bandwidths"]

FIGURE, BOUND = "algbw_gb_per_s", "share_of_copy_bound"
PANEL = 11
"""The height of a panel, in rows of a bar chart."""
OF_BOUND = "#888888"


def bandwidths(comparison: Comparison, experiment: str) -> go.Figure | None:
    """Draw the algorithms' bandwidths over the vectors' size, with intervals; None where no sizes were measured.

    What has no share of the copy bound is that bound, and dotted.
    """
    cells = [measured for measured in believed(comparison, experiment) if "bytes" in measured.valid[0].series]
    if not cells:
        return None
    algorithms = dict.fromkeys(name for measured in cells for name in by_algorithm(measured.valid[0].series, BOUND))
    shades = dict(zip(algorithms, COLOURS, strict=False))
    drawn = make_subplots(
        rows=len(cells),
        cols=1,
        shared_xaxes="all",
        shared_yaxes="all",
        vertical_spacing=0.25 / len(cells),
        subplot_titles=[escape(measured.cell.side) for measured in cells],
    )
    for row, measured in enumerate(cells, start=1):
        for name in by_algorithm(measured.valid[0].series, FIGURE):
            drawn.add_trace(curve(measured, name, shades.get(name), in_legend=row == 1), row, 1)
    rows = PANEL * len(cells)
    framed(drawn, "", rows)
    sizes = cells[0].valid[0].series["bytes"]
    drawn.update_xaxes(
        type="log", tickvals=sizes, ticktext=[write_size(int(size)) for size in sizes], gridcolor="#8884", title=""
    )
    # Not by the intervals, which are wide where there are few processes.
    found = [value for trace in drawn.data for value in trace.y]
    drawn.update_yaxes(
        type="log",
        autorange=False,
        range=[math.log10(min(found)) - 0.1, math.log10(max(found)) + 0.1],
        gridcolor="#8884",
        dtick=1,
        title={"text": "GB/s"},
    )
    # Above the first panel's title.
    return drawn.update_layout(legend={"y": 1 + 1.5 / rows})


def speeds(measured: Measured, name: str) -> tuple[Interval, ...]:
    """Return an algorithm's bandwidth at each size, in the median of a cell's processes."""
    processes = [found[name] for result in measured.valid if name in (found := by_algorithm(result.series, FIGURE))]
    return tuple(median_interval(at_size) for at_size in zip(*processes, strict=False))


def curve(measured: Measured, name: str, shade: str | None, *, in_legend: bool) -> go.Scatter:
    """Make a curve; one without a shade is the bound. The legend's curves stand for all of their name."""
    found = speeds(measured, name)
    intervals = [drawable(one) for one in found]
    return go.Scatter(
        x=list(measured.valid[0].series["bytes"]),
        y=[one.estimate for one in found],
        mode="lines+markers",
        name=escape(name),
        legendgroup=name,
        showlegend=in_legend,
        line={"color": shade or OF_BOUND, "width": 2, "dash": "solid" if shade else "dot"},
        marker={"size": 6},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [one.high - one.estimate for one in intervals],
            "arrayminus": [one.estimate - one.low for one in intervals],
            "thickness": 1,
            "width": 2,
        },
        hovertemplate=f"%{{y:.3g}} GB/s at %{{x}} bytes<extra>{escape(measured.cell.side)}: {escape(name)}</extra>",
    )
