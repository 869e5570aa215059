"""A built page as a browser reads it: what it links to and loads, and what is linked to in it."""

from functools import cache, cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LANGUAGES = ("ko", "vi", "zh_CN")
"""What the first page and the guides are translated into."""
LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "shortcut icon"}
Attributes = dict[str, str]


class Page(HTMLParser):
    """A page's tags with their attributes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.tags: list[tuple[str, Attributes]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def tags_with(self, tag: str, attribute: str) -> list[Attributes]:
        """Return the attributes of all tags of a name that have a certain attribute."""
        return [values for name, values in self.tags if name == tag and attribute in values]

    @property
    def language(self) -> str:
        (html,) = self.tags_with("html", "lang")
        return html["lang"]

    @property
    def links(self) -> list[str]:
        """The addresses that a person clicks."""
        return [link["href"] for link in self.tags_with("a", "href")]

    @property
    def loaded(self) -> list[str]:
        """The addresses that a browser fetches."""
        sources = [values["src"] for _, values in self.tags if values.get("src")]
        heads = self.tags_with("link", "rel")
        return sources + [link["href"] for link in heads if link["rel"] in LOADING_LINKS]

    @property
    def switch(self) -> dict[str, Attributes]:
        """The links of the switch of languages, by the language that each leads to."""
        return {link["hreflang"]: link for link in self.tags_with("a", "lang")}

    @property
    def alternates(self) -> dict[str, str]:
        """The addresses of the editions that the page's head names, by language."""
        heads = self.tags_with("link", "hreflang")
        return {link["hreflang"]: link["href"] for link in heads if link["rel"] == "alternate"}

    @cached_property
    def places(self) -> set[str]:
        """What an address within the page may lead to."""
        return {
            values[name] for _, values in self.tags for name in ("id", "name") if name in values
        }

    def leads_nowhere(self, address: str) -> bool:
        """Whether an address within the site has no file, or its file has no such place."""
        path, fragment = unquote(urlsplit(address).path), unquote(urlsplit(address).fragment)
        target = (self.path.parent / path).resolve() if path else self.path
        if not target.is_file():
            return True
        return bool(fragment) and target.suffix == ".html" and fragment not in read(target).places


read = cache(Page)
