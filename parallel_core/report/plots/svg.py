"""A picture as SVG: it grows downward, piece by piece, and every text is escaped.

Colours are those of `picture.css`, for light and dark: a page includes it once, a file holds it.
Lengths are pixels.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from textwrap import wrap
from typing import Protocol, TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from parallel_core.report.plots.scales import Axis
from parallel_core.trace_analysis.lanes import shortened

WIDTH = 860.0
SIZE, SMALL = 13.0, 11.0
"""The sizes of letters."""
LETTER = 0.6
"""About the mean width of a letter, as a share of its size."""
LINE, SWATCH, PAPER = 20.0, 26.0, 16.0
MAX_NAME_LETTERS = 48
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML cannot hold."""

Place: TypeAlias = tuple[float, float]


class Chart(Protocol):
    """A chart, which can be drawn below what a picture holds already."""

    @property
    def width(self) -> float:
        """The room that it needs across."""

    def draw(self, picture: "Picture") -> None:
        """Draw it, and move the picture's bottom."""


class Picture:
    """An SVG of a width: what is drawn next begins at `bottom`, which who draws moves."""

    def __init__(self, label: str, width: float = WIDTH) -> None:
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
        """Add an element, which says its title when it is pointed at.

        The attribute `style` is its class, and `_` stands for `-`.
        """
        element = SubElement(self._root if within is None else within, tag)
        for name, value in attributes.items():
            attribute = "class" if name == "style" else name.replace("_", "-")
            element.set(attribute, value if isinstance(value, str) else _written_length(value))
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
        """Write a line whose middle is at a height."""
        base_line = y + 0.36 * float(attributes.get("font_size", SIZE))
        self.add("text", words, title, x=x, y=base_line, **attributes)

    def name(self, y: float, words: str) -> None:
        """Write a name at the left edge.

        A long one loses its middle, and its title has it whole.
        """
        self.text(0, y, shortened(words, MAX_NAME_LETTERS), words)

    def paragraph(self, words: str, style: str = "", left: float = 0.0) -> None:
        """Write text in as many lines as it takes, with some room above."""
        self.bottom += 4
        letters = int((self.width - left) / (SIZE * LETTER))
        for line in wrap(words, letters):
            self.text(left, self.bottom + LINE / 2, line, style=style)
            self.bottom += LINE

    def legend(self, entries: Mapping[str, Callable[[float, float], object]]) -> None:
        """Explain looks in rows: each text beside a sample of what it explains.

        The function of a text draws its sample at a left edge and a height.
        """
        left = 0.0
        for words, sample in entries.items():
            width = SWATCH + 6 + text_width([words]) + 20
            if left and left + width > self.width:
                left = 0.0
                self.bottom += LINE
            sample(left, self.bottom + LINE / 2)
            self.text(left + SWATCH + 6, self.bottom + LINE / 2, words)
            left += width
        self.bottom += LINE + 4

    def swatch(self, style: str, opacity: float = 1) -> Callable[[float, float], object]:
        """Return a function that draws the sample of a fill for a legend."""
        return lambda x, y: self.add(
            "rect", x=x, y=y - 6, width=SWATCH, height=12, style=style, opacity=opacity
        )

    def arrow(self, start: Place, end: Place, style: str, bend: float = 0.0) -> None:
        """Draw a straight arrow, or with a bend a curved one.

        The latter is level at both ends and runs to the right.
        """
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
        """Draw an axis's marks as lines from `top` to the bottom.

        The element `within` lies behind what is drawn.
        """
        for share, _ in axis.ticks:
            x = left + share * room
            self.add("line", "", "", within, x1=x, x2=x, y1=top, y2=self.bottom, style="grid")

    def x_axis(self, axis: Axis, left: float, room: float) -> None:
        """Write an axis's labels and title."""
        for share, label in axis.ticks:
            rightmost = self.width - text_width([label], SMALL) / 2
            x = min(left + share * room, rightmost)
            y = self.bottom + LINE / 2
            self.text(x, y, label, text_anchor="middle", style="faint", font_size=SMALL)
        if axis.title:
            x = left + room / 2
            y = self.bottom + 1.4 * LINE
            self.text(x, y, axis.title, text_anchor="middle", style="faint")
            self.bottom += LINE
        self.bottom += LINE

    def whole(self) -> bytes:
        """Return the picture as a file's content, on a separate background."""
        style = self.add("style", style_sheet())
        paper = self.add("rect", x=-PAPER, y=-PAPER, width="100%", height="100%", style="paper")
        # They stand first: the paper lies behind all.
        self._root[:] = [style, paper, *self._root[:-2]]
        return self.written(PAPER).encode(errors="replace")

    def written(self, margin: float = 0.0) -> str:
        """Return the picture's text, for a page that has the style."""
        width = f"{self.width + 2 * margin:g}"
        height = f"{round(self.bottom) + 2 * margin:g}"
        box = f"{-margin:g} {-margin:g} {width} {height}"
        self._root.attrib |= {"viewBox": box, "width": width, "height": height}
        return UNPRINTABLE.sub("�", tostring(self._root, encoding="unicode"))


def style_sheet() -> str:
    """Return the rules that all pictures share."""
    path = resources.files("parallel_core.report.plots").joinpath("picture.css")
    return path.read_text(encoding="utf-8")


def _written_length(pixels: float) -> str:
    """Write a length with two decimals at the most."""
    return f"{pixels:.2f}".rstrip("0").rstrip(".")


def text_width(texts: Iterable[str], size: float = SIZE) -> float:
    """Return about the width of the longest text."""
    return size * LETTER * max(map(len, texts), default=0)


def inline(chart: Chart | None, label: str) -> Markup | None:
    """Return a chart for a page; None if there is none."""
    if chart is None:
        return None
    picture = Picture(label, chart.width)
    chart.draw(picture)
    return Markup(picture.written())


def titled(chart: Chart, *titles: str, width: float = WIDTH) -> bytes:
    """Return a chart under titles as a file's content, `width` wide at the least.

    Empty titles are left out.
    """
    title, *subtitles = filter(None, titles)
    picture = Picture(title, max(width, chart.width))
    picture.paragraph(title, "bold")
    for subtitle in subtitles:
        picture.paragraph(subtitle, "faint")
    picture.bottom += 8
    chart.draw(picture)
    return picture.whole()
