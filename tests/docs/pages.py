"""A built page as a browser reads it: what it links to and loads, and what is linked to in it."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LANGUAGES = ("ko", "vi", "zh_CN")
"""What the first page and the guides are translated into."""
LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "shortcut icon"}


class Page(HTMLParser):
    """A page's links, each with its attributes, the addresses that a browser fetches, and ids."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: list[dict[str, str]] = []
        self.heads: list[dict[str, str]] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.language = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "html":
            self.language = values.get("lang", "")
        if tag == "a":
            self.anchors.append(values)
        if tag == "link":
            self.heads.append(values)
            self.loaded += [values["href"]] if values.get("rel", "") in LOADING_LINKS else []
        if values.get("src"):
            self.loaded.append(values["src"])

    @property
    def links(self) -> list[str]:
        """The addresses that a person clicks."""
        return [link["href"] for link in self.anchors if "href" in link]

    @property
    def switch(self) -> dict[str, dict[str, str]]:
        """The links of the switch of languages, by the language that each leads to."""
        return {link["hreflang"]: link for link in self.anchors if "lang" in link}

    @property
    def alternates(self) -> dict[str, str]:
        """The addresses of the editions that the page's head names, by language."""
        return {
            link["hreflang"]: link["href"] for link in self.heads if link.get("rel") == "alternate"
        }

    def leads_nowhere(self, address: str) -> bool:
        """Whether an address within the site has no file, or its file has no such place."""
        path, fragment = unquote(urlsplit(address).path), unquote(urlsplit(address).fragment)
        target = (self.path.parent / path).resolve() if path else self.path
        if not target.is_file():
            return True
        return bool(fragment) and target.suffix == ".html" and fragment not in read(target).places


read = cache(Page)
