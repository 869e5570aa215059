"""A profiler's timeline as a picture: a panel for each case, a lane for each queue, one scale of time for all.

In SVG every block and every lane says more when it is pointed at: parts are drawn under names, by which `with_titles`
finds them again.
"""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from backends.profiling import Timeline
from parallel_core.errors import RequestError
from parallel_core.plots.style import LOOKS, key_case, message_of, opacity
from parallel_core.system.formatting import seconds
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import (
    Block,
    CaseLanes,
    Lane,
    block_text,
    drawn_ends,
    few_lanes,
    overlap_phrases,
    shortened,
)

__all__ = ["MAX_PANELS", "TimelinePicture", "timeline_picture"]

MAX_PANELS = 8
MAX_BLOCKS = 12_000
"""In all panels: each takes some 400 bytes of an SVG."""
MAX_NAME_CHARACTERS = 48
"""Of a lane's name."""
# All lengths are inches.
LANES_WIDTH, MIN_NAMES_WIDTH, LANE, PANEL, FRAME = 5.6, 1.4, 0.27, 0.36, 1.35
NAME_CHARACTER_WIDTH = 0.068
"""About the width of a character of a lane's name."""
CHARACTER_WIDTH, MIN_CHARACTERS = 0.059, 6
"""About the width of a character of a block's label, and how many are worth drawing."""
MIN_BLOCK_SHARE = 1 / 700
"""Of the panel's width, if there is room: about half a point."""
EDGED_BLOCK_SHARE = 1 / 150
"""Wider blocks of a single span get white edges."""
TITLE_CHARACTERS = 92
PALE = 0.6
"""Blocks that were busy for a smaller share look pale."""
UNITS = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))


class TimelinePicture(NamedTuple):
    """A figure, and for the name of each group of its parts what they say when they are pointed at, part by part."""

    figure: Figure
    titles: Mapping[str, Sequence[str]]


