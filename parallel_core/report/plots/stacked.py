"""A chart of rows of parts: each part begins where the part before it ended."""

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
    """The style-sheet class, which decides the colour."""


class Row(NamedTuple):
    """A row of parts, from left to right."""

    name: str
    parts: Sequence[Part]
    value: str
    """The whole in words, at the right of the row."""


@dataclass(frozen=True)
class StackedChart:
    """Groups of rows on one scale, under a legend of the parts."""

    groups: Mapping[str, Sequence[Row]]
    """The groups by heading, which may be empty."""
    write: Callable[[float], str] = write_seconds
    """The function that writes the marks of the scale."""
    width: float = WIDTH

    def draw(self, picture: Picture) -> None:
        """Draw the legend and all rows, with names at the left and values at the right."""
        rows: list[Row] = []
        for group in self.groups.values():
            rows += group
        parts: list[Part] = []
        for row in rows:
            parts += row.parts
        picture.legend({part.name: picture.swatch(f"full {part.style}") for part in parts})
        ends = [*(part.start for part in parts), *(part.end for part in parts)]
        axis = Axis("", from_zero(ends), self.write)
        left = text_width(row.name for row in rows) + GAP
        values_width = text_width(row.value for row in rows)
        room = picture.width - left - values_width - GAP

        def x(value: float) -> float:
            return left + room * axis.scale.place(value)

        for heading, group in self.groups.items():
            if heading:
                picture.paragraph(heading, "bold")
            grid, top = picture.add("g"), picture.bottom
            for row in group:
                self._draw_row(picture, row, x)
                picture.text(left + room + GAP, picture.bottom - ROW / 2, row.value)
            picture.grid(axis, left, room, top, grid)
        picture.x_axis(axis, left, room)

    def _draw_row(self, picture: Picture, row: Row, x: Callable[[float], float]) -> None:
        """Draw a row's name and parts; `x` returns the position of a value."""
        middle = picture.bottom + ROW / 2
        picture.name(middle, row.name)
        for part in row.parts:
            start, end = sorted((x(part.start), x(part.end)))
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
