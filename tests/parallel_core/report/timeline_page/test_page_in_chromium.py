"""The page of timelines as a reader meets it: what is packed is unpacked, drawn, moved, found and said."""

from collections.abc import Callable, Iterator
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

Open = Callable[..., Visit]

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


@cache
def timelines() -> dict[str, dict[str, Timeline]]:
    # Times that need all of JavaScript's 53 bits, and names that are not text in HTML.
    far = 2**52
    exact = (
        Span(NASTY, "compute", "gpu:0", "stream 7", 0, 1, None, "aten::mm"),
        Span("kernel", "copy", "gpu:0", "stream 7", 2**40 + 1, 2**40 + 3, 2**41),
        Span("last", "exchange", "gpu:1", "stream 7", far + 1, far + 2**51 + 1, 3),
    )
    return {
        "few": {"": mxnet_async()},
        "exact": {"": Timeline("made up", exact)},
        "ranks": {"rank 0": busy(40_000), "rank 1": busy(40_000, seed=2)},
        "real": {"": read_timeline(GPUS / "rank-0.json.gz")},
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, shown in timelines().items():
        (folder / f"{name}.html").write_text(page(shown))
    return folder


@pytest.fixture
def open_page(browser: "Browser", pages: Path) -> Iterator[Open]:
    """Open one of the pages with a width and a colour scheme; nothing may go wrong in it."""
    opened: list[Visit] = []

    def visit(name: str = "few", width: int = 1280, scheme: str = "light") -> Visit:
        opened.append(Visit(browser, pages / f"{name}.html", width, scheme))
        opened[-1].page.wait_for_selector("#timelines[data-ready]")
        return opened[-1]

    yield visit
    assert [one.troubles for one in opened] == [[]]


@pytest.fixture
def whole(open_page: Open) -> Visit:
    """The page of few spans, all of which are shown."""
    visit = open_page()
    visit.page.locator("[data-do=all]").click()
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
    return tip(visit) if visit.page.locator("#tip").is_visible() else []


def tip(visit: Visit) -> list[str]:
    return visit.page.locator("#tip").inner_text().splitlines()


def assert_unpacked(visit: Visit, name: str) -> None:
    """Check that the script unpacks what was packed."""
    (first, *_) = timelines()[name].values()
    wanted: list[list[Any]] = [
        [device, queue, len(spans), *([span[place] for span in spans] for place in (3, 4, 5))]
        for device, queue, spans in plain(first)
    ]
    assert visit.page.evaluate(UNPACKED) == wanted


def test_operations_are_drawn_where_they_ran(whole: Visit) -> None:
    # Ten products of 6 ms each in two of the three cases, over 177 ms; blocks have names, and gaps between them.
    assert 0.3 < share(whole, COMPUTE, 3) < 0.6
    assert share(whole, COMPUTE, 2) == 0
    assert share(whole, PATH, 3) > 0
    whole.page.locator("#path").uncheck()
    assert share(whole, PATH, 3) == 0
    whole.page.locator("#case").select_option("run")
    assert share(whole, COMPUTE, 3) > 0.5


def test_the_case_that_shows_most_is_open_and_another_one_can_be_chosen(open_page: Open) -> None:
    visit = open_page()
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


def test_wheel_drag_and_double_click_change_the_view(whole: Visit) -> None:
    everything = view(whole)
    hover(whole, 0.5, 1)
    whole.page.mouse.wheel(0, -400)
    zoomed = view(whole)
    assert zoomed[0] > 0
    assert zoomed[1] - zoomed[0] == pytest.approx(everything[1] * 2.718281828 ** (-0.8), rel=1e-3)
    # What is under the pointer stays there.
    assert sum(zoomed) == pytest.approx(sum(everything), rel=1e-3)
    whole.page.mouse.down()
    hover(whole, 0.25, 1)
    whole.page.mouse.up()
    assert view(whole)[0] - zoomed[0] == pytest.approx((zoomed[1] - zoomed[0]) / 4, rel=0.02)
    whole.page.mouse.wheel(0, 4000)
    whole.page.locator(".lanes > canvas").dblclick()
    assert view(whole) == everything
    whole.page.mouse.wheel(0, 100)
    assert view(whole) == everything


def test_the_keyboard_moves_zooms_and_reads_spans(whole: Visit) -> None:
    everything = view(whole)
    whole.page.locator(".lanes").focus()
    for key in ("+", "+", "ArrowRight"):
        whole.page.keyboard.press(key)
    start, end = view(whole)
    assert end - start == pytest.approx(0.36 * everything[1])
    assert (start + end) / 2 == pytest.approx(everything[1] / 2 + 0.2 * (end - start), rel=1e-6)
    whole.page.keyboard.press("0")
    assert view(whole) == everything
    said = []
    for key in ("Shift+ArrowRight", *["Shift+ArrowDown"] * 3, *["Shift+ArrowRight"] * 2):
        whole.page.keyboard.press(key)
        said.append(tip(whole))
    assert [lines[0] for lines in said] == ["run", "launch matmul", "launch matmul", *["matmul"] * 3]
    assert said[0][1:] == ["60.03 ms from 0 ns", "cases"]
    assert said[4] == ["matmul", "_npi_matmul", "6 ms from 6.025 ms", "6 ms from launch to start", "cpu:1 compute"]
    whole.page.keyboard.press("Escape")
    assert whole.page.locator("#tip").is_hidden()


def test_what_is_pointed_at_says_what_it_is_however_large_its_numbers(open_page: Open) -> None:
    visit = open_page("exact", scheme="dark")
    assert_unpacked(visit, "exact")
    times = ["2251800 s from 4503599.63 s", "4503600 s from launch to start"]
    assert hover(visit, 0.9, 2) == ["last", *times, "gpu:1 stream 7"]
    assert hover(visit, 0.0005, 1)[0] in (NASTY, "kernel")
    assert hover(visit, 0.5, 1) == []


def test_a_name_that_is_searched_is_highlighted_and_reached(whole: Visit) -> None:
    search, found = whole.page.locator("#search"), whole.page.locator("#found")
    assert share(whole, FOUND, 3) == 0
    search.fill("MATMUL")
    assert share(whole, FOUND, 3) > 0.04
    assert share(whole, COMPUTE, 3) == 0
    assert found.inner_text() == "40 spans, 120 ms in all"
    search.press("Enter")
    # The first match is the first launch.
    assert view(whole) == [0, 8e6]
    assert tip(whole) == ["launch matmul", "20 μs from 5 μs", "host Python"]
    search.fill("nothing")
    assert found.inner_text() == "0 spans, 0 ns in all"
    search.fill("")
    assert share(whole, FOUND, 3) == 0
    whole.page.locator("details[open] .cut", has_text="matmul").first.click()
    assert search.input_value() == "matmul"


def test_what_is_on_the_critical_path_alone_is_found_there(open_page: Open) -> None:
    visit = open_page("real")
    visit.page.locator("details[open] .cut", has_text="between calls").first.click()
    assert not visit.page.locator("#found").inner_text().startswith("0 spans")
    assert tip(visit)[::2] == ["between calls", "critical path"]


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
    names = [f"{device} {queue}".strip() for device, queue, _ in plain(next(iter(timelines()[name].values())))]
    names.insert(names.index("cases") + 1 if "cases" in names else 0, "critical path")
    assert lanes.all_inner_texts() == names
    sizes = lanes.evaluate_all("all => all.map((one) => parseFloat(getComputedStyle(one).fontSize))")
    assert min(sizes) >= 9
    heights = visit.page.evaluate("[...document.querySelectorAll('.lanes > canvas')].map((one) => one.clientHeight)")
    assert min(heights) >= ROW * len(names)


def test_without_a_script_the_figures_are_there(browser: "Browser", pages: Path) -> None:
    visit = Visit(browser, pages / "few.html", 1280, scripts=False)
    assert visit.page.locator("noscript").inner_text().startswith("The timeline is drawn by a script")
    assert visit.page.get_by_text("Operations that took the most time").count() == 3
