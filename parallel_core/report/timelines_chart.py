"""The report's chart of an experiment's timelines: a panel for each cell, a lane for each queue, one scale of time."""

from collections.abc import Sequence
from html import escape
from statistics import median
from typing import NamedTuple

import plotly.graph_objects as go
from humanize import metric
from plotly.subplots import make_subplots

from parallel_core.comparison.analysis import ExperimentAnalysis
from parallel_core.comparison.cells import Cell
from parallel_core.comparison.storage import TimelineOf
from parallel_core.errors import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.plots.style import LOOKS, opacity
from parallel_core.report.charts import framed
from parallel_core.system.formatting import percent
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import Block, CaseLanes, Look, drawn_ends, few_lanes, overlap_phrases
from parallel_core.trace_analysis.profiling_run import shown_case

__all__ = ["Panel", "panels", "timelines_chart"]

MAX_BLOCKS = 1200
"""In all panels of an experiment: each block takes 100 to 200 bytes of the page."""
TITLE = 2.2
"""The height of a panel's title and margin, in rows of a bar chart."""
MILLISECONDS = 1e3
DECIMALS = 4
BAR = 0.8
"""Of a lane's height."""
CHARACTER_WIDTH = 6
"""About the width of a character of a lane's name, in pixels."""
MIN_BLOCK_SHARE = 1 / 1000
"""Of the panel's width, if there is room: about a pixel."""


class Panel(NamedTuple):
    """A cell's timeline, as far as it is drawn."""

    cell: Cell
    shown: CaseLanes
    remarks: tuple[str, ...]
    timed: float | None
    """Seconds of the same case by the clock, without a profiler: the median of the cell's processes."""


def panels(experiment: ExperimentAnalysis, timeline_of: TimelineOf) -> tuple[list[Panel], dict[str, str]]:
    """Return the panels of an experiment's cells, and for each cell without a timeline the reason."""
    drawn: list[Panel] = []
    without: dict[str, str] = {}
    for analysed in experiment.believed:
        cell = analysed.cell
        try:
            timeline = timeline_of(cell)
        except RequestError as error:
            without[cell.side] = str(error)
            continue
        filled = {case.name: case for case in cases_of(timeline) if case.spans}
        if not filled:
            without[cell.side] = "; ".join(timeline.notes) or "its trace is empty"
            continue
        case = filled[shown_case(list(filled), experiment.experiment.case)]
        timed = [same.again_seconds for same in analysed.results.cases(case.name)]
        lanes = few_lanes(case, MAX_BLOCKS // len(experiment.believed))
        drawn.append(Panel(cell, lanes, overlap_phrases(figures_of(case)), median(timed) if timed else None))
    return drawn, without


def timelines_chart(shown: Sequence[Panel]) -> go.Figure | None:
    """Draw panels below each other; None without panels. A drag along the axis zooms all of them."""
    if not shown:
        return None
    heights = [len(panel.shown.lanes) for panel in shown]
    rows = sum(heights) + TITLE * (len(shown) - 1)
    drawn = make_subplots(
        rows=len(shown),
        cols=1,
        shared_xaxes="all",
        row_heights=heights,
        vertical_spacing=TITLE / rows if len(shown) > 1 else 0,
        subplot_titles=[_title(panel) for panel in shown],
    )
    longest = max(panel.shown.seconds for panel in shown)
    framed(drawn, "", rows + TITLE)
    label = {"align": "left", "bgcolor": "#444444", "bordercolor": "#888888"}
    drawn.update_layout(barmode="overlay", dragmode="zoom", hoverlabel=label)
    in_legend: set[Look] = set()
    for row, panel in enumerate(shown, start=1):
        for look in LOOKS:
            bars = _bars_of(panel, look, longest, in_legend=look not in in_legend)
            if bars is not None:
                drawn.add_trace(bars, row, 1)
                in_legend.add(look)
        names = [escape(lane.name) for lane in panel.shown.lanes]
        drawn.update_yaxes(
            tickvals=list(range(len(names))),
            ticktext=names,
            range=[len(names) - 0.5, -0.5],
            autorange=False,
            # A drag that also zoomed the lanes would hide most of them.
            fixedrange=True,
            automargin=True,
            showgrid=False,
            zeroline=False,
            row=row,
        )
    drawn.update_xaxes(gridcolor="#8884", title="", range=[0, longest * MILLISECONDS], autorange=False)
    drawn.update_xaxes(title={"text": "ms since the first launch"}, row=len(shown))
    # Titles begin at the left edge of the lanes' names: on a narrow screen they need the width.
    widest = max(len(lane.name) for panel in shown for lane in panel.shown.lanes)
    drawn.update_annotations(x=0, xanchor="left", xshift=-CHARACTER_WIDTH * widest, align="left", font={"size": 12})
    return drawn.update_layout(legend={"y": 1 + TITLE / rows})


def _title(panel: Panel) -> str:
    case = panel.shown.case
    usual = EXPERIMENTS[panel.cell.experiment].case
    named = "" if case == usual else f" of “{escape(case)}”"
    timed = "" if panel.timed is None else f" (timed: {metric(panel.timed, 's')})"
    first = (f"<b>{escape(panel.cell.side)}</b>: {metric(panel.shown.seconds, 's')}{named}{timed}", *panel.remarks[:1])
    # On a narrow screen the other remarks need lines of their own.
    return "<br>".join((", ".join(first), *panel.remarks[1:]))


def _bars_of(panel: Panel, look: Look, longest: float, *, in_legend: bool) -> go.Bar | None:
    name, colour, full = LOOKS[look]
    drawn = [
        (place, block, end)
        for place, lane in enumerate(panel.shown.lanes)
        for block, end in zip(lane.blocks, drawn_ends(lane.blocks, longest * MIN_BLOCK_SHARE), strict=True)
        if block.look == look
    ]
    if not drawn:
        return None
    return go.Bar(
        y=[place for place, _, _ in drawn],
        base=[round(block.start * MILLISECONDS, DECIMALS) for _, block, _ in drawn],
        x=[round((end - block.start) * MILLISECONDS, DECIMALS) for _, block, end in drawn],
        orientation="h",
        # plotly chooses another width if only some lanes have bars.
        width=BAR,
        name=name,
        legendgroup=look,
        showlegend=in_legend,
        marker={
            # In the colour and not in `opacity`, so that the legend shows it too.
            "color": f"{colour}{round(255 * full):02x}",
            "opacity": [round(opacity(block), 2) for _, block, _ in drawn],
            "line": {"width": 0},
        },
        hovertext=[_hover_text(block) for _, block, _ in drawn],
        hovertemplate="%{hovertext}<br>from %{base} ms<extra></extra>",
    )


def _hover_text(block: Block) -> str:
    lines = [escape(block.label), metric(block.end - block.start, "s")]
    if block.spans > 1:
        lines[-1] += f", {percent(block.busy_share)} of it busy"
    if block.waited is not None:
        limit = "at most " if block.spans > 1 else ""
        lines.append(f"waited {limit}{metric(block.waited, 's')}")
    return "<br>".join(lines)
