"""Timelines in the report: a panel for each cell that has one, a reason for each that has none, one zoom for all."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.profiling import Span, Timeline
from parallel_core import RequestError
from parallel_core.comparison import storage
from parallel_core.comparison.analysis import ExperimentAnalysis, analyse
from parallel_core.comparison.cells import Cell, Comparison
from parallel_core.comparison.storage import new_traces, saved_timelines, trace_path
from parallel_core.report import write_report
from parallel_core.report.page import as_markup, render
from parallel_core.report.timelines_chart import panels, timelines_chart
from tests.parallel_core.comparison.made_up import NASTY, comparison, failed, measured
from tests.parallel_core.report.chromium import Visit
from tests.parallel_core.trace_analysis.frameworks import many_small, mxnet_async, torch_async, torch_sync

pytestmark = pytest.mark.long

SIDES = ("mxnet async", "mxnet sync", "torch async", "torch sync")
TIMELINES = {"mxnet async": mxnet_async(50), "torch async": torch_async(50), "torch sync": torch_sync(50)}


def compared(experiment: str = "overlap") -> Comparison:
    cells = [measured(Cell(experiment, *side.split()), (1.0, 1.01)) for side in SIDES]
    return comparison(*cells, failed(Cell(experiment, "numpy", "sync")))


def analysed(experiment: str = "overlap") -> ExperimentAnalysis:
    return analyse(compared(experiment)).experiments[0]


def timeline_of(cell: Cell) -> Timeline:
    if cell.side == "mxnet sync":
        raise RequestError(NASTY)
    return TIMELINES[cell.side]


def test_each_cell_has_a_panel_that_says_what_is_seen() -> None:
    found, without = panels(analysed(), timeline_of)
    assert without == {"mxnet sync": NASTY}
    drawn = timelines_chart(found)
    assert drawn is not None
    assert [annotation.text for annotation in drawn.layout.annotations] == [
        "<b>mxnet async</b>: 305 ms (timed: 1.00 s), 1.8 queues at once<br>98% of communication under computation",
        "<b>torch async</b>: 305 ms (timed: 1.00 s), 1.8 queues at once<br>98% of communication under computation",
        "<b>torch sync</b>: 550 ms (timed: 1.00 s), 1.0 queue at once<br>0% of communication under computation",
    ]
    assert [axis.ticktext for axis in drawn.select_yaxes()] == [
        ("host Python", "cpu:1 compute", "cpu:2 compute"),
        ("host Python", "cpu:1 compute", "cpu:1 copy"),
        ("cpu calling thread",),
    ]


def test_all_panels_have_one_scale_and_the_legend_each_kind_once() -> None:
    drawn = timelines_chart(panels(analysed(), timeline_of)[0])
    assert drawn is not None
    assert [axis.range[1] for axis in drawn.select_xaxes()] == pytest.approx([550] * 3)
    # Zooming one zooms those that match it.
    assert len({axis.matches for axis in drawn.select_xaxes()} - {None}) == 1
    assert [bars.name for bars in drawn.data if bars.showlegend] == ["computation", "copy", "Python", "waiting"]


def test_a_bar_tells_what_ran_when_for_how_long_and_how_long_it_waited() -> None:
    drawn = timelines_chart(panels(analysed(), timeline_of)[0])
    assert drawn is not None
    products = drawn.data[0]
    assert (products.base[1], products.x[1]) == (6.03, 6.0)
    assert products.hovertext[1] == "matmul (_npi_matmul)<br>6.00 ms<br>waited 5.97 ms"
    (bars,) = (one for one in timelines_chart(panels(analysed(), small)[0]).data[:1])
    assert re.fullmatch(r"\d+ × add<br>[\d.]+ ms, 80% of it busy", bars.hovertext[0])


def small(_: Cell) -> Timeline:
    return many_small(20_000)


def alternating(_: Cell) -> Timeline:
    """Make what is hardest to draw briefly: long and short spans of all kinds, with gaps, on many queues."""
    spans = []
    for queue in range(6):
        at = 0.0
        for step in range(4000):
            kind = ("compute", "copy", "exchange")[step % 3]
            seconds = 1e-6 * (1 + (step * (queue + 7)) % 500)
            name = f"aten::convolution_backward_{step}"
            spans.append(Span(name, kind, f"cpu:{queue}", "compute", at, at + seconds, 0.0, "an operator"))
            at += seconds * 1.3
    return Timeline("synthetic", tuple(sorted(spans, key=lambda span: span.start)))


@pytest.mark.parametrize("hard_to_draw", [small, alternating])
def test_an_experiment_s_timelines_take_little_of_the_page(hard_to_draw: Callable[[Cell], Timeline]) -> None:
    assert len(as_markup(timelines_chart(panels(analysed(), hard_to_draw)[0]), "x") or "") < 250_000


def test_another_case_than_the_experiment_s_is_named() -> None:
    (first, *_), _ = panels(analysed("parallel"), small)
    drawn = timelines_chart([first])
    assert drawn is not None
    assert drawn.layout.annotations[0].text == "<b>mxnet async</b>: 250 ms of “increments”, 1.1 queues at once"


def test_an_empty_trace_says_why_it_is_empty() -> None:
    found, without = panels(analysed(), lambda _: Timeline("mxnet", (), (), ("too many devices",)))
    assert found == []
    assert set(without.values()) == {"too many devices"}
    page = render(analyse(compared()), lambda _: Timeline("mxnet", ()))
    assert "Without a timeline: mxnet async (its trace is empty), " in page
    assert "chart-timelines" not in page


def test_a_comparison_without_traces_says_nothing_of_timelines() -> None:
    assert (
        "imeline" not in render(analyse(compared())).partition('<section id="overlap">')[2].partition("</section>")[0]
    )


def test_the_folder_s_traces_come_into_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved_timelines(tmp_path) is None
    new_traces(tmp_path)
    read: list[Path] = []

    def read_timeline(path: Path) -> Timeline:
        read.append(path)
        return TIMELINES["torch async"]

    monkeypatch.setattr(storage, "read_timeline", read_timeline)
    trace = trace_path(tmp_path, Cell("overlap", "torch", "async"))
    assert trace == tmp_path / "traces" / "overlap-torch-async.json.gz"
    trace.write_bytes(b"")
    page = write_report(analyse(compared()), tmp_path).read_text()
    assert read == [trace]
    assert 'id="chart-timelines-overlap"' in page
    assert "mxnet async (its process wrote no trace), " in page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timelines") / "report.html"
    path.write_text(render(analyse(compared()), timeline_of))
    return path


def test_a_drag_zooms_all_panels(browser, report: Path) -> None:  # type: ignore[no-untyped-def]
    assert NASTY not in report.read_text()
    visit = Visit(browser, report, 1200, "dark")
    drawn = visit.page.locator("#chart-timelines-overlap")
    drawn.scroll_into_view_if_needed()
    ranges = "[...Array(3).keys()].map(n => document.getElementById('chart-timelines-overlap')"
    ranges += "._fullLayout['xaxis' + (n ? n + 1 : '')].range.map(Math.round).join())"
    assert visit.page.evaluate(ranges) == ["0,550"] * 3
    lane = drawn.locator(".nsewdrag").first.bounding_box()
    assert lane is not None
    middle = lane["y"] + lane["height"] / 2
    visit.page.mouse.move(lane["x"] + 0.2 * lane["width"], middle)
    visit.page.mouse.down()
    visit.page.mouse.move(lane["x"] + 0.4 * lane["width"], middle, steps=4)
    visit.page.mouse.up()
    visit.page.wait_for_function(f"{ranges}[0] !== '0,550'")
    assert visit.page.evaluate(ranges) == ["110,220"] * 3
    assert visit.troubles == []