def timeline_picture(timeline: Timeline) -> TimelinePicture:
    """Draw a timeline's first cases below each other, as many as are ever profiled together.

    Raises RequestError if the timeline has no spans.
    """
    filled = [case for case in cases_of(timeline) if case.spans]
    if not filled:
        raise RequestError(f"the timeline of {timeline.source} has no spans to draw")
    few = filled[:MAX_PANELS]
    shown = [few_lanes(case, MAX_BLOCKS // len(few)) for case in few]
    names = list(dict.fromkeys(lane.name for one in shown for lane in one.lanes))
    longest_name = min(MAX_NAME_CHARACTERS, max(map(len, names)))
    width = LANES_WIDTH + max(MIN_NAMES_WIDTH, NAME_CHARACTER_WIDTH * longest_name)
    figure = Figure(figsize=(width, FRAME + len(shown) * (PANEL + LANE * len(names))), layout="constrained")
    panels = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    longest = max(one.seconds for one in shown)
    scale, unit = next((size, name) for size, name in UNITS if longest >= size or name == UNITS[-1][1])
    titles: dict[str, Sequence[str]] = {}
    for number, (axes, one, case) in enumerate(zip(panels, shown, few, strict=True)):
        titles |= _draw_panel(axes, one, names, scale, longest / scale, f"panel-{number}")
        title = ", ".join((f"{one.case}: {seconds(one.seconds)}", *overlap_phrases(figures_of(case))))
        axes.set_title(fill(title, TITLE_CHARACTERS), loc="left", fontsize=8.5, parse_math=False)
    more = len(filled) - len(shown)
    left_out = f" ({more} more {'case is' if more == 1 else 'cases are'} not shown)" if more else ""
    panels[-1].set_xlabel(f"{unit} since the case's first launch{left_out}", fontsize=8.5)
    handles = _legend([block for one in shown for lane in one.lanes for block in lane.blocks])
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    key = key_case([figures_of(case) for case in few], timeline.experiment)
    titles_of_all = [message_of(key, timeline.experiment)] if key else []
    figure.suptitle("\n".join((*titles_of_all, timeline.source)), fontsize="medium", parse_math=False)
    return TimelinePicture(figure, titles)


def _legend(blocks: Sequence[Block]) -> list[Patch]:
    used = {block.look for block in blocks}
    looks = [appearance for look, appearance in LOOKS.items() if look in used]
    handles = [Patch(facecolor=to_rgba(colour, full), label=name) for name, colour, full in looks]
    palest = min(blocks, key=lambda block: block.busy_share)
    if palest.busy_share < PALE:
        handles.append(Patch(facecolor=_block_colour(palest), label="pale: many short ones, with gaps"))
    return handles


def _draw_panel(
    axes: Axes, shown: CaseLanes, names: Sequence[str], scale: float, longest: float, group: str
) -> dict[str, Sequence[str]]:
    """Draw a case's lanes, the first one on top; `longest` is the width of all panels in units of `scale` seconds.

    Returns what the parts of each group say, whose names begin with `group`.
    """
    axes.set(xlim=(0, longest), ylim=(len(names) - 0.5, -0.5))
    written = [shortened(name, MAX_NAME_CHARACTERS) for name in names]
    axes.set_yticks(range(len(names)), written, fontsize=8, parse_math=False)
    titles: dict[str, Sequence[str]] = {}
    for place, (name, label) in enumerate(zip(names, axes.get_yticklabels(), strict=True)):
        label.set_gid(f"{group}-name-{place}")
        titles[f"{group}-name-{place}"] = [name]
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for place in range(0, len(names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#F4F6F8", linewidth=0, zorder=0)
    for lane in shown.lanes:
        place = names.index(lane.name)
        _draw_lane(axes, lane, place, scale, longest, f"{group}-lane-{place}")
        titles[f"{group}-lane-{place}"] = [block_text(block) for block in lane.blocks]
    for launch in shown.launches:
        axes.annotate(
            "",
            xy=(launch.start / scale, names.index(launch.lane) - 0.35),
            xytext=(launch.launched / scale, names.index(shown.lanes[0].name) + 0.35),
            arrowprops={"arrowstyle": "-|>", "mutation_scale": 5, "linewidth": 0.5, "color": "#333333", "alpha": 0.7}
            | {"shrinkA": 0, "shrinkB": 0},
            # Behind the blocks, so that no arrow crosses their labels.
            zorder=1.5,
        )
    return titles


def _draw_lane(axes: Axes, lane: Lane, place: int, scale: float, longest: float, group: str) -> None:
    ends = drawn_ends(lane.blocks, longest * scale * MIN_BLOCK_SHARE)
    min_edged = longest * scale * EDGED_BLOCK_SHARE
    edged = [block.spans == 1 and block.end - block.start > min_edged for block in lane.blocks]
    axes.broken_barh(
        [(block.start / scale, (end - block.start) / scale) for block, end in zip(lane.blocks, ends, strict=True)],
        (place - 0.36, 0.72),
        facecolors=[_block_colour(block) for block in lane.blocks],
        edgecolors=["white" if has_edge else "none" for has_edge in edged],
        linewidths=[0.5 if has_edge else 0 for has_edge in edged],
        zorder=2,
        gid=group,
    )
    for block in lane.blocks:
        room = (block.end - block.start) / scale / longest * LANES_WIDTH
        name = block.label.partition(" (")[0]
        characters = int(room / CHARACTER_WIDTH) - 1
        # Of several names less than all says too little.
        if characters >= (min(len(name), MIN_CHARACTERS) if block.spans == 1 else len(name)):
            at = (block.start + block.end) / 2 / scale
            contrasting = "white" if block.look == "compute" and block.busy_share > PALE else "black"
            text = axes.text(
                at, place, shortened(name, characters), ha="center", va="center", fontsize=7, color=contrasting
            )
            text.set(clip_on=True, parse_math=False, zorder=4)


def _block_colour(block: Block) -> tuple[float, float, float, float]:
    _, colour, full = LOOKS[block.look]
    return to_rgba(colour, full * opacity(block))
