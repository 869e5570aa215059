"""Timelines: a panel for each of several, a lane for each queue, one scale of time for all.

Every block and every lane's name says more when it is pointed at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree.ElementTree import Element

from backends.profiling import Timeline
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
from parallel_core.trace_analysis import lanes
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import CaseFigures, figures_of
from parallel_core.trace_analysis.lanes import Block, CaseLanes, Look

LOOKS: Mapping[Look, str] = {
    "compute": "computation",
    "copy": "copy",
    "exchange": "exchange",
    "host": "Python",
    "wait": "waiting",
}
"""The looks of blocks, in words, by the classes of the style sheet."""
MAX_PANELS = 8
MAX_BLOCKS = 12_000
"""The blocks of all panels at the most: each takes some 200 bytes."""
LANES_WIDTH, LANE, BLOCK, GAP = 700.0, 24.0, 18.0, 10.0
MIN_LETTERS = 6
"""The letters of a block's label that are worth drawing."""
MIN_BLOCK = 0.7
"""The length of a block in pixels at the least, if there is room."""
EDGED_BLOCK = 5.0
"""The length in pixels from which on a block of a single span is drawn a little shorter.

So neighbours can be distinguished.
"""
PALE, MIN_OPACITY = 0.6, 0.2
"""Blocks that were busy for a smaller share than PALE look pale."""
MIN_AT_ONCE = 1.05
"""With fewer queues at once operations did not overlap."""


class Panel(NamedTuple):
    """A case's lanes, under a name and what is seen in them."""

    name: str
    remarks: str
    shown: CaseLanes


@dataclass(frozen=True)
class TimelinesChart:
    """Panels below each other."""

    panels: Sequence[Panel]
    after: str = ""
    """The text below the panels."""
    lanes_width: float = LANES_WIDTH

    @property
    def width(self) -> float:
        """The lanes' room, beside the longest name."""
        return self.lanes_width + self._left

    @property
    def _left(self) -> float:
        names = {lane.name for panel in self.panels for lane in panel.shown.lanes}
        return min(text_width(names), text_width(["m" * MAX_NAME_LETTERS])) + GAP

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
        shown = [lane for panel in self.panels for lane in panel.shown.lanes]
        blocks = [block for lane in shown for block in lane.blocks]
        looks = {block.look for block in blocks}
        samples = {
            words: picture.swatch(f"full {look}") for look, words in LOOKS.items() if look in looks
        }
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
    # Behind the blocks, so that no arrow crosses their labels.
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
    # Of several names less than all says too little.
    wanted = min(len(name), MIN_LETTERS) if block.spans == 1 else len(name)
    if letters < wanted:
        return
    look = {"text_anchor": "middle", "font_size": f"{SMALL:g}"}
    if block.busy_share > PALE and block.look != "wait":
        look["style"] = f"over over-{block.look}"
    picture.text((start + end) / 2, middle, lanes.shortened(name, letters), **look)


def _opacity(block: Block) -> float:
    return round(MIN_OPACITY + (1 - MIN_OPACITY) * block.busy_share, 2)


def _busy(blocks: Iterable[Block], longest: float) -> str:
    """Say during what share of the chart's time a lane showed each look."""
    busy: dict[Look, float] = {}
    for block in blocks:
        busy[block.look] = busy.get(block.look, 0.0) + block.busy
    shares = [
        f"{LOOKS[look]} {percent(duration / longest)} of the width"
        for look, duration in busy.items()
    ]
    return ", ".join(shares)


def timeline_picture(timeline: Timeline) -> bytes:
    """Draw a timeline's first cases below each other, as many as are ever profiled together.

    Raises RequestError if the timeline has no spans.
    """
    cases = [case for case in cases_of(timeline) if case.spans]
    if not cases:
        raise RequestError(f"the timeline of {timeline.source} has no spans to draw")
    shown = cases[:MAX_PANELS]
    figures = [figures_of(case) for case in shown]
    panels = []
    for case, case_figures in zip(shown, figures, strict=True):
        remarks = ", ".join((seconds(case.seconds), *lanes.overlap_phrases(case_figures)))
        case_lanes = lanes.few_lanes(case, MAX_BLOCKS // len(shown))
        panels.append(Panel(case.name, remarks, case_lanes))
    after = ""
    if len(cases) > len(shown):
        hidden = len(cases) - len(shown)
        after = f"{hidden} more {'case is' if hidden == 1 else 'cases are'} not shown."
    key_case = _key_case(figures, timeline.experiment)
    message = _message_of(key_case, timeline.experiment) if key_case else ""
    return titled(TimelinesChart(panels, after), message, timeline.source)


def _key_case(figures: Sequence[CaseFigures], experiment: str) -> CaseFigures | None:
    """Return an experiment's main case, else that in which most queues worked at once.

    Of several such it is the first.
    """
    shown = EXPERIMENTS[experiment].drawn_case if experiment in EXPERIMENTS else ""

    def rank(case: CaseFigures) -> tuple[bool, float]:
        return case.case == shown, case.queues_at_once or 0.0

    return max(figures, key=rank, default=None)


def _message_of(case: CaseFigures, experiment: str) -> str:
    """Say how long a case took, and how long its operations take one after the other.

    The latter is left out if they did not overlap.
    """
    took = ": ".join(filter(None, (experiment, case.case, seconds(case.seconds))))
    at_once = case.queues_at_once or 0.0
    if at_once < MIN_AT_ONCE:
        return took
    in_turn = case.seconds + (at_once - 1) * case.working_seconds
    return f"{took}; one after the other its operations take {seconds(in_turn)}"
