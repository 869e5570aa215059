"""The report as a reader meets it, in Debian's Chromium: no network, no errors, tables that sort, any screen, paper."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parallel_core.comparison.cells import Cell, Comparison, Measured
from parallel_core.report import render
from tests.parallel_core.comparison.made_up import comparison, failed, measured, result

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
TIMES = {"mxnet async": 1.0, "mxnet sync": 2.0, "torch async": 0.9, "torch sync": 1.8}
NASTY = "<script>alert('</script>')</script> & more"


def made_up() -> Comparison:
    """Every kind of chart, on both frameworks and engines, with a framework that is missing."""
    cells = []
    for experiment in ("parallel", "data-parallel", "async", "allreduce"):
        for side, seconds in TIMES.items():
            cell = Cell(experiment, *side.split())
            cells.append(measured(cell, [seconds * drift for drift in (1, 1.01, 0.99)]))
    cells = [with_details(one) for one in cells]
    return comparison(*cells, failed(Cell("parallel", "numpy", "sync"), NASTY))


def with_details(one: Measured) -> Measured:
    if one.cell.experiment == "data-parallel":
        series = {"loss": tuple(2.3 - step / 100 for step in range(60)), "test_accuracy": (0.1, 0.5)}
        return replace(one, results=tuple(replace(found, series=series, data=NASTY) for found in one.results))
    if one.cell.experiment == "allreduce":
        curves = {
            "bytes": (4096.0, 2.0**22),
            "algbw_gb_per_s plain copy": (0.2, 20.0),
            "algbw_gb_per_s star": (0.1, 2.0),
            "algbw_gb_per_s native": (0.15, 15.0),
            "share_of_copy_bound star": (0.5, 0.1),
            "share_of_copy_bound native": (0.75, 0.75),
        }
        return replace(one, results=tuple(replace(found, series=curves) for found in one.results))
    if one.cell.experiment == "async":
        model = {
            "dispatch_fraction": 0.01,
            "t1_seconds": 1e-5,
            "measured_once_seconds": 0.1,
            "predicted_once_seconds": 0.09,
            "book_predicted_once_seconds": 0.05,
            "measured_each_seconds": 0.5,
            "predicted_each_seconds": 0.4,
        }
        cases = {"increments, waiting once": 0.1, "10 products": 0.2}
        return replace(one, results=tuple(replace(result(one.cell, cases), metrics=model) for _ in one.results))
    return one


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(made_up()))
    return path


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Visit:
    """A page that was opened, and what went wrong in it."""

    def __init__(self, browser: "Browser", path: Path, width: int, scheme: str = "light") -> None:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
        self.page: Page = context.new_page()
        self.troubles: list[str] = []
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append("dialog"), dialog.dismiss()))
        self.page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else self.troubles.append(f"request to {request.url}")
            ),
        )
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length > 0")

    def column(self, number: int) -> list[str]:
        return self.page.locator(f"#summary tbody tr td:nth-child({number})").all_inner_texts()


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
    told = page.locator(selector).first.evaluate(f"element => getComputedStyle(element).{style}")
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(part) / 255 for part in re.findall(r"\d+", told)[:3])
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
    page = render(comparison(failed(Cell("parallel", "mxnet", "async"))))
    assert "Nothing could be measured" in page
    assert 'id="chart-' not in page


def test_variants_are_a_column_where_there_are_any() -> None:
    plain = made_up()
    assert "<th>variants</th>" not in render(plain)
    first = plain.cells[0]
    results = tuple(replace(one, backend={**one.backend, "variants": ["bulk-on"]}) for one in first.results)
    page = render(replace(plain, cells=(replace(first, results=results), *plain.cells[1:])))
    assert page.count("<th>variants</th>") == 1
    assert page.count("<td>bulk-on</td>") == 1
