"""A profiler's timeline as a picture: a panel for each case, a lane for each queue, one scale of time for all."""

from collections.abc import Sequence
from textwrap import fill

from humanize import metric
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from backends.profiling import Timeline
from parallel_core.errors import RequestError
from parallel_core.plots.style import LOOKS, opacity
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import Block, CaseLanes, Lane, drawn_ends, lanes, overlap_phrases

__all__ = ["MAX_PANELS", "timeline_figure"]

MAX_PANELS = 8
# All lengths are inches.
WIDTH, LANE, PANEL, FRAME = 7.0, 0.27, 0.36, 1.35
LANES_WIDTH = 5.6
CHARACTER_WIDTH = 0.055
"""About the width of a character of a block's label."""
MIN_BLOCK_SHARE = 1 / 700
"""Of the panel's width, if there is room: about half a point."""
EDGED_BLOCK_SHARE = 1 / 150
"""Wider blocks of a single span get white edges."""
TITLE_CHARACTERS = 92
PALE = 0.6
"""Blocks that were busy for a smaller share look pale."""
UNITS = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))


def timeline_figure(timeline: Timeline) -> Figure:
    """Draw a timeline's first cases below each other, as many as are ever profiled together.

    Raises RequestError if the timeline has no spans.
    """
    filled = [case for case in cases_of(timeline) if case.spans]
    if not filled:
        raise RequestError(f"the timeline of {timeline.source} has no spans to draw")
    shown = [lanes(case) for case in filled[:MAX_PANELS]]
    names = list(dict.fromkeys(lane.name for one in shown for lane in one.lanes))
    figure = Figure(figsize=(WIDTH, FRAME + len(shown) * (PANEL + LANE * len(names))), layout="constrained")
    panels = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    longest = max(one.seconds for one in shown)
    scale, unit = next((size, name) for size, name in UNITS if longest >= size or name == UNITS[-1][1])
    for axes, one, case in zip(panels, shown, filled, strict=False):
        _draw_panel(axes, one, names, scale, longest / scale)
        title = ", ".join((f"{one.case}: {metric(one.seconds, 's')}", *overlap_phrases(figures_of(case))))
        axes.set_title(fill(title, TITLE_CHARACTERS), loc="left", fontsize=8.5, parse_math=False)
    more = len(filled) - len(shown)
    left_out = f" ({more} more {'case is' if more == 1 else 'cases are'} not shown)" if more else ""
    panels[-1].set_xlabel(f"{unit} since the case's first launch{left_out}", fontsize=8.5)
    handles = _legend([block for one in shown for lane in one.lanes for block in lane.blocks])
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    figure.suptitle(timeline.source, fontsize="medium", parse_math=False)
    return figure


def _legend(blocks: Sequence[Block]) -> list[Patch]:
    used = {block.look for block in blocks}
    looks = [appearance for look, appearance in LOOKS.items() if look in used]
    handles = [Patch(facecolor=to_rgba(colour, full), label=name) for name, colour, full in looks]
    palest = min(blocks, key=lambda block: block.busy_share)
    if palest.busy_share < PALE:
        handles.append(Patch(facecolor=_block_colour(palest), label="pale: many short ones, with gaps"))
    return handles


def _draw_panel(axes: Axes, shown: CaseLanes, names: Sequence[str], scale: float, longest: float) -> None:
    """Draw a case's lanes, the first one on top; `longest` is the width of all panels in units of `scale` seconds."""
    axes.set(xlim=(0, longest), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for place in range(0, len(names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#F4F6F8", linewidth=0, zorder=0)
    for lane in shown.lanes:
        _draw_lane(axes, lane, names.index(lane.name), scale, longest)
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


def _draw_lane(axes: Axes, lane: Lane, place: int, scale: float, longest: float) -> None:
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
    )
    for block in lane.blocks:
        room = (block.end - block.start) / scale / longest * LANES_WIDTH
        name = block.label.partition(" (")[0]
        if room > CHARACTER_WIDTH * (len(name) + 1):
            at = (block.start + block.end) / 2 / scale
            contrasting = "white" if block.look == "compute" and block.busy_share > PALE else "black"
            text = axes.text(at, place, name, ha="center", va="center", fontsize=6.5, color=contrasting, zorder=4)
            text.set(clip_on=True, parse_math=False)


def _block_colour(block: Block) -> tuple[float, float, float, float]:
    _, colour, full = LOOKS[block.look]
    return to_rgba(colour, full * opacity(block))
