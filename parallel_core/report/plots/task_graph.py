"""A task graph as a picture: a lane for each device, dependencies to the right.

A task's column is the length of the longest chain of tasks before it. The longest chain is in
colour. Dependencies that follow from the rest are not drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    "load": "input",
}


@dataclass(frozen=True)
class TaskGraph:
    """Tasks, as a chart."""

    tasks: Sequence[Task]

    @property
    def width(self) -> float:
        """The room for all columns, and for the legend."""
        return max(LEFT + COLUMN * (1 + max(task_graph.levels(self.tasks))) + 10, WIDTH)

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
        chain = _longest_chain(tasks)
        _draw_arrows(picture, tasks, centres, chain)
        for number, (task, (x, y)) in enumerate(zip(tasks, centres, strict=True)):
            _draw_task(picture, task, x, y, number in chain)
        self._draw_legend(picture, [self.tasks[number] for number in sorted(chain)])

    def _draw_legend(self, picture: Picture, chain: Sequence[Task]) -> None:
        picture.bottom += 6
        picture.paragraph(CAPTION, "faint")
        kinds = {task.kind for task in self.tasks}
        samples = {
            meaning: picture.swatch(f"box box-{kind}")
            for kind, meaning in MEANINGS.items()
            if kind in kinds
        }
        of_chain = task_graph.work_seconds(chain)
        of_all = task_graph.work_seconds(task_graph.without_loads(self.tasks))
        label = "longest chain"
        if of_chain:
            label += f": {seconds(of_chain)} of {seconds(of_all)} in all"
        picture.legend({**samples, label: picture.swatch("box chain")})


def _longest_chain(tasks: Sequence[Task]) -> set[int]:
    """Return the numbers of the tasks of the longest chain, without inputs.

    Inputs only bring values in: their time is not counted.
    """
    timed = [replace(task, seconds=0.0) if task.kind == "load" else task for task in tasks]
    path = task_graph.longest_path(timed)
    return {number for number in path if tasks[number].kind != "load"}


def _draw_lanes(picture: Picture, tasks: Sequence[Task], rows: Sequence[int]) -> dict[str, float]:
    """Draw a lane for each device, every other one shaded; return their upper edges."""
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
    """Draw an arrow for each dependency, those of the chain above the rest."""
    arrows = [(earlier, later) for later, task in enumerate(tasks) for earlier in task.after]
    for earlier, later in sorted(arrows, key=chain.issuperset):
        (x0, y0), (x1, y1) = centres[earlier], centres[later]
        start, end = (x0 + BOX_WIDTH / 2, y0), (x1 - BOX_WIDTH / 2, y1)
        style = "c1 thick" if chain.issuperset((earlier, later)) else "faint"
        picture.arrow(start, end, style, (COLUMN - BOX_WIDTH) * 0.8)


def rows_of(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Give each task a row in its device's lane, by number.

    It is that of a task that it waits for, if that is free in its column, else the first free one.
    """
    occupied: set[tuple[str, int, int]] = set()
    rows: list[int] = []
    for task, column in zip(tasks, task_graph.levels(tasks), strict=True):
        wanted = [rows[earlier] for earlier in task.after if tasks[earlier].device == task.device]
        candidates = (*wanted, *range(len(tasks)))
        row = next(row for row in candidates if (task.device, column, row) not in occupied)
        occupied.add((task.device, column, row))
        rows.append(row)
    return tuple(rows)


def _draw_task(picture: Picture, task: Task, x: float, y: float, on_chain: bool) -> None:
    """Draw the box of a task around a point, with its name, and its time unless it is an input."""
    is_input = task.kind == "load"
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    style = f"box box-{task.kind}"
    if on_chain:
        style += " chain"
    radius = BOX_HEIGHT / 2 if is_input else 5
    picture.add("rect", x=left, y=top, width=BOX_WIDTH, height=BOX_HEIGHT, rx=radius, style=style)
    if is_input or not task.seconds:
        picture.text(x, y, task.name, text_anchor="middle")
        return
    picture.text(x, y - 8, task.name, text_anchor="middle")
    written = seconds(task.seconds)
    picture.text(x, y + 9, written, text_anchor="middle", style="faint", font_size=SMALL)
