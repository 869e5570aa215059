"""The search of each site, opened from a folder, finds what its readers would look for, and nothing else."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.parallel_core.report.chromium import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long


def search(browser: "Browser", site: Path, query: str) -> Visit:
    """Search a site, and return the page when all is found."""
    visit = Visit(browser, site / "search.html", 1280)
    visit.page.goto(f"{(site / 'search.html').as_uri()}?q={query}")
    # The heading ends in dots as long as the search goes on.
    visit.page.wait_for_function("Search.title && !Search.title.contains(Search.dots)")
    assert visit.troubles == []
    return visit


@pytest.mark.parametrize(
    ("language", "query"),
    [
        ("", "overlap_efficiency"),
        ("ko", "장치"),
        ("ko", "비동기 엔진"),
        ("ko", "waitall"),
        ("vi", "hàng đợi"),
        ("zh_CN", "设备"),
        ("zh_CN", "异步引擎"),
        ("zh_CN", "waitall"),
    ],
)
def test_it_finds_words(browser: "Browser", site: Path, language: str, query: str) -> None:
    results = search(browser, site / language, query).page.locator("#search-results li a")
    results.nth(1).wait_for(timeout=20_000)


def test_on_a_served_site_it_shows_what_it_found(browser: "Browser", site: Path) -> None:
    class Files(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q=overlap_efficiency")
        page.locator("#search-results .context", has_text="overlap_efficiency").first.wait_for(timeout=20_000)
        page.close()
        server.shutdown()


# The last one has the characters of a word, in another order.
@pytest.mark.parametrize(("language", "query"), [("ko", "고양이"), ("vi", "mèo"), ("zh_CN", "猫"), ("zh_CN", "步异")])
def test_it_finds_nothing_else(browser: "Browser", site: Path, language: str, query: str) -> None:
    assert search(browser, site / language, query).page.locator("#search-results li").count() == 0
