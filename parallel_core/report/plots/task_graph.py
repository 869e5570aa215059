"""A task graph as a picture: a lane for each device, and arrows for dependencies, to the right.

A task's column is the length of the longest chain of tasks before it. The longest chain of all is
in colour. Dependencies that follow from others are not drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from parallel_core.measurement import task_graph
from parallel_core.measurement.task_graph import Task
from parallel_core.report.plots.svg import SMALL, WIDTH, Picture
from parallel_core.system.formatting import seconds

COLUMN, ROW = 136.0, 56.0
BOX_WIDTH, BOX_HEIGHT = 100.0, 40.0
LEFT, LANE_MARGIN = 66.0, 10.0
CAPTION = (
    "Arrows: what a task waits for, without what follows from other arrows. Times: each task "
    "in isolation."
)
MEANINGS = {
    "compute": "computation",
    "copy": "copy between devices",
    "allreduce": "allreduce",
}


@dataclass(frozen=True)
class TaskGraph:
    """The chart of a task graph."""

    tasks: Sequence[Task]

    @property
    def width(self) -> float:
        """The width of all columns, but at least that of the legend."""
        columns = 1 + max(task_graph.levels(self.tasks))
        return max(LEFT + COLUMN * columns + 10, WIDTH)

    def draw(self, picture: Picture) -> None:
        """Draw lanes, boxes, arrows and the legend."""
        tasks = task_graph.without_implied(self.tasks)
        columns, rows = task_graph.levels(tasks), rows_of(tasks)
        tops = _draw_lanes(picture, tasks, rows)
        centres = []
        for task, column, row in zip(tasks, columns, rows, strict=True):
            x = LEFT + COLUMN * (column + 0.5)
            y = tops[task.device] + LANE_MARGIN + ROW * (row + 0.5)
            centres.append((x, y))
        chain = set(task_graph.longest_path(tasks))
        _draw_arrows(picture, tasks, centres, chain)
        for number, task in enumerate(tasks):
            _draw_task(picture, task, centres[number], on_chain=number in chain)
        self._draw_legend(picture, [self.tasks[number] for number in sorted(chain)])

    def _draw_legend(self, picture: Picture, chain: Sequence[Task]) -> None:
        """Draw the caption, the kinds of tasks that occur, and the seconds of the longest chain."""
        picture.bottom += 6
        picture.paragraph(CAPTION, "faint")
        kinds = {task.kind for task in self.tasks}
        samples = {}
        for kind, meaning in MEANINGS.items():
            if kind in kinds:
                samples[meaning] = picture.swatch(f"box box-{kind}")
        label = "longest chain"
        chain_seconds = task_graph.work_seconds(chain)
        if chain_seconds:
            all_seconds = task_graph.work_seconds(self.tasks)
            label += f": {seconds(chain_seconds)} of {seconds(all_seconds)} in all"
        samples[label] = picture.swatch("box chain")
        picture.legend(samples)


def _draw_lanes(picture: Picture, tasks: Sequence[Task], rows: Sequence[int]) -> dict[str, float]:
    """Draw a lane for each device, every other one shaded; return the lanes' upper edges."""
    rows_of_device: dict[str, int] = {}
    for task, row in zip(tasks, rows, strict=True):
        rows_of_device[task.device] = max(row + 1, rows_of_device.get(task.device, 0))
    tops = {}
    for number, device in enumerate(sorted(rows_of_device)):
        tops[device] = picture.bottom
        height = ROW * rows_of_device[device] + 2 * LANE_MARGIN
        if number % 2 == 0:
            shade = {"y": picture.bottom, "width": picture.width, "height": height}
            picture.add("rect", **shade, style="shade")
        picture.text(6, picture.bottom + height / 2, device, style="bold")
        picture.bottom += height
    return tops


def _draw_arrows(
    picture: Picture,
    tasks: Sequence[Task],
    centres: Sequence[tuple[float, float]],
    chain: set[int],
) -> None:
    """Draw an arrow for each dependency, and those of the chain last, above the others."""
    on_chain: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    for later, task in enumerate(tasks):
        for earlier in task.after:
            is_on_chain = earlier in chain and later in chain
            arrows = on_chain if is_on_chain else others
            arrows.append((earlier, later))
    for arrows, style in ((others, "faint"), (on_chain, "c1 thick")):
        for earlier, later in arrows:
            (x0, y0), (x1, y1) = centres[earlier], centres[later]
            start, end = (x0 + BOX_WIDTH / 2, y0), (x1 - BOX_WIDTH / 2, y1)
            picture.arrow(start, end, style, (COLUMN - BOX_WIDTH) * 0.8)


def rows_of(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Return the row of each task in its device's lane.

    It is the row of a task that it waits for, if that is free in its column, or else the first free
    row.
    """
    occupied: set[tuple[str, int, int]] = set()
    rows: list[int] = []
    for task, column in zip(tasks, task_graph.levels(tasks), strict=True):
        preferred = [
            rows[earlier] for earlier in task.after if tasks[earlier].device == task.device
        ]
        candidates = (*preferred, *range(len(tasks)))
        row = next(row for row in candidates if (task.device, column, row) not in occupied)
        occupied.add((task.device, column, row))
        rows.append(row)
    return tuple(rows)


def _draw_task(picture: Picture, task: Task, centre: tuple[float, float], on_chain: bool) -> None:
    """Draw the box of a task around a centre, with its name, and its time if it was measured."""
    x, y = centre
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    style = f"box box-{task.kind}"
    if on_chain:
        style += " chain"
    picture.add("rect", x=left, y=top, width=BOX_WIDTH, height=BOX_HEIGHT, rx=5, style=style)
    if not task.seconds:
        picture.text(x, y, task.name, text_anchor="middle")
        return
    picture.text(x, y - 8, task.name, text_anchor="middle")
    written = seconds(task.seconds)
    picture.text(x, y + 9, written, text_anchor="middle", style="faint", font_size=SMALL)
