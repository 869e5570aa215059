"""A task graph as a picture: a lane for each device, dependencies to the right, the longest chain in colour.

A task's column is the length of the longest chain of tasks before it. Dependencies that follow from others are not
drawn.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

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
from parallel_core.system.formatting import seconds

__all__ = ["rows_of", "task_graph"]

# All lengths are inches.
COLUMN, ROW = 1.5, 0.62
BOX_WIDTH, BOX_HEIGHT = 1.1, 0.44
LEFT, TOP, BOTTOM, LANE_MARGIN = 0.85, 0.55, 0.8, 0.12
INK, PALE_INK = "#333333", "#5A6670"
FILLS = {"compute": "#CFE6F5", "copy": "#F2F2F2", "allreduce": "#F2F2F2", "load": "#FFFFFF"}
CHAIN, CHAIN_FILL = COLOURS[1], "#FBDCC8"
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
    for place, (device, (top, end)) in enumerate(zip(devices, pairwise(tops), strict=True)):
        axes.axhspan(top, end, color="#FAFAFA" if place % 2 else "#F0F4F7", linewidth=0, zorder=0)
        axes.text(0.15, (top + end) / 2, device, fontsize=11, fontweight="bold", va="center", color=INK)
    axes.hlines(tops, 0, width, color="#D5DCE2", linewidth=0.8, zorder=1)
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
        row = next(row for row in (*wanted, *range(len(tasks))) if (task.device, column, row) not in taken)
        taken.add((task.device, column, row))
        rows.append(row)
    return tuple(rows)


def _lane_tops(tasks: Sequence[Task], rows: Sequence[int], devices: Sequence[str]) -> list[float]:
    tops = [TOP]
    for device in devices:
        deepest = max(row for task, row in zip(tasks, rows, strict=True) if task.device == device)
        tops.append(tops[-1] + ROW * (1 + deepest) + 2 * LANE_MARGIN)
    return tops


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
    x, y = at
    corner = (x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2)
    rounding = f"round,pad=0,rounding_size={0.22 if task.kind == 'load' else 0.06}"
    look = _look(task.kind, on_chain)
    axes.add_patch(FancyBboxPatch(corner, BOX_WIDTH, BOX_HEIGHT, boxstyle=rounding, zorder=4, **look))
    centred: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 5}
    if task.kind == "load" or not task.seconds:
        axes.text(x, y, task.name, fontsize=10, color=INK, **centred)
    else:
        axes.text(x, y - 0.085, task.name, fontsize=9.5, color=INK, **centred)
        axes.text(x, y + 0.105, seconds(task.seconds), fontsize=8, color=PALE_INK, **centred)


def _look(kind: str, on_chain: bool = False) -> dict[str, Any]:
    fill, edge, width = (CHAIN_FILL, CHAIN, 1.8) if on_chain else (FILLS[kind], "#7A8894", 1.0)
    dashes = "--" if kind in ("copy", "allreduce") else "-"
    return {"facecolor": fill, "edgecolor": edge, "linewidth": width, "linestyle": dashes}


def _draw_legend(axes: Axes, tasks: Sequence[Task], chain: Sequence[Task]) -> None:
    kinds = {task.kind for task in tasks}
    handles = [Patch(label=meaning, **_look(kind)) for kind, meaning in MEANINGS.items() if kind in kinds]
    long, work = (seconds(work_seconds(some)) for some in (chain, without_loads(tasks)))
    timed = f": {long} of {work} in all" if work_seconds(chain) else ""
    handles.append(Patch(label=f"longest chain{timed}", **_look("compute", on_chain=True)))
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
    axes.text(0.15, bottom - 0.2, CAPTION, fontsize=8, va="center", color=PALE_INK)
