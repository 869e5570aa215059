"""A profiler's timeline as a picture: a panel for each case, a lane for each queue, one scale of time for all."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import BinaryIO

from humanize import metric
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from backends.profiling import Timeline
from parallel_core.errors import RequestError
from parallel_core.plots.style import LOOKS, opacity
from parallel_core.system.files import write_whole
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import Block, CaseLanes, Lane, drawn_ends, lanes, overlap_phrases

__all__ = ["MAX_PANELS", "draw_timeline", "timeline_figure", "write_picture_file"]


MAX_PANELS = 8


# All lengths are inches.
WIDTH, LANE, PANEL, FRAME = 7.0, 0.27, 0.36, 1.35


CHARACTER = 0.055
"""About what a character of a block's label takes."""


LANES_WIDTH = 5.6


MIN_PARTS = 700
"""A block is drawn at least one part in so many wide, where there is room: about half a point."""


EDGED_PARTS = 150
"""Single spans wider than one part in so many are set apart by white lines."""


TITLE_CHARACTERS = 92


PALE = 0.6


UNITS = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))


def draw_timeline(timeline: Timeline, stream: BinaryIO, kind: str) -> None:
    """Draw a timeline into a binary stream, as one of `drawing.FORMATS`; in SVG, text stays text.

    Its first cases are drawn, as many as are ever profiled together. Raises RequestError for one without spans.
    """
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "parallel-core"}):
        drawn = timeline_figure(timeline)
        drawn.savefig(stream, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)


def timeline_figure(timeline: Timeline) -> Figure:
    """Draw a timeline's cases below each other; arguments and errors as of `draw_timeline`."""
    filled = [case for case in cases_of(timeline) if case.spans]
    if not filled:
        raise RequestError(f"the timeline of {timeline.source} has no spans to draw")
    shown = [lanes(case) for case in filled[:MAX_PANELS]]
    names = all_lanes(shown)
    figure = Figure(figsize=(WIDTH, FRAME + len(shown) * (PANEL + LANE * len(names))), layout="constrained")
    panels = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    longest = max(one.seconds for one in shown)
    scale, unit = next((size, name) for size, name in UNITS if longest >= size or name == UNITS[-1][1])
    for axes, one, case in zip(panels, shown, filled, strict=False):
        draw_panel(axes, one, names, scale, longest / scale)
        title = ", ".join((f"{one.case}: {metric(one.seconds, 's')}", *overlap_phrases(figures_of(case))))
        axes.set_title(fill(title, TITLE_CHARACTERS), loc="left", fontsize=8.5, parse_math=False)
    panels[-1].set_xlabel(f"{unit} since the case's first launch{left_out(len(filled) - len(shown))}", fontsize=8.5)
    handles = legend([block for one in shown for lane in one.lanes for block in lane.blocks])
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    figure.suptitle(timeline.source, fontsize="medium", parse_math=False)
    return figure


def all_lanes(shown: Sequence[CaseLanes]) -> list[str]:
    """Return the names of the lanes in which anything runs, in a case's order."""
    return list(dict.fromkeys(lane.name for one in shown for lane in one.lanes))


def legend(blocks: Sequence[Block]) -> list[Patch]:
    """Say what the colours of some blocks mean, and paleness where there are pale ones."""
    used = {block.look for block in blocks}
    handles = [
        Patch(facecolor=to_rgba(colour, strength), label=name)
        for look, (name, colour, strength) in LOOKS.items()
        if look in used
    ]
    palest = min(blocks, key=lambda block: block.busy_share)
    if palest.busy_share < PALE:
        handles.append(Patch(facecolor=shade(palest), label="pale: many short ones, with gaps"))
    return handles


def left_out(count: int) -> str:
    """Say how many cases are not shown."""
    return "" if not count else f" ({count} more {'case is' if count == 1 else 'cases are'} not shown)"


def draw_panel(axes: Axes, shown: CaseLanes, names: Sequence[str], scale: float, longest: float) -> None:
    """Draw a case's lanes, the first one on top; `longest` is the panels' width, in units of `scale` seconds."""
    axes.set(xlim=(0, longest), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for place in range(0, len(names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#F4F6F8", linewidth=0, zorder=0)
    for lane in shown.lanes:
        draw_lane(axes, lane, names.index(lane.name), scale, longest)
    for launch in shown.launches:
        axes.annotate(
            "",
            xy=(launch.start / scale, names.index(launch.lane) - 0.35),
            xytext=(launch.launched / scale, names.index(shown.lanes[0].name) + 0.35),
            arrowprops={"arrowstyle": "-|>", "mutation_scale": 5, "linewidth": 0.5, "color": "#333333", "alpha": 0.7}
            | {"shrinkA": 0, "shrinkB": 0},
            # Behind the blocks, whose names it would cross.
            zorder=1.5,
        )


def draw_lane(axes: Axes, lane: Lane, place: int, scale: float, longest: float) -> None:
    """Draw a lane's blocks, and the names of those that have room for them."""
    ends = drawn_ends(lane.blocks, longest * scale / MIN_PARTS)
    edged = [block.spans == 1 and (block.end - block.start) / scale > longest / EDGED_PARTS for block in lane.blocks]
    axes.broken_barh(
        [(block.start / scale, (end - block.start) / scale) for block, end in zip(lane.blocks, ends, strict=True)],
        (place - 0.36, 0.72),
        facecolors=[shade(block) for block in lane.blocks],
        edgecolors=["white" if has_edge else "none" for has_edge in edged],
        linewidths=[0.5 if has_edge else 0 for has_edge in edged],
        zorder=2,
    )
    for block in lane.blocks:
        room = (block.end - block.start) / scale / longest * LANES_WIDTH
        name = block.label.partition(" (")[0]
        if room > CHARACTER * (len(name) + 1):
            at = (block.start + block.end) / 2 / scale
            written = axes.text(at, place, name, ha="center", va="center", fontsize=6.5, color=ink(block), zorder=4)
            written.set(clip_on=True, parse_math=False)


def shade(block: Block) -> tuple[float, float, float, float]:
    """Return a block's colour."""
    _, colour, strength = LOOKS[block.look]
    return to_rgba(colour, strength * opacity(block))


def ink(block: Block) -> str:
    """Return the colour of a block's label: what stands out on the block's own."""
    return "white" if block.look == "compute" and block.busy_share > PALE else "black"


def write_picture_file(timeline: Timeline, path: Path) -> None:
    """Draw a timeline, as the path's ending says; `drawing.check_drawing` tells whether it can be. Raises OSError."""
    # Drawing needs matplotlib, which is an extra.
    from parallel_core.plots.timeline import draw_timeline

    kind = path.suffix.removeprefix(".").lower()
    write_whole(path, lambda stream: draw_timeline(timeline, stream, kind))
