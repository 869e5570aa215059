"""A task graph as a picture: a lane for each device, dependencies to the right, the longest chain
in colour.

A task's column is the length of the longest chain of tasks before it. Dependencies that follow from
the rest are not drawn.
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
        drawn = task_graph.without_implied(self.tasks)
        columns, rows = task_graph.levels(drawn), rows_of(drawn)
        # Inputs only bring values in: their time is not counted.
        untimed = [replace(task, seconds=0.0) if task.kind == "load" else task for task in drawn]
        chain = {place for place in task_graph.longest_path(untimed) if drawn[place].kind != "load"}
        tops: dict[str, float] = {}
        for number, device in enumerate(sorted({task.device for task in drawn})):
            deepest = max(
                row for task, row in zip(drawn, rows, strict=True) if task.device == device
            )
            tops[device], height = picture.bottom, ROW * (1 + deepest) + 2 * LANE_MARGIN
            if number % 2 == 0:
                picture.add(
                    "rect", y=picture.bottom, width=picture.width, height=height, style="shade"
                )
            picture.text(6, picture.bottom + height / 2, device, style="bold")
            picture.bottom += height
        places = [
            (LEFT + COLUMN * (column + 0.5), tops[task.device] + LANE_MARGIN + ROW * (row + 0.5))
            for task, column, row in zip(drawn, columns, rows, strict=True)
        ]
        arrows = [(earlier, later) for later, task in enumerate(drawn) for earlier in task.after]
        # The chain's lie above the rest.
        for ends in sorted(arrows, key=lambda ends: chain.issuperset(ends)):
            (x0, y0), (x1, y1) = (places[end] for end in ends)
            style = "c1 thick" if chain.issuperset(ends) else "faint"
            picture.arrow(
                (x0 + BOX_WIDTH / 2, y0),
                (x1 - BOX_WIDTH / 2, y1),
                style,
                (COLUMN - BOX_WIDTH) * 0.8,
            )
        for place, (task, (x, y)) in enumerate(zip(drawn, places, strict=True)):
            _draw_task(picture, task, x, y, place in chain)
        self._draw_legend(picture, [self.tasks[place] for place in sorted(chain)])

    def _draw_legend(self, picture: Picture, chain: Sequence[Task]) -> None:
        picture.bottom += 6
        picture.paragraph(CAPTION, "faint")
        kinds = {task.kind for task in self.tasks}
        looks = {
            meaning: picture.swatch(f"box box-{kind}")
            for kind, meaning in MEANINGS.items()
            if kind in kinds
        }
        long, work = (
            seconds(task_graph.work_seconds(some))
            for some in (chain, task_graph.without_loads(self.tasks))
        )
        timed = f": {long} of {work} in all" if task_graph.work_seconds(chain) else ""
        picture.legend({**looks, f"longest chain{timed}": picture.swatch("box chain")})


def rows_of(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Give each task a row in its device's lane: its predecessor's if free in its column, else the
    first free one.
    """
    taken: set[tuple[str, int, int]] = set()
    rows: list[int] = []
    for task, column in zip(tasks, task_graph.levels(tasks), strict=True):
        wanted = [rows[earlier] for earlier in task.after if tasks[earlier].device == task.device]
        row = next(
            row for row in (*wanted, *range(len(tasks))) if (task.device, column, row) not in taken
        )
        taken.add((task.device, column, row))
        rows.append(row)
    return tuple(rows)


def _draw_task(picture: Picture, task: Task, x: float, y: float, on_chain: bool) -> None:
    box = {
        "x": x - BOX_WIDTH / 2,
        "y": y - BOX_HEIGHT / 2,
        "width": BOX_WIDTH,
        "height": BOX_HEIGHT,
    }
    style = f"box box-{task.kind}{' chain' if on_chain else ''}"
    picture.add("rect", **box, rx=BOX_HEIGHT / 2 if task.kind == "load" else 5, style=style)
    timed = task.kind != "load" and task.seconds
    picture.text(x, y - 8 if timed else y, task.name, text_anchor="middle")
    if timed:
        picture.text(
            x, y + 9, seconds(task.seconds), text_anchor="middle", style="faint", font_size=SMALL
        )
