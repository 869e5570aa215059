"""The catalogues of the pages and of the theme, and the glossary, as the tests read them."""

import tomllib
from functools import cache
from typing import NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po

from tests.tree import ROOT

LOCALES = ROOT / "docs" / "locales"
DOMAINS = ("guides", "sphinx")


class Entry(NamedTuple):
    """What one message of the pages is in one language."""

    message: str
    translation: str


class Term(NamedTuple):
    """A term: how English writes it, and its words in a language, any of which may stand for it."""

    english: tuple[str, ...]
    words: tuple[str, ...]


@cache
def catalogue(language: str, domain: str) -> Catalog:
    with (LOCALES / language / "LC_MESSAGES" / f"{domain}.po").open("rb") as file:
        return read_po(file, domain=domain, abort_invalid=True)


def entries(language: str) -> list[Entry]:
    """Return all entries of a language but the headers."""
    return [
        Entry(str(message.id), str(message.string))
        for domain in DOMAINS
        for message in catalogue(language, domain)
        if message.id
    ]


def glossary(language: str) -> list[Term]:
    read = tomllib.loads((LOCALES / "glossary.toml").read_text())
    return [Term(tuple(term["english"]), tuple(term[language])) for term in read["term"]]
