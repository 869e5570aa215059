"""Charts of bars, each beside its name and its value in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from parallel_core.report.plots.scales import Axis, from_zero, write_seconds
from parallel_core.report.plots.svg import MAX_NAME_LETTERS, WIDTH, Picture, text_width

ROW, GAP = 24.0, 12.0
WIDEST_WHISKER = 1.5
"""The longest whisker, in lengths of the longest bar: intervals of few processes may be wider, and
their bounds are written beside them.
"""


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
    """Groups of bars on one scale."""

    groups: Mapping[str, Sequence[Bar]]
    """The groups by heading, which may be empty."""
    write: Callable[[float], str] = write_seconds
    """The function that writes the marks of the scale."""
    title: str = ""
    widest: float = WIDEST_WHISKER
    """The longest whisker, in lengths of the longest bar."""
    width: float = WIDTH

    @property
    def bars(self) -> list[Bar]:
        """The bars of all groups."""
        bars: list[Bar] = []
        for group in self.groups.values():
            bars += group
        return bars

    @cached_property
    def axis(self) -> Axis:
        """The axis that holds all bars, and whiskers up to `widest` times the longest bar."""
        bar_ends: list[float] = []
        for bar in self.bars:
            bar_ends += (bar.start, bar.end)
        limit = self.widest * max(map(abs, bar_ends))
        whisker_ends: list[float] = []
        for bar in self.bars:
            if bar.bounds:
                low, high = bar.bounds
                whisker_ends += (max(low, -limit), min(high, limit))
        return Axis(self.title, from_zero([*bar_ends, *whisker_ends]), self.write)

    def draw(self, picture: Picture) -> None:
        """Draw all bars, with names at the left and values at the right."""
        names_width = text_width(bar.name for bar in self.bars)
        left = min(names_width, text_width(["m" * MAX_NAME_LETTERS])) + GAP
        values_width = text_width(bar.value for bar in self.bars)
        room = picture.width - left - values_width - GAP
        for heading, group in self.groups.items():
            if heading:
                picture.paragraph(heading, "bold")
            grid, top = picture.add("g"), picture.bottom
            for bar in group:
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
