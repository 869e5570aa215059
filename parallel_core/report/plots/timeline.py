"""Timelines: a panel for each of several, a lane for each queue, one scale of time for all.

Every block and every lane's name says more when it is pointed at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
"""What is drawn, in words, by the classes of the style sheet."""
MAX_PANELS = 8
MAX_BLOCKS = 12_000
"""In all panels: each takes some 200 bytes."""
LANES_WIDTH, LANE, BLOCK, GAP = 700.0, 24.0, 18.0, 10.0
MIN_LETTERS = 6
"""Of a block's label that are worth drawing."""
MIN_BLOCK = 0.7
"""Pixels, if there is room."""
EDGED_BLOCK = 5.0
"""Pixels: longer blocks of a single span are a little shorter, so that neighbours can be
distinguished.
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
    """What is said below them."""
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
        blocks = [
            block for panel in self.panels for lane in panel.shown.lanes for block in lane.blocks
        ]
        used = {block.look for block in blocks}
        legend = {
            words: picture.swatch(f"full {look}") for look, words in LOOKS.items() if look in used
        }
        palest = min(blocks, key=lambda block: block.busy_share)
        if palest.busy_share < PALE:
            legend["pale: many short ones, with gaps"] = picture.swatch(
                f"full {palest.look}", _opacity(palest)
            )
        picture.legend(legend)
        scale = from_zero(panel.shown.seconds for panel in self.panels)
        axis = Axis("since the first launch", scale, write_seconds)
        left = self._left
        for panel in self.panels:
            picture.paragraph(": ".join(filter(None, (panel.name, panel.remarks))), "bold")
            grid, top = picture.add("g"), picture.bottom
            _draw_lanes(picture, panel.shown, scale, left, self.lanes_width)
            picture.grid(axis, left, self.lanes_width, top, grid)
        picture.x_axis(axis, left, self.lanes_width)
        if self.after:
            picture.paragraph(self.after, "faint", left)


def _draw_lanes(
    picture: Picture, shown: CaseLanes, scale: Scale, left: float, width: float
) -> None:
    def x(time: float) -> float:
        return left + width * scale.place(time)

    middles = {
        lane.name: picture.bottom + LANE * (number + 0.5) for number, lane in enumerate(shown.lanes)
    }
    for lane, middle in zip(shown.lanes, middles.values(), strict=True):
        picture.name(middle, lane.name)
        picture.add("rect", x=left, y=middle - BLOCK / 2, width=width, height=BLOCK, style="shade")
    # Behind the blocks, so that no arrow crosses their labels.
    for launch in shown.launches:
        picture.arrow(
            (x(launch.launched), middles[shown.lanes[0].name] + BLOCK / 2),
            (x(launch.start), middles[launch.lane] - BLOCK / 2),
            "launch",
        )
    for lane, middle in zip(shown.lanes, middles.values(), strict=True):
        group = picture.add(
            "g", role="img", aria_label=f"{lane.name}: {_busy(lane.blocks, scale.high)}"
        )
        for block, end in zip(
            lane.blocks, lanes.drawn_ends(lane.blocks, scale.high * MIN_BLOCK / width), strict=True
        ):
            length = x(end) - x(block.start)
            edge = 0.7 if block.spans == 1 and length > EDGED_BLOCK else 0
            pale = {"opacity": _opacity(block)} if block.busy_share < 1 else {}
            at = {
                "x": x(block.start),
                "y": middle - BLOCK / 2,
                "width": length - edge,
                "height": BLOCK,
            }
            picture.add(
                "rect", "", lanes.block_text(block), group, style=f"full {block.look}", **at, **pale
            )
        for block in lane.blocks:
            _label(picture, block, x(block.start), x(block.end), middle)
    picture.bottom += LANE * len(shown.lanes)


def _label(picture: Picture, block: Block, start: float, end: float, middle: float) -> None:
    name = block.label.partition(" (")[0]
    letters = int((end - start) / (SMALL * LETTER)) - 1
    # Of several names less than all says too little.
    if letters >= (min(len(name), MIN_LETTERS) if block.spans == 1 else len(name)):
        strong = block.busy_share > PALE and block.look != "wait"
        style = {"style": f"over over-{block.look}"} if strong else {}
        picture.text(
            (start + end) / 2,
            middle,
            lanes.shortened(name, letters),
            text_anchor="middle",
            font_size=SMALL,
            **style,
        )


def _opacity(block: Block) -> float:
    return round(MIN_OPACITY + (1 - MIN_OPACITY) * block.busy_share, 2)


def _busy(blocks: Iterable[Block], longest: float) -> str:
    """Say for what fraction of the whole chart's time a lane showed each look."""
    busy: dict[Look, float] = {}
    for block in blocks:
        busy[block.look] = busy.get(block.look, 0.0) + block.busy
    return ", ".join(
        f"{LOOKS[look]} {percent(taken / longest)} of the width" for look, taken in busy.items()
    )


def timeline_picture(timeline: Timeline) -> bytes:
    """Draw a timeline's first cases below each other, as many as are ever profiled together.

    Raises RequestError if the timeline has no spans.
    """
    filled = [case for case in cases_of(timeline) if case.spans]
    if not filled:
        raise RequestError(f"the timeline of {timeline.source} has no spans to draw")
    few = [(case, figures_of(case)) for case in filled[:MAX_PANELS]]
    panels = [
        Panel(
            case.name,
            ", ".join((seconds(case.seconds), *lanes.overlap_phrases(figures))),
            lanes.few_lanes(case, MAX_BLOCKS // len(few)),
        )
        for case, figures in few
    ]
    more = len(filled) - len(few)
    after = f"{more} more {'case is' if more == 1 else 'cases are'} not shown." if more else ""
    key = _key_case([figures for _, figures in few], timeline.experiment)
    message = _message_of(key, timeline.experiment) if key else ""
    return titled(TimelinesChart(panels, after), message, timeline.source)


def _key_case(figures: Sequence[CaseFigures], experiment: str) -> CaseFigures | None:
    """Return an experiment's main case, else that in which most queues worked at once, the first of
    several.
    """
    shown = EXPERIMENTS[experiment].drawn_case if experiment in EXPERIMENTS else ""
    return max(
        figures, key=lambda case: (case.case == shown, case.queues_at_once or 0.0), default=None
    )


def _message_of(case: CaseFigures, experiment: str) -> str:
    """Say what a case's timeline shows: how long it took, and how long its operations take one
    after the other.
    """
    took = ": ".join(filter(None, (experiment, case.case, seconds(case.seconds))))
    at_once = case.queues_at_once or 0.0
    in_turn = case.seconds + (at_once - 1) * case.working_seconds
    return (
        took
        if at_once < MIN_AT_ONCE
        else f"{took}; one after the other its operations take {seconds(in_turn)}"
    )
