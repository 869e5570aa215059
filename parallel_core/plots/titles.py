"""What parts of an SVG say when they are pointed at: matplotlib draws no titles itself."""

from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

__all__ = ["with_titles"]

SVG = "http://www.w3.org/2000/svg"
NAMESPACES = {
    "": SVG,
    "xlink": "http://www.w3.org/1999/xlink",
    "cc": "http://creativecommons.org/ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
}


def with_titles(svg: bytes, titles: Mapping[str, Sequence[str]]) -> bytes:
    """Return a picture in which the parts of the groups with these names have titles, in the order of drawing.

    Raises ValueError if a group has another number of parts.
    """
    for prefix, address in NAMESPACES.items():
        ElementTree.register_namespace(prefix, address)
    root = ElementTree.fromstring(svg)
    for group in root.iter(f"{{{SVG}}}g"):
        for part, text in zip(_drawn(group), titles.get(group.get("id", ""), ()), strict=group.get("id") in titles):
            title = Element(f"{{{SVG}}}title")
            title.text = text
            part.insert(0, title)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _drawn(group: Element) -> Iterator[Element]:
    """Iterate over what is drawn in a group, without what it only defines."""
    for child in group:
        if child.tag in (f"{{{SVG}}}path", f"{{{SVG}}}use", f"{{{SVG}}}text"):
            yield child
        elif child.tag == f"{{{SVG}}}g":
            yield from _drawn(child)
