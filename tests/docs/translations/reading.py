"""A built page as its reader has it: its links, and its characters, each with its language and kind of font."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "path", "source", "use", "wbr")
UNSEEN = ("script", "style", "title", "template")
CODE = ("code", "kbd", "pre", "samp")


@dataclass
class Page(HTMLParser):
    """Parse a page; then `letters` holds what is read on it, by language and by the variable that names the font."""

    letters: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    links: list[dict[str, str]] = field(default_factory=list)
    language: str = ""
    within: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "html":
            self.language = values.get("lang", "")
        if tag in ("a", "link"):
            self.links.append({"tag": tag, **values})
        if tag not in VOID:
            self.within.append((tag, values.get("lang", self.within[-1][1] if self.within else "")))

    def handle_endtag(self, tag: str) -> None:
        if tag in [name for name, _ in self.within]:
            while self.within.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        names = [name for name, _ in self.within]
        if not {*names} & {*UNSEEN} and names:
            variable = "--font-stack--monospace" if {*names} & {*CODE} else "--font-stack"
            self.letters.setdefault((self.within[-1][1], variable), set()).update(data)

    @property
    def switch(self) -> dict[str, dict[str, str]]:
        """The switch's links, by the language that each leads to."""
        return {link["hreflang"]: link for link in self.links if link["tag"] == "a" and "lang" in link}

    def alternates(self) -> Iterator[tuple[str, str]]:
        """Yield the language and the address of each other edition that the page's head names."""
        for link in self.links:
            if link["tag"] == "link" and link.get("rel") == "alternate":
                yield link["hreflang"], link["href"]


def read(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page
