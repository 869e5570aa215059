"""The report's chart of an experiment's timelines: a panel for each cell, a lane for each queue, one scale of time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from parallel_core.comparison.analysis import ExperimentAnalysis
from parallel_core.comparison.cells import Cell
from parallel_core.comparison.screen import title_of
from parallel_core.comparison.storage import TimelineOf
from parallel_core.errors import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.plots.style import LOOKS, opacity
from parallel_core.report.scales import Scale, Tick, axis
from parallel_core.system.formatting import figure, percent, seconds
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import (
    Block,
    CaseLanes,
    Lane,
    Look,
    block_text,
    drawn_ends,
    few_lanes,
    overlap_phrases,
)
from parallel_core.trace_analysis.profiling_run import shown_case

__all__ = ["DrawnBlock", "DrawnLane", "DrawnPanel", "Panel", "TimelinesChart", "panels", "timelines_chart"]

MAX_BLOCKS = 1200
"""In all panels of an experiment: each block takes about 150 bytes of the page."""
MAX_BLOCKS_OF_PAGE = 6000
MILLISECONDS = 1e3
MIN_BLOCK_SHARE = 1 / 1000
"""Of the panel's width, if there is room: about a pixel."""


class Panel(NamedTuple):
    """A cell's timeline, as far as it is drawn."""

    cell: Cell
    name: str
    shown: CaseLanes
    remarks: tuple[str, ...]
    timed: float | None
    """Seconds of the same case by the clock, without a profiler: the median of the cell's processes."""


class DrawnBlock(NamedTuple):
    """A block: its place and length in percent of the panel's width, its look, and what it says when pointed at."""

    place: str
    length: str
    look: Look
    opacity: str
    """Empty for a block that was always busy."""
    text: str


class DrawnLane(NamedTuple):
    """A lane: its name, what a reader who cannot see it is told, and its blocks."""

    name: str
    description: str
    blocks: tuple[DrawnBlock, ...]


class DrawnPanel(NamedTuple):
    """A cell's lanes under its name and what is seen in them."""

    name: str
    remarks: str
    lanes: tuple[DrawnLane, ...]


@dataclass(frozen=True)
class TimelinesChart:
    """Panels below each other on one scale of time, in milliseconds, and the looks that the legend explains."""

    panels: tuple[DrawnPanel, ...]
    looks: tuple[Look, ...]
    milliseconds: float
    ticks: tuple[Tick, ...]


def panels(
    experiment: ExperimentAnalysis, timeline_of: TimelineOf, experiments: int = 1
) -> tuple[list[Panel], dict[str, str]]:
    """Return the panels of an experiment's cells, and for each cell without a timeline the reason.

    `experiments` is the number of those that share the page.
    """
    drawn: list[Panel] = []
    without: dict[str, str] = {}
    max_blocks = min(MAX_BLOCKS, MAX_BLOCKS_OF_PAGE // experiments)
    for analysed in experiment.believed:
        cell = analysed.cell
        try:
            timeline = timeline_of(cell)
        except RequestError as error:
            without[cell.side] = str(error)
            continue
        filled = {case.name: case for case in cases_of(timeline) if case.nanoseconds}
        if not filled:
            without[cell.side] = "; ".join(timeline.notes) or "nothing in its trace took any time"
            continue
        case = filled[shown_case(list(filled), experiment.experiment.case)]
        timed = [same.again_seconds for same in analysed.results.cases(case.name)]
        lanes = few_lanes(case, max_blocks // len(experiment.believed))
        name = title_of(analysed.results.valid[0].backend)
        drawn.append(Panel(cell, name, lanes, overlap_phrases(figures_of(case)), median(timed) if timed else None))
    return drawn, without


def timelines_chart(shown: Sequence[Panel]) -> TimelinesChart | None:
    """Draw panels below each other; None without panels."""
    if not shown:
        return None
    longest = max(panel.shown.seconds for panel in shown)
    used = {block.look for panel in shown for lane in panel.shown.lanes for block in lane.blocks}
    scale = Scale(0, longest * MILLISECONDS)
    return TimelinesChart(
        tuple(
            DrawnPanel(panel.name, _remarks(panel), tuple(_drawn(lane, longest) for lane in panel.shown.lanes))
            for panel in shown
        ),
        tuple(look for look in LOOKS if look in used),
        scale.high,
        axis(scale, lambda value: f"{figure(value)} ms"),
    )


def _remarks(panel: Panel) -> str:
    case = panel.shown.case
    named = "" if case == EXPERIMENTS[panel.cell.experiment].case else f" of “{case}”"
    timed = "" if panel.timed is None else f" (timed: {seconds(panel.timed)})"
    return ", ".join((f"{seconds(panel.shown.seconds)}{named}{timed}", *panel.remarks))


def _drawn(lane: Lane, longest: float) -> DrawnLane:
    ends = drawn_ends(lane.blocks, longest * MIN_BLOCK_SHARE)
    blocks = tuple(_drawn_block(block, end, longest) for block, end in zip(lane.blocks, ends, strict=True))
    return DrawnLane(lane.name, f"{lane.name}: {_busy(lane.blocks, longest)}", blocks)


def _busy(blocks: Iterable[Block], longest: float) -> str:
    """Say for which share of the whole chart's time a lane showed each look."""
    seconds: dict[Look, float] = {}
    for block in blocks:
        seconds[block.look] = seconds.get(block.look, 0.0) + block.busy
    return ", ".join(f"{LOOKS[look].name} {percent(busy / longest)} of the width" for look, busy in seconds.items())


def _drawn_block(block: Block, end: float, longest: float) -> DrawnBlock:
    pale = round(opacity(block), 2)
    place, length = _share(block.start / longest), _share((end - block.start) / longest)
    return DrawnBlock(place, length, block.look, f"{pale:g}" if pale < 1 else "", block_text(block))


def _share(part: float) -> str:
    """Write a share in percent, as briefly as a zoom of a thousand times allows."""
    return f"{100 * part:.4f}".rstrip("0").rstrip(".")
