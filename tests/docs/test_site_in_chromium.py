"""The site as a reader meets it in Debian's Chromium: on a telephone and on a desk, without a
network; its search.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.parallel_core.report.chromium import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

# What reaches beyond the screen, and is in no box that scrolls or is cut off.
TOO_WIDE = """() => {
    const scrolls = (element) => element !== null && element.tagName !== 'BODY' &&
        (getComputedStyle(element).overflowX !== 'visible' || scrolls(element.parentElement));
    return [...document.querySelectorAll('article *')].filter((element) => {
        const { right, width } = element.getBoundingClientRect();
        return width > 1 && right > innerWidth + 0.5 && !scrolls(element);
    }).map((element) => {
        return `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`;
    });
}"""


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_no_page_scrolls_sideways(browser: "Browser", site: Path, width: int, scheme: str) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    # One window for all, for to open one takes longer than to look.
    visit = Visit(browser, pages[0], width, scheme)
    for path in pages:
        visit.page.goto(path.as_uri())
        visit.page.evaluate(
            "for (const fold of document.querySelectorAll('article details')) fold.open = true"
        )
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        assert visit.page.evaluate(TOO_WIDE) == [], path.name
        assert visit.troubles == [], path.name


def test_a_lesson_shows_its_answer_on_each_framework_when_asked_without_scripts(
    browser: "Browser", site: Path
) -> None:
    page = Visit(browser, site / "lessons" / "automatic-parallelism.html", 400, scripts=False).page
    answer = page.locator("details.answer").first
    on_torch, on_mxnet = answer.get_by_text("on torch"), answer.get_by_text("on mxnet")
    assert not on_torch.is_visible()
    answer.locator("summary").click()
    assert on_torch.is_visible()
    answer.locator("label", has_text="MXNet").click()
    assert (on_torch.is_visible(), on_mxnet.is_visible()) == (False, True)


FOUND = {
    "": ["overlap_efficiency"],
    "ko": ["장치", "논리 장치", "waitall"],
    "vi": ["hàng đợi"],
    "zh_CN": ["设备", "逻辑设备", "waitall"],
}
# The last one has the characters of a word, in another order.
ABSENT = {"ko": ["고양이"], "vi": ["mèo"], "zh_CN": ["猫", "步异"]}


@pytest.mark.parametrize("language", FOUND)
def test_the_search_of_each_site_finds_words_and_nothing_else(
    browser: "Browser", site: Path, language: str
) -> None:
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
