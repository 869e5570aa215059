"""Charts of bars, each beside its name and its value in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from parallel_core.report.plots.scales import Axis, from_zero, write_seconds
from parallel_core.report.plots.svg import MAX_NAME_LETTERS, WIDTH, Picture, text_width

ROW, GAP = 24.0, 12.0


class Bar(NamedTuple):
    """A bar from one value to another, beside its name and its value in words."""

    name: str
    value: str
    """The value in words, at the right of the bar."""
    start: float
    end: float
    style: str
    """The style-sheet class, which decides the colour."""
    bounds: tuple[float, float] | None = None
    """The ends of the whisker; None without a whisker."""
    inner: float | None = None
    """The end of the bar's darker part; None without one."""


@dataclass(frozen=True)
class BarsChart:
    """Bars on one scale."""

    bars: Sequence[Bar]
    title: str = ""
    width: float = WIDTH

    @cached_property
    def axis(self) -> Axis:
        """The axis that holds all bars and whiskers."""
        ends: list[float] = []
        for bar in self.bars:
            ends += (bar.start, bar.end, *(bar.bounds or ()))
        return Axis(self.title, from_zero(ends), write_seconds)

    def draw(self, picture: Picture) -> None:
        """Draw all bars, with names at the left and values at the right."""
        names_width = text_width(bar.name for bar in self.bars)
        left = min(names_width, text_width(["m" * MAX_NAME_LETTERS])) + GAP
        values_width = text_width(bar.value for bar in self.bars)
        room = picture.width - left - values_width - GAP
        grid, top = picture.add("g"), picture.bottom
        for bar in self.bars:
            self._draw_bar(picture, bar, left, room)
        picture.grid(self.axis, left, room, top, grid)
        picture.x_axis(self.axis, left, room)

    def _draw_bar(self, picture: Picture, bar: Bar, left: float, room: float) -> None:
        """Draw a bar, its darker part, its whisker, its name and its value."""

        def x(value: float) -> float:
            return left + room * self.axis.scale.place(value)

        start, end = sorted((x(bar.start), x(bar.end)))
        middle = picture.bottom + ROW / 2
        picture.name(middle, bar.name)
        picture.add(
            "rect",
            x=start,
            y=middle - 8,
            width=max(1, end - start),
            height=16,
            style=f"full {bar.style}",
        )
        if bar.inner is not None:
            picture.add(
                "rect",
                x=start,
                y=middle - 4,
                width=max(1, x(bar.inner) - start),
                height=8,
                style="full compute",
            )
        if bar.bounds:
            low, high = bar.bounds
            picture.add("line", x1=x(low), x2=x(high), y1=middle, y2=middle, style="ink")
        picture.text(left + room + GAP, middle, bar.value)
        picture.bottom += ROW
