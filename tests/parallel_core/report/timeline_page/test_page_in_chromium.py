"""The page of timelines as a reader meets it: what is packed is unpacked, drawn, moved, found and said."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backends.profiling import Span, Timeline
from parallel_core.trace_analysis.trace_files import read_timeline
from tests.parallel_core.report.chromium import Visit
from tests.parallel_core.report.plots.frameworks import mxnet_async
from tests.parallel_core.report.test_page_in_chromium import PALE_TEXTS, TOO_WIDE
from tests.parallel_core.report.timeline_page.made_up import NASTY, busy, page, plain
from tests.parallel_core.trace_analysis.test_ranks import GPUS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

Open = Callable[[str, int, str], Visit]

UNPACKED = """async () => {
    const { lanes } = await unpack(document.querySelector('.packed').textContent);
    const known = (one) => (isNaN(one) ? null : one);
    return lanes.filter(({ queue }) => queue !== 'critical path').map(({ device, queue, starts, ends, waited }) =>
        [device, queue, starts.length, [...starts], [...ends], [...waited].map(known)]);
}"""
VIEW = "['from', 'to'].map((name) => Number(document.getElementById('timelines').dataset[name]))"
# The share of a canvas's pixels of one colour, within a part of its height.
SHARE_OF_COLOUR = """([wanted, top, bottom]) => {
    const canvas = document.querySelector('.lanes > canvas');
    const ratio = devicePixelRatio;
    // A copy, for a canvas that is read often is drawn more slowly.
    const copy = new OffscreenCanvas(canvas.width, (bottom - top) * ratio);
    const context = copy.getContext('2d', { willReadFrequently: true });
    context.drawImage(canvas, 0, -top * ratio);
    const { data } = context.getImageData(0, 0, copy.width, copy.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4) {
        if (wanted.every((part, place) => Math.abs(data[at + place] - part) < 3)) found += 1;
    }
    return found / (data.length / 4);
}"""
ROW = 38
COMPUTE, FOUND, PATH = (0, 0x72, 0xB2), (0xFF, 0xD4, 0), (0xA3, 0x12, 0x2B)


def exact() -> Timeline:
    """Make times that need all of JavaScript's 53 bits, and names that are not text in HTML."""
    far = 2**52
    spans = (
        Span(NASTY, "compute", "gpu:0", "stream 7", 0, 1, None, "aten::mm"),
        Span("kernel", "copy", "gpu:0", "stream 7", 2**40 + 1, 2**40 + 3, 2**41),
        Span("last", "exchange", "gpu:1", "stream 7", far + 1, far + 2**51 + 1, 3),
    )
    return Timeline("made up", spans)


TIMELINES = {
    "few": {"": mxnet_async()},
    "exact": {"": exact()},
    "ranks": {"rank 0": busy(40_000), "rank 1": busy(40_000, seed=2)},
}


@pytest.fixture(scope="module")
def open_page(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Open one of the pages with a width and a colour scheme."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def written(name: str) -> Path:
        path = folder / f"{name}.html"
        path.write_text(page(TIMELINES[name]))
        return path

    def visit(name: str, width: int, scheme: str) -> Visit:
        opened = Visit(browser, written(name), width, scheme)
        opened.page.wait_for_selector("#timelines[data-ready]")
        return opened

    return visit


def view(visit: Visit) -> list[float]:
    # What is drawn follows in the next frame.
    visit.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found: list[float] = visit.page.evaluate(VIEW)
    return found


def share(visit: Visit, colour: tuple[int, int, int], lane: int) -> float:
    view(visit)
    found: float = visit.page.evaluate(SHARE_OF_COLOUR, [colour, ROW * lane, ROW * (lane + 1)])
    return found


def hover(visit: Visit, across: float, lane: int) -> list[str]:
    box = visit.page.locator(".lanes > canvas").first.bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + across * box["width"], box["y"] + ROW * lane + ROW / 2)
    tip = visit.page.locator("#tip")
    return tip.inner_text().splitlines() if tip.is_visible() else []


