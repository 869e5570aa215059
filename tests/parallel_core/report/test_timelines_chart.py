"""Timelines in the report: a panel for each cell that has one, a reason for each that has none."""

from pathlib import Path

import pytest

from backends.profiling import Span, Timeline
from parallel_core.comparison import storage
from parallel_core.comparison.analysis import ExperimentAnalysis, analyse
from parallel_core.comparison.cells import Cell, Comparison
from parallel_core.comparison.storage import new_traces, saved_timelines, trace_path
from parallel_core.experiments import EXPERIMENTS
from parallel_core.plots.timeline import TimelinesChart
from parallel_core.report import write_report
from parallel_core.report.charts import timelines_chart
from parallel_core.report.page import render
from tests.parallel_core.comparison.made_up import NASTY, comparison, failed, measured
from tests.parallel_core.plots.frameworks import many_small
from tests.parallel_core.report.pages import TIMELINES, timeline_of

SIDES = ("mxnet async", "mxnet sync", "torch async", "torch sync")


def compared(experiment: str = "overlap") -> Comparison:
    cells = [measured(Cell(experiment, *side.split()), (1.0, 1.01)) for side in SIDES]
    return comparison(*cells, failed(Cell(experiment, "numpy", "sync")))


def analysed(experiment: str = "overlap") -> ExperimentAnalysis:
    return analyse(compared(experiment)).experiments[0]


def drawn(found: tuple[TimelinesChart | None, dict[str, str]]) -> TimelinesChart:
    assert found[0] is not None
    return found[0]


def test_each_cell_has_a_panel_that_says_what_is_seen() -> None:
    chart, without = timelines_chart(analysed(), timeline_of)
    assert without == {"mxnet sync": NASTY}
    panels = drawn((chart, without)).panels
    assert [(panel.name, panel.remarks) for panel in panels] == [
        ("MXNet", "305 ms (timed: 1.00 s), 1.8 queues at once, 98 % of communication under computation"),
        ("PyTorch", "305 ms (timed: 1.00 s), 1.8 queues at once, 98 % of communication under computation"),
        ("PyTorch without queue", "550 ms (timed: 1.00 s), 1.0 queue at once, 0 % of communication under computation"),
    ]
    assert [[lane.name for lane in panel.shown.lanes] for panel in panels] == [
        ["host Python", "cpu:1 compute", "cpu:2 compute"],
        ["host Python", "cpu:1 compute", "cpu:1 copy"],
        ["cpu calling thread"],
    ]


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
    first = drawn(timelines_chart(analysed("parallel"), small)).panels[0]
    assert first.remarks == "250 ms of “increments”, 1.1 queues at once"


def test_many_experiments_share_the_page() -> None:
    alone, one_of_many = (
        sum(panel.shown.count for panel in drawn(timelines_chart(analysed(), small, experiments=count)).panels)
        for count in (1, 20)
    )
    assert 0 < one_of_many <= 300 < alone


@pytest.mark.parametrize(
    ("timeline", "reason"),
    [
        # MXNet writes whole microseconds.
        (
            Timeline("made up", [Span("add", "compute", "cpu:1", "compute", 1000, 1000)]),
            "nothing in its trace took any time",
        ),
        (Timeline("mxnet", (), (), ("too many devices",)), "too many devices"),
    ],
)
def test_a_trace_without_anything_to_draw_says_why(timeline: Timeline, reason: str) -> None:
    found, without = timelines_chart(analysed(), lambda _: timeline)
    assert (found, set(without.values())) == (None, {reason})
    page = render(analyse(compared()), lambda _: timeline)
    assert f"Without a timeline: mxnet async ({reason}), " in page
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
