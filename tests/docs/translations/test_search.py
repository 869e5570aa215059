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


FOUND = {
    "": ["overlap_efficiency"],
    "ko": ["장치", "비동기 엔진", "waitall"],
    "vi": ["hàng đợi"],
    "zh_CN": ["设备", "异步引擎", "waitall"],
}
# The last one has the characters of a word, in another order.
ABSENT = {"ko": ["고양이"], "vi": ["mèo"], "zh_CN": ["猫", "步异"]}


@pytest.mark.parametrize("language", FOUND)
def test_it_finds_words_and_nothing_else(browser: "Browser", site: Path, language: str) -> None:
    address = site / language / "search.html"
    visit = Visit(browser, address, 1280)
    results = visit.page.locator("#search-results li a")
    for query in (*FOUND[language], *ABSENT.get(language, ())):
        visit.page.goto(f"{address.as_uri()}?q={query}")
        # The heading ends in dots as long as the search goes on.
        visit.page.wait_for_function("Search.title && !Search.title.contains(Search.dots)")
        if query in FOUND[language]:
            results.nth(1).wait_for(timeout=20_000)
        else:
            assert results.count() == 0, query
    assert visit.troubles == []


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
