"""The translated pages: each says its language, leads to the others, and has fonts for its characters."""

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import LANGUAGES, Page, read
from tests.docs.translations.fonts import characters, declared, installed
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


def test_the_fonts_that_a_page_names_have_its_characters(built: Path, language: str) -> None:
    if not installed(FONTS[language]):
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
