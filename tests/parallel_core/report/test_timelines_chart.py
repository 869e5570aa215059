"""Timelines in the report: a panel for each cell that has one, a reason for each that has none."""

import re
from pathlib import Path

import pytest

from backends.profiling import Span, Timeline
from parallel_core.comparison import storage
from parallel_core.comparison.analysis import ExperimentAnalysis, analyse
from parallel_core.comparison.cells import Cell, Comparison
from parallel_core.comparison.storage import new_traces, saved_timelines, trace_path
from parallel_core.experiments import EXPERIMENTS
from parallel_core.report import write_report
from parallel_core.report.page import render
from parallel_core.report.timelines_chart import Panel, TimelinesChart, panels, timelines_chart
from tests.parallel_core.comparison.made_up import NASTY, comparison, failed, measured
from tests.parallel_core.plots.frameworks import many_small
from tests.parallel_core.report.pages import TIMELINES, timeline_of

SIDES = ("mxnet async", "mxnet sync", "torch async", "torch sync")


def compared(experiment: str = "overlap") -> Comparison:
    cells = [measured(Cell(experiment, *side.split()), (1.0, 1.01)) for side in SIDES]
    return comparison(*cells, failed(Cell(experiment, "numpy", "sync")))


def analysed(experiment: str = "overlap") -> ExperimentAnalysis:
    return analyse(compared(experiment)).experiments[0]


def drawn(panels_and_reasons: tuple[list[Panel], dict[str, str]]) -> TimelinesChart:
    chart = timelines_chart(panels_and_reasons[0])
    assert chart is not None
    return chart


def test_each_cell_has_a_panel_that_says_what_is_seen() -> None:
    found, without = panels(analysed(), timeline_of)
    assert without == {"mxnet sync": NASTY}
    chart = drawn((found, without))
    assert [(panel.name, panel.remarks) for panel in chart.panels] == [
        ("MXNet", "305 ms (timed: 1.00 s), 1.8 queues at once, 98 % of communication under computation"),
        ("PyTorch", "305 ms (timed: 1.00 s), 1.8 queues at once, 98 % of communication under computation"),
        ("PyTorch without queue", "550 ms (timed: 1.00 s), 1.0 queue at once, 0 % of communication under computation"),
    ]
    assert [[lane.name for lane in panel.lanes] for panel in chart.panels] == [
        ["host Python", "cpu:1 compute", "cpu:2 compute"],
        ["host Python", "cpu:1 compute", "cpu:1 copy"],
        ["cpu calling thread"],
    ]
    assert chart.panels[0].lanes[1].description == "cpu:1 compute: computation 55 % of the width"


def test_all_panels_have_one_scale_and_the_legend_each_look_once() -> None:
    chart = drawn(panels(analysed(), timeline_of))
    assert chart.milliseconds == pytest.approx(550)
    assert [tick.label for tick in chart.ticks] == ["0 ms", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms"]
    assert chart.looks == ("compute", "copy", "host", "wait")
    last = chart.panels[2].lanes[0].blocks[-1]
    assert float(last.place) + float(last.length) == pytest.approx(100, abs=1e-3)


def test_a_block_tells_what_ran_when_for_how_long_and_how_long_it_waited() -> None:
    block = drawn(panels(analysed(), timeline_of)).panels[0].lanes[1].blocks[1]
    assert block.text == "matmul (_npi_matmul)\n6.00 ms from 6.03 ms\n5.97 ms from launch to start"
    assert (block.place, block.length, block.opacity) == ("1.0964", "1.0909", "")
    many = drawn(panels(analysed(), small)).panels[0].lanes[0].blocks[0]
    assert re.fullmatch(r"\d+ × add\n[\d.]+ ms from 0 ms, 80 % of it busy", many.text)
    assert many.opacity == "0.84"


def small(_: Cell) -> Timeline:
    return many_small(20_000)


def alternating() -> Timeline:
    """Make what is hardest to draw briefly: long and short spans of all kinds, with gaps, on many queues."""
    spans = []
    for queue in range(6):
        at = 0
        for step in range(2000):
            kind = ("compute", "copy", "exchange")[step % 3]
            length = 1000 * (1 + (step * (queue + 7)) % 500)
            name = f"aten::convolution_backward_{step}"
            spans.append(Span(name, kind, f"cpu:{queue}", "compute", at, at + length, 0, "an operator"))
            at += length * 13 // 10
    return Timeline("synthetic", tuple(sorted(spans, key=lambda span: span.start)))


@pytest.mark.long
def test_pages_with_all_traces_are_small() -> None:
    demonstrations = [one.name for one in EXPERIMENTS.values() if not one.occasion]
    for experiments, timeline in ((demonstrations, alternating()), (list(EXPERIMENTS), many_small(2000))):
        cells = [measured(Cell(name, *side.split()), (1.0, 1.01)) for name in experiments for side in SIDES]
        page = render(analyse(comparison(*cells)), lambda _, shown=timeline: shown)
        assert page.count('id="chart-timelines-') == len(experiments)
        assert len(page.encode()) < 2_000_000


def test_another_case_than_the_experiment_s_is_named() -> None:
    first = drawn(panels(analysed("parallel"), small)).panels[0]
    assert first.remarks == "250 ms of “increments”, 1.1 queues at once"


def test_many_experiments_share_the_page() -> None:
    alone, one_of_many = (
        sum(panel.shown.count for panel in panels(analysed(), small, experiments=count)[0]) for count in (1, 20)
    )
    assert 0 < one_of_many <= 300 < alone


def test_what_took_no_time_by_the_profiler_s_clock_is_not_drawn() -> None:
    # MXNet writes whole microseconds.
    shortest = Timeline("made up", [Span("add", "compute", "cpu:1", "compute", 1000, 1000)])
    found, without = panels(analysed(), lambda _: shortest)
    assert (found, set(without.values())) == ([], {"nothing in its trace took any time"})


def test_an_empty_trace_says_why_it_is_empty() -> None:
    found, without = panels(analysed(), lambda _: Timeline("mxnet", (), (), ("too many devices",)))
    assert found == []
    assert set(without.values()) == {"too many devices"}
    page = render(analyse(compared()), lambda _: Timeline("mxnet", ()))
    assert "Without a timeline: mxnet async (nothing in its trace took any time), " in page
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
