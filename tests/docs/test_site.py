"""The site builds without a warning and without a framework; links lead somewhere, and what is
loaded is its own.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest

import backends
import parallel_core
from tests.docs.pages import LANGUAGES, Page, read
from tests.tree import tracked

pytestmark = pytest.mark.long


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


def test_a_lesson_shows_both_frameworks_outputs_in_tabs_and_each_answer_in_its_fold(
    site: Path,
) -> None:
    for path in tracked("docs/lessons/on-mxnet", suffix=".ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        page = (site / "lessons" / path.name).with_suffix(".html").read_text(encoding="utf-8")
        answers = sum("<details>" in cell.source for cell in cells)
        assert page.count('<details class="answer">') == answers > 3
        # The code of the main experiment has tabs, too.
        tabs = 1 + sum(bool(cell.get("outputs")) for cell in cells)
        for name in ("PyTorch", "MXNet"):
            assert len(re.findall(rf"<label[^>]*>\s*{name}</label>", page)) == tabs


def test_links_and_pictures_within_the_site_lead_somewhere(site: Path) -> None:
    page = read(site / "reference" / "index.html")
    wrong = ("commands.html#run", "commands.html#walk", "command.html")
    assert [page.leads_nowhere(address) for address in wrong] == [False, True, True]
    broken = [
        f"{name}: {address}"
        for name, page in pages(site)
        for address in (*page.links, *page.loaded)
        if not urlsplit(address).scheme and page.leads_nowhere(address)
    ]
    assert broken == []


def test_links_to_other_sites_are_encrypted_and_no_page_loads_anything_from_there(
    site: Path,
) -> None:
    for name, page in pages(site):
        assert {urlsplit(address).scheme for address in page.links} <= {"", "https", "mailto"}, name
        assert [address for address in page.loaded if urlsplit(address).netloc] == [], name
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"""(?:url\(|@import)\s*['"]?(?:https?:)?//[^)'"]*""", styles) == []


def test_the_page_on_json_has_every_key_that_a_result_has(site: Path) -> None:
    result = parallel_core.run_parallel(backends.load("numpy"), size=8, rounds=1).as_json()
    page = (site / "reference" / "json.html").read_text(encoding="utf-8")
    told = set(re.findall(r'<span class="pre">([a-z0-9_]+)</span>', page))
    backend = result["backend"]
    objects = [result, *result["cases"], result["environment"], result["machine_watch"]]
    objects += [backend, backend["product"], *backend["kernels"]]
    for described in objects:
        assert described.keys() <= told


def test_the_languages_are_those_of_the_catalogues() -> None:
    from docs._extensions import translations

    assert {*translations.LANGUAGES} == {*LANGUAGES, translations.SOURCE}


def test_each_lesson_is_there_in_its_language_and_what_is_not_translated_is_not_built(
    built: Path, language: str
) -> None:
    assert {page.language for _, page in pages(built)} == {tag_of(language)}
    assert not (built / "reference").exists()
    lessons = {path.stem for path in tracked("docs/lessons", suffix=".ipynb")}
    assert {path.stem for path in (built / "lessons").glob("*.html")} == {*lessons, "index"}


def test_each_page_leads_to_itself_in_each_language(built: Path, language: str) -> None:
    for name, page in pages(built):
        assert page.switch.keys() == {"en", *map(tag_of, LANGUAGES)}, name
        current = [tag for tag, link in page.switch.items() if "aria-current" in link]
        assert current == [tag_of(language)]
        if name != "genindex.html":
            assert page.alternates == {tag: link["href"] for tag, link in page.switch.items()}
            assert {Path(address).name for address in page.alternates.values()} == {Path(name).name}


def test_english_pages_lead_to_the_same_page_or_to_the_first_one(site: Path) -> None:
    guide = read(site / "lessons" / "automatic-parallelism.html")
    assert guide.switch["ko"]["href"] == "../ko/lessons/automatic-parallelism.html"
    reference = read(site / "reference" / "index.html")
    assert reference.switch["ko"]["href"] == "../ko/index.html"
    assert "aria-current" in reference.switch["en"]
    assert reference.alternates == {}


def tag_of(language: str) -> str:
    """Return how HTML names a language."""
    return language.replace("_", "-")
