"""The translated pages: each says its language, leads to the others, and has fonts for its characters."""

import os
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import LANGUAGES, Page, read
from tests.tree import tracked

pytestmark = pytest.mark.long

NAMES = {"en": "English", "ko": "한국어", "vi": "Tiếng Việt", "zh-CN": "简体中文"}
FONTS = {"ko": "Noto Sans CJK KR", "vi": "DejaVu Sans", "zh_CN": "Noto Sans CJK SC"}


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def built(language: str, site: Path) -> Path:
    """The site of one language, where it stands below the root."""
    return site / language


def pages(site: Path) -> Iterator[tuple[str, Page]]:
    for path in sorted(site.rglob("*.html")):
        yield str(path.relative_to(site)), read(path)


def test_the_languages_are_those_of_the_catalogues() -> None:
    from docs._extensions import translations

    assert {*translations.LANGUAGES} == {*LANGUAGES, translations.SOURCE}


def test_each_lesson_is_there_in_its_language_and_what_is_not_translated_is_not_built(
    built: Path, language: str
) -> None:
    assert {page.language for _, page in pages(built)} == {tag_of(language)}
    assert {path.name for path in built.iterdir() if path.is_dir()} & {"how-to", "reference", "explanation"} == set()
    lessons = {path.stem for path in tracked("docs/lessons", suffix=".ipynb")}
    assert lessons
    assert {path.stem for path in (built / "lessons").glob("*.html")} == {*lessons, "index"}


def test_each_page_leads_to_itself_in_each_language(built: Path, language: str) -> None:
    for name, page in pages(built):
        assert page.switch.keys() == NAMES.keys(), name
        assert [tag for tag, link in page.switch.items() if "aria-current" in link] == [tag_of(language)]
        if name != "genindex.html":
            addresses = {tag: link["href"] for tag, link in page.switch.items()}
            assert dict(page.alternates()) == addresses
            assert {Path(address).name for address in addresses.values()} == {Path(name).name}


def test_english_pages_lead_to_the_same_page_or_to_the_first_one(site: Path) -> None:
    guide = read(site / "lessons" / "automatic-parallelism.html")
    assert guide.switch["ko"]["href"] == "../ko/lessons/automatic-parallelism.html"
    reference = read(site / "reference" / "index.html")
    assert reference.switch["ko"]["href"] == "../ko/index.html"
    assert "aria-current" in reference.switch["en"]
    assert [*reference.alternates()] == []


def test_what_is_not_translated_is_linked_to_in_english(built: Path) -> None:
    page = read(built / "lessons" / "asynchronous-computation.html")
    # The second one stands in the navigation.
    assert {"../../exercises/barriers.html", "../../reference/index.html"} <= {*page.links}
    assert "../reference/index.html" in read(built / "index.html").links


GENERIC = ("sans-serif", "monospace")
"""What fontconfig takes a font for, of those that this machine has."""


def declared(styles: str, language: str, variable: str) -> list[str]:
    """Return the families that a variable of a page's style names for a language, as its own rule or else for all."""
    own = re.findall(rf"html:lang\({language}\)[^{{]*\{{[^}}]*?{variable}:([^;]*);", styles)
    stacks = own or re.findall(rf"{variable}:([^;]*);", styles)
    if not stacks:
        raise ValueError(f"no style sheet declares {variable}")
    return [family.strip().strip("\"'") for family in stacks[0].split(",")]


@cache
def characters(family: str) -> frozenset[int]:
    """Return the characters of an installed family; a generic one is what fontconfig takes for it in no language."""
    if family in GENERIC:
        family = ask("fc-match", "--format=%{family[0]}", family)
    ranges = ask("fc-list", "--format=%{charset}\n", f":family={family}").split()
    return frozenset(code for part in ranges for code in codes(part))


def codes(part: str) -> range:
    """Read one range of a character set as fontconfig prints it: a hexadecimal number, or two with a hyphen."""
    first, _, last = part.partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_fonts_that_a_page_names_have_its_characters(built: Path, language: str) -> None:
    if not ask("fc-list", f":family={FONTS[language]}"):
        assert not os.environ.get("CI"), f"{FONTS[language]} is not installed"
        pytest.skip(f"{FONTS[language]} is not installed: apt-get install fonts-noto-cjk fonts-dejavu-core")
    styles = "\n".join((built / "_static" / name).read_text() for name in ("languages.css", "styles/furo.css"))
    without = {}
    for name, page in pages(built):
        for (tag, variable), letters in page.letters.items():
            families = declared(styles, tag, variable)
            known = frozenset[int]().union(*(characters(family) for family in families))
            if missing := {letter for letter in letters if is_drawn(letter) and ord(letter) not in known}:
                without[name, tag, variable] = missing
    assert without == {}


def is_drawn(letter: str) -> bool:
    return unicodedata.category(letter)[0] not in "CZ"


def tag_of(language: str) -> str:
    """Return how HTML names a language."""
    return language.replace("_", "-")
