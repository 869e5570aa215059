"""The translated pages: each says its language, leads to the others, and has fonts for its characters."""

import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.translations.catalogues import LANGUAGES, ROOT
from tests.docs.translations.fonts import characters, declared, installed
from tests.docs.translations.reading import Page, read

pytestmark = pytest.mark.long

NAMES = {"en": "English", "ko": "한국어", "vi": "Tiếng Việt", "zh-CN": "简体中文"}
FONTS = {"ko": "Noto Sans CJK KR", "vi": "DejaVu Sans", "zh_CN": "Noto Sans CJK SC"}


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def built(language: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of one language, where it stands below the root."""
    site = tmp_path_factory.mktemp("site") / language
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-D", f"language={language}"]
    done = subprocess.run([*command, "docs", site], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return site


def pages(site: Path) -> Iterator[tuple[str, Page]]:
    for path in sorted(site.rglob("*.html")):
        yield str(path.relative_to(site)), read(path.read_text())


def exists(site: Path, page: str, address: str) -> bool:
    """Return whether a link leads to a page of this site, or to one that the sites of other languages have."""
    target = Path(os.path.normpath(site / Path(page).parent / unquote(urlsplit(address).path)))
    if target.is_relative_to(site):
        return target.exists()
    name = target.relative_to(site.parent)
    if name.parts[0] in LANGUAGES:
        return (site / Path(*name.parts[1:])).exists()
    if name.stem in ("genindex", "search"):
        return True
    return any((ROOT / "docs" / name).with_suffix(suffix).exists() for suffix in (".md", ".ipynb"))


def test_the_languages_are_those_of_the_catalogues() -> None:
    from docs._extensions import translations

    assert {*translations.LANGUAGES} == {*LANGUAGES, translations.SOURCE}


def test_each_page_says_its_language(built: Path, language: str) -> None:
    assert {page.language for _, page in pages(built)} == {language.replace("_", "-")}


def test_each_guide_is_there_on_each_framework(built: Path) -> None:
    guides = {path.name for path in (ROOT / "docs" / "tutorials").glob("*.ipynb")}
    assert guides
    for folder in ("tutorials", "tutorials/on-mxnet"):
        assert {path.with_suffix(".ipynb").name for path in (built / folder).glob("*.html")} >= guides


def test_what_is_not_translated_is_not_built(built: Path) -> None:
    assert {path.name for path in built.iterdir() if path.is_dir()} & {"how-to", "reference", "explanation"} == set()


def test_each_page_leads_to_each_language(built: Path, language: str) -> None:
    for name, page in pages(built):
        switch = {link["hreflang"]: link for link in page.links if link["tag"] == "a" and link.get("lang") in NAMES}
        assert switch.keys() == NAMES.keys(), name
        assert [tag for tag, link in switch.items() if "aria-current" in link] == [language.replace("_", "-")]
        if name != "genindex.html":
            assert dict(page.alternates()) == {tag: link["href"] for tag, link in switch.items()}
            assert {Path(link["href"]).name for link in switch.values()} == {Path(name).name}
            assert all(exists(built, name, link["href"]) for link in switch.values())


def test_no_link_leads_nowhere(built: Path) -> None:
    dead = [
        (name, link["href"])
        for name, page in pages(built)
        for link in page.links
        if not urlsplit(link["href"]).scheme and urlsplit(link["href"]).path and not exists(built, name, link["href"])
    ]
    assert dead == []


def test_the_fonts_that_a_page_names_have_its_characters(built: Path, language: str) -> None:
    if not installed(FONTS[language]):
        assert not os.environ.get("CI"), f"{FONTS[language]} is not installed"
        pytest.skip(f"{FONTS[language]} is not installed: apt-get install fonts-noto-cjk fonts-dejavu-core")
    styles = "\n".join((built / "_static" / name).read_text() for name in ("languages.css", "styles/furo.css"))
    without = {}
    for name, page in pages(built):
        for (tag, variable), letters in page.letters.items():
            families = declared(styles, tag, variable)
            known = frozenset[int]().union(*(characters(family, tag) for family in families))
            if missing := {letter for letter in letters if is_drawn(letter) and ord(letter) not in known}:
                without[name, tag, variable] = missing
    assert without == {}


def is_drawn(letter: str) -> bool:
    return unicodedata.category(letter)[0] not in "CZ"