def assert_unpacked(visit: Visit, name: str) -> None:
    """Check that the script unpacks what was packed."""
    (first, *_) = TIMELINES[name].values()
    wanted: list[list[Any]] = [
        [device, queue, len(spans), *([span[place] for span in spans] for place in (3, 4, 5))]
        for device, queue, spans in plain(first)
    ]
    assert visit.page.evaluate(UNPACKED) == wanted


def test_operations_are_drawn_where_they_ran(open_page: Open) -> None:
    visit = open_page("few", 1280, "light")
    visit.page.locator("[data-do=all]").click()
    # Ten products of 6 ms each in two of the three cases, over 177 ms; blocks have names, and gaps between them.
    assert 0.3 < share(visit, COMPUTE, 3) < 0.6
    assert share(visit, COMPUTE, 2) == 0
    assert share(visit, PATH, 3) > 0
    visit.page.locator("#path").uncheck()
    assert share(visit, PATH, 3) == 0
    visit.page.locator("#case").select_option("run")
    assert share(visit, COMPUTE, 3) > 0.5


def test_the_case_that_shows_most_is_open_and_another_one_can_be_chosen(open_page: Open) -> None:
    visit = open_page("few", 1280, "light")
    opened = visit.page.locator("details[open]")
    for case in ("run and copy together", "run"):
        visit.page.locator("#case").select_option(case)
        assert opened.evaluate_all("all => all.map((one) => one.dataset.case)") == [case]
        start, end = next((one.start, one.end) for one in mxnet_async().cases if one.name == case)
        shown = view(visit)
        assert shown[1] - shown[0] == end - start
    visit.page.reload()
    visit.page.wait_for_selector("#timelines[data-ready]")
    assert opened.evaluate_all("all => all.map((one) => one.dataset.case)") == ["run and copy together"]


def test_wheel_drag_and_double_click_change_the_view(open_page: Open) -> None:
    visit = open_page("few", 1280, "light")
    visit.page.locator("[data-do=all]").click()
    whole = view(visit)
    hover(visit, 0.5, 1)
    visit.page.mouse.wheel(0, -400)
    zoomed = view(visit)
    middle = sum(whole) / 2
    assert zoomed[0] > 0
    assert zoomed[1] - zoomed[0] == pytest.approx(whole[1] * 2.718281828 ** (-0.8), rel=1e-3)
    # What is under the pointer stays there.
    assert sum(zoomed) / 2 == pytest.approx(middle, rel=1e-3)
    visit.page.mouse.down()
    hover(visit, 0.25, 1)
    visit.page.mouse.up()
    moved = view(visit)
    assert moved[0] - zoomed[0] == pytest.approx((zoomed[1] - zoomed[0]) / 4, rel=0.02)
    visit.page.mouse.wheel(0, 4000)
    visit.page.locator(".lanes > canvas").dblclick()
    assert view(visit) == whole
    visit.page.mouse.wheel(0, 100)
    assert view(visit) == whole
    assert visit.troubles == []


def test_the_keyboard_moves_zooms_and_reads_spans(open_page: Open) -> None:
    visit = open_page("few", 1280, "light")
    visit.page.locator("[data-do=all]").click()
    whole = view(visit)
    visit.page.locator(".lanes").focus()
    for key in ("+", "+", "ArrowRight"):
        visit.page.keyboard.press(key)
    start, end = view(visit)
    assert end - start == pytest.approx(0.36 * whole[1])
    assert (start + end) / 2 == pytest.approx(whole[1] / 2 + 0.2 * (end - start), rel=1e-6)
    visit.page.keyboard.press("0")
    assert view(visit) == whole
    said = []
    for key in ("Shift+ArrowRight", *["Shift+ArrowDown"] * 3, *["Shift+ArrowRight"] * 2):
        visit.page.keyboard.press(key)
        said.append(visit.page.locator("#tip").inner_text().splitlines())
    assert [lines[0] for lines in said] == ["run", "launch matmul", "launch matmul", *["matmul"] * 3]
    assert said[0][1:] == ["60.03 ms from 0 ns", "cases"]
    assert said[4] == ["matmul", "_npi_matmul", "6 ms from 6.025 ms", "6 ms from launch to start", "cpu:1 compute"]
    visit.page.keyboard.press("Escape")
    assert visit.page.locator("#tip").is_hidden()
    assert visit.troubles == []


