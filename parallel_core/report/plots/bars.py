"""Charts of bars, each beside its name and its value in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from parallel_core.report.plots.scales import Axis, from_zero, write_seconds
from parallel_core.report.plots.svg import MAX_NAME_LETTERS, WIDTH, Picture, text_width

ROW, GAP = 24.0, 12.0
WIDEST_WHISKER = 1.5
"""Of the longest bar: an interval of few processes may reach much farther, and its bounds are
written beside it.
"""


class Bar(NamedTuple):
    """A bar from one value to another, with the bounds of its whisker."""

    name: str
    value: str
    start: float
    end: float
    style: str
    """The class by which the style sheet colours it."""
    bounds: tuple[float, float] | None = None
    inner: float | None = None
    """Where a darker part of it ends."""


@dataclass(frozen=True)
class BarsChart:
    """Bars under headings, which may be empty, on one scale whose marks are written by `write`."""

    groups: Mapping[str, Sequence[Bar]]
    write: Callable[[float], str] = write_seconds
    title: str = ""
    widest: float = WIDEST_WHISKER
    width: float = WIDTH

    @cached_property
    def axis(self) -> Axis:
        """The scale that holds all bars, and their whiskers up to `widest` times the longest
        bar.
        """
        bars = [bar for group in self.groups.values() for bar in group]
        ends = [end for bar in bars for end in (bar.start, bar.end)]
        longest = self.widest * max(map(abs, ends))
        bounds = [min(max(bound, -longest), longest) for bar in bars for bound in bar.bounds or ()]
        return Axis(self.title, from_zero([*ends, *bounds]), self.write)

    def draw(self, picture: Picture) -> None:
        """Draw names at the left and values at the right of all bars."""
        bars = [bar for group in self.groups.values() for bar in group]
        left = min(text_width(bar.name for bar in bars), text_width(["m" * MAX_NAME_LETTERS])) + GAP
        room = picture.width - left - text_width(bar.value for bar in bars) - GAP
        for heading, group in self.groups.items():
            if heading:
                picture.paragraph(heading, "bold")
            grid, top = picture.add("g"), picture.bottom
            for bar in group:
                self._draw_bar(picture, bar, left, room)
            picture.grid(self.axis, left, room, top, grid)
        picture.x_axis(self.axis, left, room)

    def _draw_bar(self, picture: Picture, bar: Bar, left: float, room: float) -> None:
        start, end, low, high, inner = (
            left + room * self.axis.scale.place(value)
            for value in (
                *sorted((bar.start, bar.end)),
                *(bar.bounds or (bar.end,) * 2),
                bar.inner or bar.end,
            )
        )
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
                width=max(1, inner - start),
                height=8,
                style="full compute",
            )
        if bar.bounds:
            picture.add("line", x1=low, x2=high, y1=middle, y2=middle, style="ink")
        picture.text(left + room + GAP, middle, bar.value)
        picture.bottom += ROW
