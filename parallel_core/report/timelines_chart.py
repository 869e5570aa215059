"""The report's chart of an experiment's timelines: a panel for each cell, a lane for each queue, one scale of time."""

from collections.abc import Sequence
from html import escape
from statistics import median
from typing import NamedTuple

import plotly.graph_objects as go
from humanize import metric
from plotly.subplots import make_subplots

from backends.profiling import Timeline
from parallel_core.comparison.cells import Cell, Comparison
from parallel_core.comparison.storage import TimelineOf
from parallel_core.comparison.summary import believed
from parallel_core.errors import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.formatting import percent
from parallel_core.plots.style import LOOKS, opacity
from parallel_core.report.charts import framed
from parallel_core.trace_analysis.case_spans import CaseSpans, cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import Block, CaseLanes, Look, drawn_ends, few_lanes, overlap_phrases
from parallel_core.trace_analysis.profiling_run import shown_case

__all__ = ["Panel", "panels", "timelines"]

MAX_BLOCKS = 1200
"""In all of an experiment's panels: each takes 100 to 200 bytes of the page."""
TITLE = 2.2
"""What a panel takes beside its lanes, in rows of a bar chart."""
MILLISECONDS = 1e3
DECIMALS = 4
BAR = 0.8
"""Of a lane's height."""
CHARACTER = 6
"""About what a character of a lane's name takes, in pixels."""
MIN_PARTS = 1000
"""A block is drawn at least one part in so many wide, where there is room: about a pixel."""


class Panel(NamedTuple):
    """A cell's timeline, as much of it as is drawn."""

    cell: Cell
    shown: CaseLanes
    seen: tuple[str, ...]
    timed: float | None
    """Seconds of the same by the clock and without a profiler: the median of the cell's processes."""


def panels(comparison: Comparison, experiment: str, timeline_of: TimelineOf) -> tuple[list[Panel], dict[str, str]]:
    """Return the panels of an experiment's cells, and for each cell without a timeline why it has none."""
    found: list[Panel] = []
    without: dict[str, str] = {}
    measured = believed(comparison, experiment)
    for one in measured:
        cell = one.cell
        try:
            timeline = timeline_of(cell)
        except RequestError as error:
            without[cell.side] = str(error)
            continue
        case = case_of(timeline, EXPERIMENTS[experiment].case)
        if case is None:
            without[cell.side] = "; ".join(timeline.notes) or "its trace is empty"
            continue
        timed = [same.again_seconds for same in one.cases(case.name)]
        lanes = few_lanes(case, MAX_BLOCKS // len(measured))
        found.append(Panel(cell, lanes, overlap_phrases(figures_of(case)), median(timed) if timed else None))
    return found, without


def case_of(timeline: Timeline, usual: str) -> CaseSpans | None:
    """Return the case of that name, or the last one in which something ran; None where nothing did."""
    filled = {case.name: case for case in cases_of(timeline) if case.spans}
    return filled[shown_case(list(filled), usual)] if filled else None


def timelines(found: Sequence[Panel]) -> go.Figure | None:
    """Draw some panels below each other; None for none. A drag along the axis zooms all of them."""
    if not found:
        return None
    heights = [len(panel.shown.lanes) for panel in found]
    rows = sum(heights) + TITLE * (len(found) - 1)
    drawn = make_subplots(
        rows=len(found),
        cols=1,
        shared_xaxes="all",
        row_heights=heights,
        vertical_spacing=TITLE / rows if len(found) > 1 else 0,
        subplot_titles=[title(panel) for panel in found],
    )
    longest = max(panel.shown.seconds for panel in found)
    named: set[Look] = set()
    for row, panel in enumerate(found, start=1):
        for look in LOOKS:
            bars = bars_of(panel, look, longest, in_legend=look not in named)
            if bars is not None:
                drawn.add_trace(bars, row, 1)
                named.add(look)
    framed(drawn, "", rows + TITLE)
    label = {"align": "left", "bgcolor": "#444444", "bordercolor": "#888888"}
    drawn.update_layout(barmode="overlay", dragmode="zoom", hoverlabel=label)
    drawn.update_xaxes(gridcolor="#8884", title="", range=[0, longest * MILLISECONDS], autorange=False)
    drawn.update_xaxes(title={"text": "ms since the first launch"}, row=len(found))
    for row, panel in enumerate(found, start=1):
        names = [escape(lane.name) for lane in panel.shown.lanes]
        drawn.update_yaxes(
            tickvals=list(range(len(names))),
            ticktext=names,
            range=[len(names) - 0.5, -0.5],
            autorange=False,
            # A drag that zoomed lanes too would hide most of them.
            fixedrange=True,
            automargin=True,
            showgrid=False,
            zeroline=False,
            row=row,
        )
    # Titles begin where the lanes' names do: on a narrow screen they need the width.
    widest = max(len(lane.name) for panel in found for lane in panel.shown.lanes)
    drawn.update_annotations(x=0, xanchor="left", xshift=-CHARACTER * widest, align="left", font={"size": 12})
    return drawn.update_layout(legend={"y": 1 + TITLE / rows})


def title(panel: Panel) -> str:
    """Say which framework and engine a panel shows, and what is seen there."""
    case = panel.shown.case
    usual = EXPERIMENTS[panel.cell.experiment].case
    named = "" if case == usual else f" of “{escape(case)}”"
    timed = "" if panel.timed is None else f" (timed: {metric(panel.timed, 's')})"
    told = (f"<b>{escape(panel.cell.side)}</b>: {metric(panel.shown.seconds, 's')}{named}{timed}", *panel.seen[:1])
    # A line of its own: a narrow screen has no room for more.
    return "<br>".join((", ".join(told), *panel.seen[1:]))


def bars_of(panel: Panel, look: Look, longest: float, *, in_legend: bool) -> go.Bar | None:
    """Make the bars of a look in all lanes of a panel; None where there are none."""
    name, colour, strength = LOOKS[look]
    places: list[int] = []
    blocks: list[Block] = []
    ends: list[float] = []
    for place, lane in enumerate(panel.shown.lanes):
        for block, end in zip(lane.blocks, drawn_ends(lane.blocks, longest / MIN_PARTS), strict=True):
            if block.look == look:
                places.append(place)
                blocks.append(block)
                ends.append(end)
    if not blocks:
        return None
    return go.Bar(
        y=places,
        base=[round(block.start * MILLISECONDS, DECIMALS) for block in blocks],
        x=[round((end - block.start) * MILLISECONDS, DECIMALS) for block, end in zip(blocks, ends, strict=True)],
        orientation="h",
        # Of bars that stand in some lanes only, the library would choose another.
        width=BAR,
        name=name,
        legendgroup=look,
        showlegend=in_legend,
        marker={
            # Here, and not in `opacity`, the legend shows it too.
            "color": f"{colour}{round(255 * strength):02x}",
            "opacity": [round(opacity(block), 2) for block in blocks],
            "line": {"width": 0},
        },
        hovertext=[told_of(block) for block in blocks],
        hovertemplate="%{hovertext}<br>from %{base} ms<extra></extra>",
    )


def told_of(block: Block) -> str:
    """Say what a block is, how long it took, and how long it had waited."""
    lines = [escape(block.label), metric(block.end - block.start, "s")]
    if block.spans > 1:
        lines[-1] += f", {percent(block.busy_share)} of it busy"
    if block.waited is not None:
        most = "at most " if block.spans > 1 else ""
        lines.append(f"waited {most}{metric(block.waited, 's')}")
    return "<br>".join(lines)