def test_what_is_pointed_at_says_what_it_is_however_large_its_numbers(open_page: Open) -> None:
    visit = open_page("exact", 1280, "dark")
    assert_unpacked(visit, "exact")
    assert hover(visit, 0.9, 2) == [
        "last",
        "2251800 s from 4503599.63 s",
        "4503600 s from launch to start",
        "gpu:1 stream 7",
    ]
    assert hover(visit, 0.0005, 1)[0] in (NASTY, "kernel")
    assert hover(visit, 0.5, 1) == []
    assert visit.troubles == []


def test_a_name_that_is_searched_is_highlighted_and_reached(open_page: Open) -> None:
    visit = open_page("few", 1280, "light")
    visit.page.locator("[data-do=all]").click()
    assert share(visit, FOUND, 3) == 0
    visit.page.locator("#search").fill("MATMUL")
    assert share(visit, FOUND, 3) > 0.04
    assert share(visit, COMPUTE, 3) == 0
    assert visit.page.locator("#found").inner_text() == "40 spans, 120 ms in all"
    visit.page.locator("#search").press("Enter")
    # The first match is the first launch.
    assert view(visit) == [0, 8e6]
    assert visit.page.locator("#tip").inner_text() == "launch matmul\n20 μs from 5 μs\nhost Python"
    visit.page.locator("#search").fill("nothing")
    assert visit.page.locator("#found").inner_text() == "0 spans, 0 ns in all"
    visit.page.locator("#search").fill("")
    assert share(visit, FOUND, 3) == 0
    visit.page.locator("details[open] .cut", has_text="matmul").first.click()
    assert visit.page.locator("#search").input_value() == "matmul"
    assert visit.troubles == []


def test_what_is_on_the_critical_path_alone_is_found_there(browser: "Browser", tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page({"": read_timeline(GPUS / "rank-0.json.gz")}))
    visit = Visit(browser, path, 1280)
    visit.page.wait_for_selector("#timelines[data-ready]")
    visit.page.locator("details[open] .cut", has_text="between calls").first.click()
    assert not visit.page.locator("#found").inner_text().startswith("0 spans")
    assert visit.page.locator("#tip").inner_text().splitlines()[::2] == ["between calls", "critical path"]
    assert visit.troubles == []


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("ranks", 400, "dark"), ("ranks", 1280, "light"), ("few", 400, "light")]
)
def test_the_page_fits_and_can_be_read(open_page: Open, name: str, width: int, scheme: str) -> None:
    visit = open_page(name, width, scheme)
    assert_unpacked(visit, name)
    visit.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.evaluate(TOO_WIDE.replace(".wide", ".wide, #tip")) == []
    count, pale = visit.page.evaluate(PALE_TEXTS)
    assert count > 100
    assert pale == []
    lanes = visit.page.locator(".timeline").first.locator(".names li")
    names = [f"{device} {queue}".strip() for device, queue, _ in plain(next(iter(TIMELINES[name].values())))]
    names.insert(names.index("cases") + 1 if "cases" in names else 0, "critical path")
    assert lanes.all_inner_texts() == names
    sizes = lanes.evaluate_all("all => all.map((one) => parseFloat(getComputedStyle(one).fontSize))")
    assert min(sizes) >= 9
    heights = visit.page.evaluate("[...document.querySelectorAll('.lanes > canvas')].map((one) => one.clientHeight)")
    assert min(heights) >= ROW * len(names)
    assert visit.troubles == []


def test_without_a_script_the_figures_are_there(browser: "Browser", tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(TIMELINES["few"]))
    visit = Visit(browser, path, 1280, scripts=False)
    assert visit.page.locator("noscript").inner_text().startswith("The timeline is drawn by a script")
    assert visit.page.get_by_text("Operations that took the most time").count() == 3
