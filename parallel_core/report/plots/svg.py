"""A picture as SVG: it grows downward, piece by piece, and every text is escaped.

The colours, for light and dark, are those of the style sheet `picture.css`. A page includes it
once, and a picture's file contains it. Lengths are in pixels.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from textwrap import wrap
from typing import Protocol
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from backends.profiling.kernel_names import shortened
from parallel_core.report.plots.scales import Axis

WIDTH = 860.0
SIZE, SMALL = 13.0, 11.0
"""The sizes of letters."""
LETTER = 0.6
"""The mean width of a letter, about, as a share of its size."""
LINE, SWATCH, PAPER = 20.0, 26.0, 16.0
MAX_NAME_LETTERS = 48
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML cannot hold."""

Place = tuple[float, float]


class Chart(Protocol):
    """A chart that can be drawn into a picture."""

    @property
    def width(self) -> float:
        """The width that the chart needs."""

    def draw(self, picture: "Picture") -> None:
        """Draw the chart below the picture's bottom, and move the bottom."""


class Picture:
    """An SVG of a fixed width. The next piece begins at `bottom`, and moves it down when drawn."""

    def __init__(self, label: str, width: float = WIDTH) -> None:
        """Begin an empty picture; screen readers say the label."""
        self.width, self.bottom = width, 0.0
        attributes = {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "picture",
            "role": "group",
            "aria-label": label,
            "font-size": f"{SIZE:g}",
        }
        self._root = Element("svg", attributes)

    def add(
        self,
        tag: str,
        words: str = "",
        title: str = "",
        within: Element | None = None,
        /,
        **attributes: str | float,
    ) -> Element:
        """Add an element with a text, and a title that is shown when it is pointed at.

        The attribute `style` becomes the class, and `_` in a name becomes `-`.
        """
        element = SubElement(self._root if within is None else within, tag)
        for name, value in attributes.items():
            attribute = "class" if name == "style" else name.replace("_", "-")
            if not isinstance(value, str):
                value = f"{value:.2f}".rstrip("0").rstrip(".")
            element.set(attribute, value)
        if title:
            title_element = SubElement(element, "title")
            title_element.text = title
            title_element.tail = words
        else:
            element.text = words
        return element

    def text(
        self, x: float, y: float, words: str, title: str = "", /, **attributes: str | float
    ) -> None:
        """Write a line of text, whose middle is at the height `y`."""
        base_line = y + 0.36 * float(attributes.get("font_size", SIZE))
        self.add("text", words, title, x=x, y=base_line, **attributes)

    def name(self, y: float, words: str) -> None:
        """Write a name at the left edge; a long name loses its middle, but its title is whole."""
        self.text(0, y, shortened(words, MAX_NAME_LETTERS), words)

    def paragraph(self, words: str, style: str = "", left: float = 0.0) -> None:
        """Write a text in as many lines as it needs, with some room above."""
        self.bottom += 4
        letters = int((self.width - left) / (SIZE * LETTER))
        for line in wrap(words, letters):
            self.text(left, self.bottom + LINE / 2, line, style=style)
            self.bottom += LINE

    def legend(self, entries: Mapping[str, Callable[[float, float], object]]) -> None:
        """Draw a legend in rows: samples, each with a text at its right.

        `entries` are the functions (left edge, height) that draw the samples, by text.
        """
        left = 0.0
        for words, draw_sample in entries.items():
            width = SWATCH + 6 + text_width([words]) + 20
            if left and left + width > self.width:
                left = 0.0
                self.bottom += LINE
            draw_sample(left, self.bottom + LINE / 2)
            self.text(left + SWATCH + 6, self.bottom + LINE / 2, words)
            left += width
        self.bottom += LINE + 4

    def swatch(self, style: str, opacity: float = 1) -> Callable[[float, float], object]:
        """Return the function (left edge, height) that draws a filled sample for a legend."""
        return lambda x, y: self.add(
            "rect", x=x, y=y - 6, width=SWATCH, height=12, style=style, opacity=opacity
        )

    def arrow(self, start: Place, end: Place, style: str, bend: float = 0.0) -> None:
        """Draw a straight arrow; with a `bend` it is curved, and level at both ends."""
        (x0, y0), (x1, y1) = start, end
        if bend:
            middle = f"C{x0 + bend:.5g} {y0:.5g} {x1 - bend:.5g} {y1:.5g} "
            angle = 0.0
        else:
            middle = "L"
            angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
        path = f"M{x0:.5g} {y0:.5g}{middle}{x1:.5g} {y1:.5g}"
        self.add("path", d=path, style=f"line {style}")
        to_the_end = f"translate({x1:.5g} {y1:.5g}) rotate({angle:.4g})"
        self.add("path", d="M0 0-7-3V3z", transform=to_the_end, style=f"full {style}")

    def grid(self, axis: Axis, left: float, room: float, top: float, within: Element) -> None:
        """Draw an axis's marks as lines from `top` to the bottom, within an element that was added
        before the chart's content, and so lies behind it.
        """
        for share, _ in axis.ticks:
            x = left + share * room
            self.add("line", "", "", within, x1=x, x2=x, y1=top, y2=self.bottom, style="grid")

    def x_axis(self, axis: Axis, left: float, room: float) -> None:
        """Write the labels and the title of an axis; of labels that would touch, the first."""
        end_of_label = -math.inf
        for share, label in axis.ticks:
            half_width = text_width([label], SMALL) / 2
            x = min(left + share * room, self.width - half_width)
            if x - half_width < end_of_label + SMALL / 2:
                continue
            end_of_label = x + half_width
            y = self.bottom + LINE / 2
            self.text(x, y, label, text_anchor="middle", style="faint", font_size=SMALL)
        if axis.title:
            x = left + room / 2
            y = self.bottom + 1.4 * LINE
            self.text(x, y, axis.title, text_anchor="middle", style="faint")
            self.bottom += LINE
        self.bottom += LINE

    def whole(self) -> bytes:
        """Return the picture as a file's content, with its style sheet and a background."""
        style = self.add("style", style_sheet())
        paper = self.add("rect", x=-PAPER, y=-PAPER, width="100%", height="100%", style="paper")
        # Both are moved to the front, so that the paper lies behind everything.
        self._root[:] = [style, paper, *self._root[:-2]]
        return self.written(PAPER).encode(errors="replace")

    def written(self, margin: float = 0.0) -> str:
        """Return the picture's SVG, for a page that includes the style sheet."""
        width = f"{self.width + 2 * margin:g}"
        height = f"{round(self.bottom) + 2 * margin:g}"
        box = f"{-margin:g} {-margin:g} {width} {height}"
        self._root.attrib |= {"viewBox": box, "width": width, "height": height}
        return UNPRINTABLE.sub("�", tostring(self._root, encoding="unicode"))


def style_sheet() -> str:
    """Return the style sheet that all pictures share."""
    path = resources.files("parallel_core.report.plots").joinpath("picture.css")
    return path.read_text(encoding="utf-8")


def text_width(texts: Iterable[str], size: float = SIZE) -> float:
    """Return the width of the longest text, about."""
    most_letters = max(map(len, texts), default=0)
    return size * LETTER * most_letters


def inline(chart: Chart | None, label: str) -> Markup | None:
    """Return a chart's SVG for a page, under a label for screen readers; None without a chart."""
    if chart is None:
        return None
    picture = Picture(label, chart.width)
    chart.draw(picture)
    return Markup(picture.written())


def titled(chart: Chart, *titles: str, width: float = WIDTH) -> bytes:
    """Return a chart under its titles as a file's content; empty titles are left out.

    The picture is at least `width` wide.
    """
    title, *subtitles = filter(None, titles)
    picture = Picture(title, max(width, chart.width))
    picture.paragraph(title, "bold")
    for subtitle in subtitles:
        picture.paragraph(subtitle, "faint")
    picture.bottom += 8
    chart.draw(picture)
    return picture.whole()
