"""A built page as a browser reads it: what it links to, what it loads, and what can be linked to in it."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["LANGUAGES", "Page", "read"]

LANGUAGES = ("ko", "vi", "zh_CN")
"""What the first page and the guides are translated into."""

LOADING = {"img": "src", "script": "src", "source": "src", "iframe": "src", "video": "src", "audio": "src"}
LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "shortcut icon"}


class Page(HTMLParser):
    """The addresses of a page: `links` a person clicks, `loaded` a browser fetches, `places` are ids."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel", "") in LOADING_LINKS:
            self.loaded.append(values["href"])
        if values.get(LOADING.get(tag, "")):
            self.loaded.append(values[LOADING[tag]])

    def leads_nowhere(self, address: str) -> bool:
        """Whether an address within the site has no file, or its file has no such place."""
        path, fragment = unquote(urlsplit(address).path), unquote(urlsplit(address).fragment)
        target = (self.path.parent / path).resolve() if path else self.path
        if not target.is_file():
            return True
        return bool(fragment) and target.suffix == ".html" and fragment not in read(target).places


@cache
def read(path: Path) -> Page:
    """Read a page."""
    return Page(path)
