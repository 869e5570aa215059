"""What a picture says and shows, read from its SVG."""

import re
from typing import NamedTuple
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


class Box(NamedTuple):
    """A rectangle: where it begins and ends across, its class, and what it says when it is pointed
    at.
    """

    start: float
    end: float
    style: str
    title: str
    opacity: float

    @property
    def length(self) -> float:
        """How far it reaches across."""
        return self.end - self.start


def text_of(element: ElementTree.Element) -> str:
    """Return the text of an element without its title, behind which the text stands."""
    title = element.find(f"{SVG}title")
    text = element.text if title is None else title.tail
    return text or ""


class Drawn:
    """A picture, read as XML."""

    def __init__(self, svg: bytes | str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.width = float(self.root.get("width", "nan"))
        self.height = float(self.root.get("height", "nan"))

    def all_of(self, tag: str) -> list[ElementTree.Element]:
        """Return the elements with a tag, such as `path`, in their order."""
        return list(self.root.iter(f"{SVG}{tag}"))

    @property
    def texts(self) -> list[str]:
        """Every line of text, without titles."""
        return [text_of(element) for element in self.all_of("text")]

    @property
    def titles(self) -> list[str]:
        """What is said when parts are pointed at."""
        return [title.text or "" for title in self.all_of("title")]

    @property
    def boxes(self) -> list[Box]:
        """All that is drawn of data as rectangles: bars and blocks, without lanes' backgrounds and
        the paper.
        """
        boxes = []
        for rectangle in self.all_of("rect"):
            style = rectangle.get("class", "")
            if re.match("full|box", style):
                start = float(rectangle.get("x", 0))
                end = start + float(rectangle.get("width", 0))
                title = rectangle.findtext(f"{SVG}title", "")
                opacity = float(rectangle.get("opacity", 1))
                boxes.append(Box(start, end, style.removeprefix("full "), title, opacity))
        return boxes

    def heights(self, *texts: str) -> list[float]:
        """Return the heights of texts, from above."""
        heights = [float(element.get("y", "nan")) for element in self.all_of("text")]
        return [heights[self.texts.index(text)] for text in texts]
