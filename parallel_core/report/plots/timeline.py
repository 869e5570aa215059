"""Timelines as a picture: a panel for each case, a lane for each queue, and one scale of time.

Blocks and the names of lanes show a longer text when they are pointed at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree.ElementTree import Element

from backends.profiling import Timeline
from backends.profiling.kernel_names import shortened
from parallel_core.experiments import EXPERIMENTS
from parallel_core.report.plots.scales import Axis, Scale, from_zero, write_seconds
from parallel_core.report.plots.svg import (
    LETTER,
    MAX_NAME_LETTERS,
    SMALL,
    Picture,
    text_width,
    titled,
)
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import percent, seconds
from parallel_core.traces import lanes
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.lanes import Block, CaseLanes, Lane, Look

LOOKS: Mapping[Look, str] = {
    "compute": "computation",
    "copy": "copy",
    "exchange": "exchange",
    "host": "Python",
    "wait": "waiting",
}
"""The meanings of blocks' looks, which are style-sheet classes."""
MAX_PANELS = 8
MAX_BLOCKS = 12_000
"""The most blocks of all panels: each takes some 200 bytes."""
LANES_WIDTH, LANE, BLOCK, GAP = 700.0, 24.0, 18.0, 10.0
MIN_LETTERS = 6
"""The fewest letters of a block's label that are drawn."""
MIN_BLOCK = 0.7
"""The shortest block in pixels, if there is room for it."""
EDGED_BLOCK = 5.0
"""The length in pixels from which on a block of a single span is drawn a little shorter, so that
neighbours can be distinguished.
"""
PALE, MIN_OPACITY = 0.6, 0.2
"""The share of its time below which a busy block looks pale, and the palest look."""
MIN_AT_ONCE = 1.05
"""The fewest queues at once, on average, that mean that operations overlapped."""


class Panel(NamedTuple):
    """The lanes of a case, under a name and remarks."""

    name: str
    remarks: str
    shown: CaseLanes
    """The lanes."""


@dataclass(frozen=True)
class TimelinesChart:
    """The chart of timelines: panels below each other."""

    panels: Sequence[Panel]
    after: str = ""
    """The text below the panels."""
    lanes_width: float = LANES_WIDTH

    @property
    def width(self) -> float:
        """The width of the lanes and of their names."""
        return self.lanes_width + self._left

    @property
    def _lanes(self) -> list[Lane]:
        """The lanes of all panels."""
        all_lanes: list[Lane] = []
        for panel in self.panels:
            all_lanes += panel.shown.lanes
        return all_lanes

    @property
    def _left(self) -> float:
        """The left edge of the lanes, beside the longest name."""
        names_width = text_width(lane.name for lane in self._lanes)
        return min(names_width, text_width(["m" * MAX_NAME_LETTERS])) + GAP

    def draw(self, picture: Picture) -> None:
        """Draw the looks that occur, the panels and the axis."""
        self._draw_legend(picture)
        scale = from_zero(panel.shown.seconds for panel in self.panels)
        axis = Axis("since the first launch", scale, write_seconds)
        left = self._left
        for panel in self.panels:
            title = ": ".join(filter(None, (panel.name, panel.remarks)))
            picture.paragraph(title, "bold")
            grid = picture.add("g")
            top = picture.bottom
            _draw_lanes(picture, panel.shown, scale, left, self.lanes_width)
            picture.grid(axis, left, self.lanes_width, top, grid)
        picture.x_axis(axis, left, self.lanes_width)
        if self.after:
            picture.paragraph(self.after, "faint", left)

    def _draw_legend(self, picture: Picture) -> None:
        """Draw a sample of each look that occurs, and of pale blocks."""
        blocks: list[Block] = []
        for lane in self._lanes:
            blocks += lane.blocks
        looks = {block.look for block in blocks}
        samples = {}
        for look, words in LOOKS.items():
            if look in looks:
                samples[words] = picture.swatch(f"full {look}")
        palest = min(blocks, key=lambda block: block.busy_share)
        if palest.busy_share < PALE:
            sample = picture.swatch(f"full {palest.look}", _opacity(palest))
            samples["pale: many short ones, with gaps"] = sample
        picture.legend(samples)


