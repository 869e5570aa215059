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


class Drawn:
    """A picture, read as XML."""

    def __init__(self, svg: bytes | str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.width, self.height = (
            float(self.root.get(side, "nan")) for side in ("width", "height")
        )

    @property
    def texts(self) -> list[str]:
        """Every line of text, without titles."""
        lines = self.root.iter(f"{SVG}text")
        return [
            (one.text or "") if (title := one.find(f"{SVG}title")) is None else title.tail or ""
            for one in lines
        ]

    @property
    def titles(self) -> list[str]:
        """What is said when parts are pointed at."""
        return [one.text or "" for one in self.root.iter(f"{SVG}title")]

    @property
    def boxes(self) -> list[Box]:
        """All that is drawn of data as rectangles: bars and blocks, without lanes' backgrounds and
        the paper.
        """
        return [
            Box(
                float(one.get("x", 0)),
                float(one.get("x", 0)) + float(one.get("width", 0)),
                one.get("class", "").removeprefix("full "),
                one.findtext(f"{SVG}title", ""),
                float(one.get("opacity", 1)),
            )
            for one in self.root.iter(f"{SVG}rect")
            if re.match("full|box", one.get("class", ""))
        ]

    def places(self, *texts: str) -> list[float]:
        """Return the heights of texts, from above."""
        places = [float(one.get("y", "nan")) for one in self.root.iter(f"{SVG}text")]
        return [places[self.texts.index(text)] for text in texts]
