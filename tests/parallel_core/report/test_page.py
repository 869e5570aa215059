"""The report as a reader meets it, in Debian's Chromium: no network, no errors, tables that sort, any screen, paper."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import Cell, Comparison
from parallel_core.report.page import render
from tests.parallel_core.comparison.made_up import NASTY, TIMES, comparison, every_chart, failed
from tests.parallel_core.report.chromium import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.long


def page_of(compared: Comparison) -> str:
    return render(analyse(compared))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page_of(every_chart()))
    return path


Open = Callable[[int, str], Visit]


@pytest.fixture(scope="module")
def visited(browser: "Browser", report: Path) -> Open:
    """Open the report with a width and a colour scheme, once for all tests that only look at it: it takes seconds."""
    return cache(lambda width, scheme: Visit(browser, report, width, scheme))


def test_the_page_loads_and_answers_clicks_without_errors(browser: "Browser", report: Path) -> None:
    visit = Visit(browser, report, 1200)
    assert "torch was faster in parallel" in visit.page.locator("#answer").inner_text()
    # Two charts an experiment, and dispatch, cost model, learning curves.
    assert visit.page.locator(".js-plotly-plot").count() == 2 * 4 + 3
    panels = visit.page.locator("#chart-curves-allreduce")
    assert panels.locator(".annotation-text").all_text_contents() == list(TIMES)
    assert panels.locator(".legendtext").all_text_contents() == ["plain copy", "star", "native"]
    assert visit.page.locator("#chart-times-allreduce").count() == 0

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

    folded = visit.page.locator("details", has=visit.page.locator("summary code", has_text="allreduce"))
    assert not folded.get_attribute("open")
    folded.locator("summary").click()
    assert folded.locator(".code").count() == 3
    assert folded.locator(".code").first.is_visible()

    chart = visit.page.locator("#chart-times-parallel")
    bars = chart.locator(".bars .point").count()
    chart.locator(".legendtoggle").first.click()
    visit.page.wait_for_function(
        "count => document.querySelectorAll('#chart-times-parallel .bars .point').length < count", arg=bars
    )
    assert visit.troubles == []


def in_seconds(text: str) -> float:
    number, unit = text.split() if text else ("inf", "s")
    return float(number) * {"s": 1, "ms": 1e-3, "μs": 1e-6}[unit]


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (800, "dark"), (1600, "dark")])
def test_the_page_fits_any_screen(visited: Open, width: int, scheme: str) -> None:
    visit = visited(width, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].every(it => it.getBoundingClientRect().right <= innerWidth)"
    )
    first, second = (side.bounding_box() for side in visit.page.locator("details[open] .sides > div").all()[:2])
    assert first is not None
    assert second is not None
    assert (first["y"] == second["y"]) == (width >= 1000)
    assert visit.troubles == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (800, "dark")])
def test_text_stands_out_in_light_and_in_dark(visited: Open, width: int, scheme: str) -> None:
    visit = visited(width, scheme)
    paper = brightness(visit.page, "body", "backgroundColor")
    assert (paper > 0.5) == (scheme == "light")
    for selector, style in (
        ("#answer", "color"),
        (".soft", "color"),
        (".xtick text", "fill"),
        (".legendtext", "fill"),
        (".code .nf", "color"),
        ("td.faster", "color"),
    ):
        # 4.5 to 1 is what the Web Content Accessibility Guidelines ask of text.
        inks = (brightness(visit.page, selector, style), paper)
        assert (max(inks) + 0.05) / (min(inks) + 0.05) >= 4.5, selector


def brightness(page: "Page", selector: str, style: str) -> float:
    """Return the relative luminance of a colour on the page, from 0 to 1 (WCAG 2)."""
    colour = page.locator(selector).first.evaluate(f"element => getComputedStyle(element).{style}")
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_paper_gets_everything(visited: Open) -> None:
    visit = visited(1600, "dark")
    closed = visit.page.locator("details:not([open])").count()
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    visit.page.emulate_media(media="print")
    assert visit.page.locator("details:not([open])").count() == 0
    assert brightness(visit.page, "body", "backgroundColor") == 1
    widths = visit.page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot .main-svg')].map(svg => svg.clientWidth)"
    )
    # A4 is 210 mm wide: 794 pixels, less the margins.
    assert max(widths) <= 700
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert visit.page.locator("details:not([open])").count() == closed
    assert visit.page.pdf().startswith(b"%PDF")
    visit.page.emulate_media(media="screen")
    assert visit.troubles == []


def test_what_processes_say_is_shown_as_text(report: Path) -> None:
    page = report.read_text()
    assert NASTY not in page
    assert "&lt;script&gt;alert(" in page


def test_nothing_measured_is_a_page_too() -> None:
    page = page_of(comparison(failed(Cell("parallel", "mxnet", "async"))))
    assert "Nothing could be measured" in page
    assert 'id="chart-' not in page


def test_variants_are_a_column_where_there_are_any() -> None:
    plain = every_chart()
    assert "<th>variants</th>" not in page_of(plain)
    first = plain.cells[0]
    results = tuple(replace(one, backend={**one.backend, "variants": ["bulk-on"]}) for one in first.results)
    page = page_of(replace(plain, cells=(replace(first, results=results), *plain.cells[1:])))
    assert page.count("<th>variants</th>") == 1
    assert page.count("<td>bulk-on</td>") == 1