def _draw_lanes(
    picture: Picture, shown: CaseLanes, scale: Scale, left: float, width: float
) -> None:
    """Draw a case's lanes, its launches as arrows, and its blocks."""

    def x(time: float) -> float:
        return left + width * scale.place(time)

    middles = {}
    for number, lane in enumerate(shown.lanes):
        middle = picture.bottom + LANE * (number + 0.5)
        middles[lane.name] = middle
        picture.name(middle, lane.name)
        picture.add("rect", x=left, y=middle - BLOCK / 2, width=width, height=BLOCK, style="shade")
    # Arrows are drawn before the blocks, so that they cross no labels.
    for launch in shown.launches:
        start = (x(launch.launched), middles[shown.lanes[0].name] + BLOCK / 2)
        end = (x(launch.start), middles[launch.lane] - BLOCK / 2)
        picture.arrow(start, end, "launch")
    shortest = scale.high * MIN_BLOCK / width
    for lane in shown.lanes:
        middle = middles[lane.name]
        label = f"{lane.name}: {_busy(lane.blocks, scale.high)}"
        group = picture.add("g", role="img", aria_label=label)
        ends = lanes.drawn_ends(lane.blocks, shortest)
        for block, block_end in zip(lane.blocks, ends, strict=True):
            _draw_block(picture, group, block, x(block.start), x(block_end), middle)
        for block in lane.blocks:
            _label(picture, block, x(block.start), x(block.end), middle)
    picture.bottom += LANE * len(shown.lanes)


def _draw_block(
    picture: Picture, group: Element, block: Block, start: float, end: float, middle: float
) -> None:
    """Draw a block from one position to another; it is pale if it was not busy all the time."""
    length = end - start
    if block.spans == 1 and length > EDGED_BLOCK:
        length -= 0.7
    look: dict[str, str | float] = {"style": f"full {block.look}"}
    if block.busy_share < 1:
        look["opacity"] = _opacity(block)
    top = middle - BLOCK / 2
    text = lanes.block_text(block)
    picture.add("rect", "", text, group, x=start, y=top, width=length, height=BLOCK, **look)


def _label(picture: Picture, block: Block, start: float, end: float, middle: float) -> None:
    """Write a block's name on it, if enough letters fit."""
    name, _, _ = block.label.partition(" (")
    letters = int((end - start) / (SMALL * LETTER)) - 1
    # A block of several spans has several names, and all of them must fit.
    needed = len(name)
    if block.spans == 1:
        needed = min(needed, MIN_LETTERS)
    if letters < needed:
        return
    look = {"text_anchor": "middle", "font_size": f"{SMALL:g}"}
    if block.busy_share > PALE and block.look != "wait":
        look["style"] = f"over over-{block.look}"
    picture.text((start + end) / 2, middle, shortened(name, letters), **look)


def _opacity(block: Block) -> float:
    """Return the opacity of a block, which grows with the share of its time that it was busy."""
    return round(MIN_OPACITY + (1 - MIN_OPACITY) * block.busy_share, 2)


def _busy(blocks: Iterable[Block], longest: float) -> str:
    """Write the share of the chart's time that each look takes in a lane."""
    busy: dict[Look, float] = {}
    for block in blocks:
        busy[block.look] = busy.get(block.look, 0.0) + block.busy
    shares = [
        f"{LOOKS[look]} {percent(duration / longest)} of the width"
        for look, duration in busy.items()
    ]
    return ", ".join(shares)


def timeline_picture(timeline: Timeline) -> bytes:
    """Return the picture of a timeline's first cases, at most `MAX_PANELS`, below each other.

    Raises RequestError if the timeline has no spans.
    """
    cases = [case for case in cases_of(timeline) if case.spans]
    if not cases:
        raise RequestError(f"the timeline of {timeline.source} has no spans to draw")
    shown = cases[:MAX_PANELS]
    figures = [CaseFigures(case) for case in shown]
    panels = []
    for case, case_figures in zip(shown, figures, strict=True):
        remarks = ", ".join((seconds(case.seconds), *lanes.overlap_phrases(case_figures)))
        case_lanes = lanes.few_lanes(case, MAX_BLOCKS // len(shown))
        panels.append(Panel(case.name, remarks, case_lanes))
    after = ""
    hidden = len(cases) - len(shown)
    if hidden:
        cases_are = "case is" if hidden == 1 else "cases are"
        after = f"{hidden} more {cases_are} not shown."
    key_case = _key_case(figures, timeline.experiment)
    message = _message_of(key_case, timeline.experiment) if key_case else ""
    return titled(TimelinesChart(panels, after), message, timeline.source)


def _key_case(figures: Sequence[CaseFigures], experiment: str) -> CaseFigures | None:
    """Return the figures of an experiment's main case, or else of the first case in which most
    queues worked at once.
    """
    main_case = EXPERIMENTS[experiment].drawn_case if experiment in EXPERIMENTS else ""

    def rank(case: CaseFigures) -> tuple[bool, float]:
        is_main = case.case == main_case
        return is_main, case.queues_at_once or 0.0

    return max(figures, key=rank, default=None)


def _message_of(case: CaseFigures, experiment: str) -> str:
    """Say how long a case took, and how long its operations take in turn, if they overlapped."""
    message = ": ".join(filter(None, (experiment, case.case, seconds(case.seconds))))
    queues_at_once = case.queues_at_once or 0.0
    if queues_at_once < MIN_AT_ONCE:
        return message
    saved_seconds = (queues_at_once - 1) * (case.seconds - case.parts.idle_seconds)
    in_turn = case.seconds + saved_seconds
    return f"{message}; one after the other its operations take {seconds(in_turn)}"
