"""The site builds without a warning and without a framework; its links lead somewhere, and it loads nothing."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest

import backends
import parallel_core
from tests.docs.pages import read
from tests.tree import tracked

pytestmark = pytest.mark.long


@pytest.fixture
def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_page_of_the_source_is_built(site: Path, root: Path) -> None:
    sources = [
        path.relative_to(root / "docs").with_suffix("")
        for suffix in (".md", ".ipynb")
        for path in tracked("docs", suffix=suffix)
        if path.parent.name != "on-mxnet"  # they are read with the lessons that they are runs of
    ]
    assert len(sources) > 10
    assert [name for name in sources if not (site / name).with_suffix(".html").is_file()] == []


def test_a_lesson_shows_both_frameworks_outputs_in_tabs_and_each_answer_under_its_guess(site: Path) -> None:
    for path in tracked("docs/lessons/on-mxnet", suffix=".ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        page = (site / "lessons" / path.name).with_suffix(".html").read_text(encoding="utf-8")
        with_outputs = [cell for cell in cells if cell.get("outputs")]
        answers = sum("<details>" in cell.source for cell in cells)
        assert answers > 3
        for mark in ('<details class="answer">', "</details>", 'class="guess"'):
            assert page.count(mark) == answers, mark
        # The code of the main experiment has tabs, too: of these frameworks, of JAX, and ours.
        for name, count in {"PyTorch": 1, "MXNet": 1, "JAX": 0, "parallel-core": 0}.items():
            assert len(re.findall(rf"<label[^>]*>\s*{name}</label>", page)) == count * len(with_outputs) + 1


def test_links_and_pictures_within_the_site_lead_somewhere(site: Path, pages: list[Path]) -> None:
    page = read(site / "reference" / "index.html")
    wrong = ("commands.html#run", "commands.html#walk", "command.html")
    assert [page.leads_nowhere(address) for address in wrong] == [False, True, True]
    broken = [
        f"{page.name}: {address}"
        for page in pages
        for address in (*read(page).links, *read(page).loaded)
        if not urlsplit(address).scheme and read(page).leads_nowhere(address)
    ]
    assert broken == []


def test_links_to_other_sites_are_encrypted(pages: list[Path]) -> None:
    outside = {address for page in pages for address in read(page).links if urlsplit(address).scheme}
    assert {address for address in outside if urlsplit(address).scheme not in ("https", "mailto")} == set()


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: list[Path]) -> None:
    assert {address for page in pages for address in read(page).loaded if urlsplit(address).netloc} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"""(?:url\(|@import)\s*['"]?(?:https?:)?//[^)'"]*""", styles) == []


def test_the_page_on_json_has_every_key_that_a_result_has(site: Path) -> None:
    result = parallel_core.run_parallel(backends.load("numpy"), size=8, rounds=1).as_json()
    page = (site / "reference" / "json.html").read_text(encoding="utf-8")
    told = set(re.findall(r'<span class="pre">([a-z0-9_]+)</span>', page))
    objects = [result, *result["cases"], result["backend"], result["environment"], result["machine_watch"]]
    objects += [result["backend"]["product"], *result["backend"]["kernels"]]
    assert {key for one in objects for key in one} - told == set()
