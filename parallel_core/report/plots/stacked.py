"""A chart of rows, whose parts each begin where the one before ended, under a legend of parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parallel_core.report.plots.bars import GAP, ROW
from parallel_core.report.plots.scales import Axis, from_zero, write_seconds
from parallel_core.report.plots.svg import WIDTH, Picture, text_width

HALF_HEIGHT = 8.0


class Part(NamedTuple):
    """A part of a row, from one value to another."""

    name: str
    start: float
    end: float
    style: str
    """The class by which the style sheet colours it."""


class Row(NamedTuple):
    """A name, its parts from left to right, and the whole in words."""

    name: str
    parts: Sequence[Part]
    value: str


@dataclass(frozen=True)
class StackedChart:
    """Rows under headings, which may be empty, on one scale whose marks are written by `write`."""

    groups: Mapping[str, Sequence[Row]]
    write: Callable[[float], str] = write_seconds
    width: float = WIDTH

    def draw(self, picture: Picture) -> None:
        """Draw the legend, then names at the left and values at the right of all rows."""
        rows = [row for group in self.groups.values() for row in group]
        parts = [part for row in rows for part in row.parts]
        picture.legend({part.name: picture.swatch(f"full {part.style}") for part in parts})
        ends = [end for part in parts for end in (part.start, part.end)]
        axis = Axis("", from_zero(ends), self.write)
        left = text_width(row.name for row in rows) + GAP
        room = picture.width - left - text_width(row.value for row in rows) - GAP
        for heading, group in self.groups.items():
            if heading:
                picture.paragraph(heading, "bold")
            grid, top = picture.add("g"), picture.bottom
            for row in group:
                self._draw_row(picture, row, lambda value: left + room * axis.scale.place(value))
                picture.text(left + room + GAP, picture.bottom - ROW / 2, row.value)
            picture.grid(axis, left, room, top, grid)
        picture.x_axis(axis, left, room)

    def _draw_row(self, picture: Picture, row: Row, place: Callable[[float], float]) -> None:
        middle = picture.bottom + ROW / 2
        picture.name(middle, row.name)
        for part in row.parts:
            start, end = sorted((place(part.start), place(part.end)))
            picture.add(
                "rect",
                "",
                f"{row.name}, {part.name}: {self.write(part.end - part.start)}",
                x=start,
                y=middle - HALF_HEIGHT,
                width=max(1, end - start),
                height=2 * HALF_HEIGHT,
                style=f"full {part.style}",
            )
        picture.bottom += ROW
