"""A task graph as a picture: a lane for each device, dependencies to the right, the longest chain in colour.

A task's column is the length of the longest chain of tasks before it. Dependencies that follow from others are not
drawn.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from humanize import metric
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch
from matplotlib.path import Path

from parallel_core.measurement.task_graph import (
    Task,
    levels,
    longest_path,
    without_implied,
    without_loads,
    work_seconds,
)
from parallel_core.plots.style import COLOURS

__all__ = ["rows_of", "task_graph"]

# All lengths are inches.
COLUMN, ROW = 1.5, 0.62
BOX_WIDTH, BOX_HEIGHT = 1.1, 0.44
LEFT, TOP, BOTTOM, LANE_MARGIN = 0.85, 0.55, 0.8, 0.12
INK, CHAIN = "#333333", COLOURS[1]
FILLS = {"compute": "#CFE6F5", "copy": "#F2F2F2", "allreduce": "#F2F2F2", "load": "#FFFFFF"}
CHAIN_FILL = "#FBDCC8"
CAPTION = "Arrows: what a task waits for, without what follows from other arrows. Times: each task alone."
MEANINGS = {"compute": "computation", "copy": "copy between devices", "allreduce": "allreduce", "load": "input"}


def task_graph(tasks: Sequence[Task], title: str) -> Figure:
    """Draw tasks."""
    drawn = without_implied(tasks)
    columns, rows = levels(drawn), rows_of(drawn)
    devices = sorted({task.device for task in drawn})
    tops = _lane_tops(drawn, rows, devices)
    width = max(LEFT + COLUMN * (1 + max(columns)) + 0.1, 6.8)
    height = tops[-1] + BOTTOM
    # Inputs only bring values in: their time is not counted.
    untimed = [replace(task, seconds=0.0) if task.kind == "load" else task for task in drawn]
    chain = {place for place in longest_path(untimed) if drawn[place].kind != "load"}
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    axes.text(0.15, 0.3, title, fontsize=12, fontweight="bold", va="center", color=INK)
    _draw_lanes(axes, devices, tops, width)
    places = [
        (LEFT + COLUMN * (column + 0.5), tops[devices.index(task.device)] + LANE_MARGIN + ROW * (row + 0.5))
        for task, column, row in zip(drawn, columns, rows, strict=True)
    ]
    for later, task in enumerate(drawn):
        for earlier in task.after:
            _draw_arrow(axes, places[earlier], places[later], on_chain=earlier in chain and later in chain)
    for place, (task, at) in enumerate(zip(drawn, places, strict=True)):
        _draw_task(axes, task, at, on_chain=place in chain)
    _draw_legend(axes, tasks, [tasks[place] for place in sorted(chain)])
    return figure


def rows_of(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Give each task a row in its device's lane: its predecessor's if free in its column, else the first free one."""
    taken: set[tuple[str, int, int]] = set()
    rows: list[int] = []
    for task, column in zip(tasks, levels(tasks), strict=True):
        wanted = [rows[earlier] for earlier in task.after if tasks[earlier].device == task.device]
        free = (row for row in (*wanted, *range(len(tasks))) if (task.device, column, row) not in taken)
        row = next(free)
        taken.add((task.device, column, row))
        rows.append(row)
    return tuple(rows)


def _lane_tops(tasks: Sequence[Task], rows: Sequence[int], devices: Sequence[str]) -> list[float]:
    tops = [TOP]
    for device in devices:
        deepest = max(row for task, row in zip(tasks, rows, strict=True) if task.device == device)
        tops.append(tops[-1] + ROW * (1 + deepest) + 2 * LANE_MARGIN)
    return tops


def _draw_lanes(axes: Axes, devices: Sequence[str], tops: Sequence[float], width: float) -> None:
    for place, device, top, end in zip(count(), devices, tops, tops[1:], strict=False):
        axes.axhspan(top, end, color="#FAFAFA" if place % 2 else "#F0F4F7", linewidth=0, zorder=0)
        axes.text(0.15, (top + end) / 2, device, fontsize=11, fontweight="bold", va="center", color=INK)
    axes.hlines(tops, 0, width, color="#D5DCE2", linewidth=0.8, zorder=1)


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], on_chain: bool) -> None:
    """Draw a dependency from one box's right side to another's left, level at both ends."""
    (x0, y0), (x1, y1) = (start[0] + BOX_WIDTH / 2, start[1]), (end[0] - BOX_WIDTH / 2, end[1])
    bend = (COLUMN - BOX_WIDTH) * 0.8
    curve = Path(
        [(x0, y0), (x0 + bend, y0), (x1 - bend, y1), (x1, y1)], [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    )
    colour, line, order = (CHAIN, 2.0, 3) if on_chain else ("#7A8894", 1.1, 2)
    axes.add_patch(
        FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=10, color=colour, linewidth=line, zorder=order)
    )


def _draw_task(axes: Axes, task: Task, at: tuple[float, float], on_chain: bool) -> None:
    axes.add_patch(_box(task.kind, on_chain, (at[0] - BOX_WIDTH / 2, at[1] - BOX_HEIGHT / 2)))
    if task.kind == "load" or not task.seconds:
        axes.text(*at, task.name, fontsize=10, ha="center", va="center", color=INK, zorder=5)
        return
    axes.text(at[0], at[1] - 0.085, task.name, fontsize=9.5, ha="center", va="center", color=INK, zorder=5)
    seconds = metric(task.seconds, "s")
    axes.text(at[0], at[1] + 0.105, seconds, fontsize=8, ha="center", va="center", color="#5A6670", zorder=5)


def _box(kind: str, on_chain: bool, corner: tuple[float, float] = (0, 0)) -> FancyBboxPatch:
    """Return the box of a kind of task; copies have dashed edges."""
    return FancyBboxPatch(
        corner,
        BOX_WIDTH,
        BOX_HEIGHT,
        boxstyle=f"round,pad=0,rounding_size={0.22 if kind == 'load' else 0.06}",
        facecolor=CHAIN_FILL if on_chain else FILLS[kind],
        edgecolor=CHAIN if on_chain else "#7A8894",
        linewidth=1.8 if on_chain else 1.0,
        linestyle="--" if kind in ("copy", "allreduce") else "-",
        zorder=4,
    )


def _draw_legend(axes: Axes, tasks: Sequence[Task], chain: Sequence[Task]) -> None:
    kinds = [kind for kind in MEANINGS if any(task.kind == kind for task in tasks)]
    handles = [
        Patch(
            facecolor=FILLS[kind],
            edgecolor="#7A8894",
            linestyle="--" if kind in ("copy", "allreduce") else "-",
            label=MEANINGS[kind],
        )
        for kind in kinds
    ]
    long, work = (metric(work_seconds(some), "s") for some in (chain, without_loads(tasks)))
    timed = f": {long} of {work} in all" if work_seconds(chain) else ""
    handles.append(Patch(facecolor=CHAIN_FILL, edgecolor=CHAIN, linewidth=1.8, label=f"longest chain{timed}"))
    bottom = axes.get_ylim()[0]
    axes.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(0.05, bottom - 0.52),
        bbox_transform=axes.transData,
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        handlelength=2.4,
        handleheight=1.2,
    )
    axes.text(0.15, bottom - 0.2, CAPTION, fontsize=8, va="center", color="#5A6670")
