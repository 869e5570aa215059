"""The report as a reader meets it, in Debian's Chromium: no network, no errors, any screen, either
scheme, paper.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.parallel_core.report.chromium import Visit
from tests.parallel_core.report.pages import full_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

Open = Callable[[int, str], Visit]

# What reaches beyond the screen and is not inside a box that scrolls; the parts of a drawing are
# cut off at its edges.
TOO_WIDE = """() => [...document.querySelectorAll('body *')].filter((element) => {
    if (element.closest('.wide') && !element.matches('.wide')) return false;
    if (element.ownerSVGElement) return false;
    const { left, right, width } = element.getBoundingClientRect();
    return width > 0 && (right > innerWidth + 0.5 || left < -0.5);
}).map((element) => {
    return `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`;
})"""

# Each text's colour against the first background behind it, by the formula of the Web Content
# Accessibility Guidelines.
PALE_TEXTS = """() => {
    const brightness = (colour) => {
        const [red, green, blue] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const paper = (element) => {
        const colour = getComputedStyle(element).backgroundColor;
        const isClear = /, 0\\)$/.test(colour) && element.parentElement;
        return isClear ? paper(element.parentElement) : colour;
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const pale = new Set();
    let count = 0;
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || element.closest('script, style, svg')) continue;
        const both = [getComputedStyle(element).color, paper(element)].map(brightness).sort();
        const contrast = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
        count += 1;
        const words = texts.currentNode.data.trim().slice(0, 40);
        if (contrast < 4.5) pale.add(`${element.className} ${words} ${contrast}`);
    }
    return [count, [...pale]];
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(full_page())
    return path


@pytest.fixture(scope="module")
def visited(browser: "Browser", report: Path) -> Open:
    """Open the report with a width and a colour scheme, once for all tests that only look at it."""
    return cache(lambda width, scheme: Visit(browser, report, width, scheme))


@pytest.fixture(scope="module")
def unfolded(browser: "Browser", report: Path) -> Open:
    """Open the report with all that folds away unfolded."""

    @cache
    def visit(width: int, scheme: str) -> Visit:
        opened = Visit(browser, report, width, scheme)
        opened.page.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        return opened

    return visit


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (800, "dark"), (1600, "dark")])
def test_nothing_runs_out_of_the_page_and_all_text_stands_out(
    unfolded: Open, width: int, scheme: str
) -> None:
    visit = unfolded(width, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.evaluate(TOO_WIDE) == []
    count, pale = visit.page.evaluate(PALE_TEXTS)
    assert count > 300
    assert pale == []
    assert visit.troubles == []


def test_tables_sort_by_a_click(visited: Open) -> None:
    visit = visited(1600, "light")
    visit.page.locator("#summary summary").click()
    time = visit.page.locator("#summary th button", has_text="time")
    before = visit.column(3)
    time.click()
    ascending = visit.column(3)
    assert ascending == sorted(ascending, key=lambda text: (text == "", in_seconds(text)))
    assert ascending != before
    assert visit.page.locator("#summary th[aria-sort=ascending]").inner_text().startswith("time")
    time.click()
    assert visit.column(3)[0] == ascending[-2]
    # The cell without a time stays last.
    assert visit.column(3)[-1] == ascending[-1] == ""
    visit.page.locator("#summary th button", has_text="framework").click()
    assert visit.column(2) == sorted(visit.column(2))
    assert visit.troubles == []


def in_seconds(text: str) -> float:
    number, unit, *_ = text.split() if text else ("inf", "s")
    return float(number) * {"s": 1, "ms": 1e-3, "μs": 1e-6}[unit]


def test_charts_keep_to_the_page_and_follow_its_scheme(visited: Open) -> None:
    for scheme, ink in (("light", "rgb(28, 30, 33)"), ("dark", "rgb(230, 232, 235)")):
        visit = visited(1600, scheme)
        chart = visit.page.locator("#chart-timelines-async")
        block = chart.locator("g[role=img] rect.compute").first
        assert chart.locator("text").first.evaluate("one => getComputedStyle(one).fill") == ink
        assert block.evaluate("one => getComputedStyle(one).fill") != ink
        assert block.locator("title").text_content()
        box = block.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) > 0


def test_without_scripts_everything_can_be_read(browser: "Browser", report: Path) -> None:
    visit = Visit(browser, report, 400, scripts=False)
    for part in ("timelines-async", "curves-allreduce"):
        assert visit.page.locator(f"#chart-{part} text").first.is_visible(), part
    assert visit.page.locator("#table-differences-parallel td").first.is_visible()
    visit.page.locator("#parallel summary", has_text="Times of all cases").click()
    assert visit.page.locator("#table-times-parallel td").first.is_visible()


def test_paper_gets_everything(visited: Open) -> None:
    visit = visited(1600, "dark")
    visit.page.emulate_media(media="print")
    visit.page.set_viewport_size({"width": 690, "height": 1000})
    assert (
        visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    # A4 less the margins; what scrolls on a screen is not cut off.
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 690
    # Folded parts are printed, too.
    assert visit.page.locator("#table-times-parallel td").first.is_visible()
    assert visit.page.evaluate(PALE_TEXTS)[1] == []
    assert visit.page.pdf().startswith(b"%PDF")
    visit.page.emulate_media(media="screen")
    assert visit.troubles == []
