"""The report as a reader meets it, in Debian's Chromium: no network, no errors, any screen, either scheme, paper."""

from collections.abc import Callable, Iterator
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

# What reaches beyond the screen and is not inside a box that scrolls; the parts of a drawing are cut off at its edges.
TOO_WIDE = """() => [...document.querySelectorAll('body *')].filter((element) => {
    if (element.closest('.wide, .code') && !element.matches('.wide, .code')) return false;
    if (element.ownerSVGElement) return false;
    const { left, right, width } = element.getBoundingClientRect();
    return width > 0 && (right > innerWidth + 0.5 || left < -0.5);
}).map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`)"""

# Each text's colour against the first background behind it, by the formula of the Web Content Accessibility Guidelines.
PALE_TEXTS = """() => {
    const brightness = (colour) => {
        const [red, green, blue] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const paper = (element) => {
        const colour = getComputedStyle(element).backgroundColor;
        return /, 0\\)$/.test(colour) && element.parentElement ? paper(element.parentElement) : colour;
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
        if (contrast < 4.5) pale.add(`${element.className} ${texts.currentNode.data.trim().slice(0, 40)} ${contrast}`);
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


@pytest.fixture
def unfolded(visited: Open) -> Iterator[Open]:
    """Open the report with all that folds away unfolded."""
    opened: list[Visit] = []

    def open_all(width: int, scheme: str) -> Visit:
        opened.append(visited(width, scheme))
        opened[-1].page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        return opened[-1]

    yield open_all
    for visit in opened:
        visit.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = false; })")


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (400, "light"), (800, "dark"), (1600, "dark")])
def test_nothing_runs_out_of_the_page(unfolded: Open, width: int, scheme: str) -> None:
    visit = unfolded(width, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.evaluate(TOO_WIDE) == []
    first, second = (side.bounding_box() for side in visit.page.locator("details[open] .sides > div").all()[:2])
    assert first is not None
    assert second is not None
    assert (first["y"] == second["y"]) == (width >= 1000)
    assert visit.troubles == []


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (800, "dark")])
def test_all_text_stands_out_in_light_and_in_dark(unfolded: Open, width: int, scheme: str) -> None:
    count, pale = unfolded(width, scheme).page.evaluate(PALE_TEXTS)
    assert count > 500
    assert pale == []


def test_tables_sort_by_a_click(visited: Open) -> None:
    visit = visited(1200, "light")
    visit.page.locator("#summary summary").click()
    time = visit.page.locator("#summary th button", has_text="time")
    before = visit.column(4)
    time.click()
    ascending = visit.column(4)
    assert ascending == sorted(ascending, key=lambda text: (text == "", in_seconds(text)))
    assert ascending != before
    assert visit.page.locator("#summary th[aria-sort=ascending]").inner_text().startswith("time")
    time.click()
    assert visit.column(4)[0] == ascending[-2]
    # The cell without a time stays last.
    assert visit.column(4)[-1] == ascending[-1] == ""
    visit.page.locator("#summary th button", has_text="backend").click()
    assert visit.column(2) == sorted(visit.column(2))
    assert visit.troubles == []


def in_seconds(text: str) -> float:
    number, unit, *_ = text.split() if text else ("inf", "s")
    return float(number) * {"s": 1, "ms": 1e-3, "μs": 1e-6}[unit]


def test_a_drag_zooms_all_lanes_and_a_double_click_returns(browser: "Browser", report: Path) -> None:
    visit = Visit(browser, report, 1200, "dark")
    chart = visit.page.locator("#chart-timelines-async")
    lane = chart.locator(".lane > svg").first
    lane.scroll_into_view_if_needed()
    box = lane.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    visit.page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 0.4 * box["width"], middle, steps=4)
    visit.page.mouse.up()
    views = "[...document.querySelectorAll('#chart-timelines-async .view')]"
    places = "view => [view.getAttribute('x'), view.getAttribute('width')].map(parseFloat).map(Math.round).join()"
    assert set(visit.page.evaluate(f"{views}.map({places})")) == {"-100,500"}
    labels = chart.locator(".axis span").all_text_contents()
    assert labels == [f"{at} ms" for at in (120, 140, 160, 180, 200, 220)]
    # Other charts stay as they are.
    assert visit.page.locator("#chart-timelines-parallel .axis span").first.text_content() == "0 ms"
    lane.dblclick()
    assert set(visit.page.evaluate(f"{views}.map({places})")) == {"0,100"}
    assert visit.troubles == []


def test_the_keyboard_zooms_and_reads_blocks(browser: "Browser", report: Path) -> None:
    visit = Visit(browser, report, 1200)
    chart = visit.page.locator("#chart-timelines-async")
    chart.get_by_role("button", name="Zoom in").focus()
    visit.page.keyboard.press("Enter")
    assert chart.locator(".axis span").first.text_content() == "150 ms"
    chart.get_by_role("button", name="The whole time").press("Enter")
    assert chart.locator(".axis span").first.text_content() == "0 ms"
    chart.get_by_role("img", name="cpu:1 compute").first.focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("ArrowRight")
    said = visit.page.get_by_role("status").inner_text().splitlines()
    assert said[:2] == ["matmul (_npi_matmul)", "6.00 ms from 6.03 ms"]
    visit.page.keyboard.press("Escape")
    assert visit.page.locator(".tip").is_hidden()
    assert visit.troubles == []


def test_what_is_pointed_at_says_what_it_is(visited: Open) -> None:
    visit = visited(1200, "light")
    mark = visit.page.locator("#chart-curves-allreduce .frame use").first
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    assert visit.page.get_by_role("status").inner_text() == "star: 0.10 (0.10–0.10) at 4 KiB"
    visit.page.locator("h1").hover()
    assert visit.page.locator(".tip").is_hidden()


def test_without_scripts_everything_can_be_read(browser: "Browser", report: Path) -> None:
    visit = Visit(browser, report, 400, scripts=False)
    parts = ("timelines-async .lane", "differences-parallel .value", "figure-parallel .value")
    for selector in ("#answer", *(f"#chart-{part}" for part in parts)):
        assert visit.page.locator(selector).first.is_visible(), selector
    block = visit.page.locator("#chart-timelines-async .view rect").first.bounding_box()
    assert block is not None
    assert min(block["width"], block["height"]) > 0
    visit.page.locator("#parallel summary", has_text="Times of all cases").click()
    assert visit.page.locator("#chart-times-parallel .value").first.is_visible()


def test_paper_gets_everything(visited: Open) -> None:
    visit = visited(1200, "dark")
    closed = visit.page.locator("details:not([open])").count()
    visit.page.emulate_media(media="print")
    visit.page.set_viewport_size({"width": 690, "height": 1000})
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # A4 less the margins; what scrolls on a screen is not cut off.
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 690
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert visit.page.locator("details:not([open])").count() == 0
    assert visit.page.evaluate(PALE_TEXTS)[1] == []
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert visit.page.locator("details:not([open])").count() == closed
    assert visit.page.pdf().startswith(b"%PDF")
    visit.page.emulate_media(media="screen")
    assert visit.troubles == []
