"""The report's charts: what is drawn of figures, times, curves and timelines, in which words, and
what is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from backends.profiling import Span, Timeline
from parallel_core.comparison import storage
from parallel_core.comparison.analysis import ExperimentAnalysis, analyse
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.comparison.storage import claimed_folder, saved_timelines, trace_path
from parallel_core.experiments.asynchronous_computation.increments import EACH, ONCE, SINGLE
from parallel_core.measurement.confidence_intervals import Interval, with_seconds
from parallel_core.report import charts, write_report
from parallel_core.report.page import render
from parallel_core.report.plots.bars import Bar
from parallel_core.report.plots.svg import inline
from tests.parallel_core.comparison.made_up import (
    NASTY,
    TIMES,
    comparison,
    every_chart,
    failed,
    measured,
    parallel,
    result,
    with_figures,
)
from tests.parallel_core.comparison.test_account import made_of
from tests.parallel_core.report.pages import TIMELINES, timeline_of, with_bare_times
from tests.parallel_core.report.plots.drawn import Drawn
from tests.parallel_core.report.plots.frameworks import many_small

Something = TypeVar("Something")
ANALYSIS = cache(lambda: analyse(every_chart()))


def of(name: str) -> ExperimentAnalysis:
    return next(one for one in ANALYSIS().experiments if one.experiment.name == name)


def analysis_of(*cells: CellResults) -> ExperimentAnalysis:
    (experiment,) = analyse(comparison(*cells)).experiments
    return experiment


def some(drawn: Something | None) -> Something:
    assert drawn is not None
    return drawn


def words(bars: Sequence[Bar]) -> list[tuple[str, str]]:
    return [(bar.name, bar.value) for bar in bars]


def test_a_figure_has_a_bar_a_value_and_a_whisker_for_each_cell() -> None:
    bars = some(charts.metric_chart(of("parallel"))).groups[""]
    first, second, *_ = bars
    assert [bar.name for bar in bars] == list(TIMES)
    assert words(bars)[1] == ("mxnet sync", "0.50 (0.49–0.51)")
    assert first.start == second.start == 0
    assert first.end == pytest.approx(2 * second.end)
    assert (first.style, second.style) == ("total", "total hollow")
    low, high = some(second.bounds)
    assert low < second.end < high


def test_a_negative_figure_is_drawn_to_the_left_of_nothing() -> None:
    mxnet, torch = (measured(parallel(name), (1.0, 1.01, 0.99)) for name in ("mxnet", "torch"))
    chart = some(charts.metric_chart(analysis_of(mxnet, with_figures(torch, [-0.5] * 3))))
    positive, negative = chart.groups[""]
    assert negative.end == chart.axis.scale.low == -0.5
    assert positive.end > positive.start == negative.start == 0


@pytest.mark.parametrize("times", [(1.0,), (1.0, 2.0), (1.0, 2.0, 4.0)])
def test_too_few_processes_have_no_bounds_and_a_long_whisker_does_not_shrink_the_bars(
    times: tuple[float, ...],
) -> None:
    experiment = analysis_of(
        *(with_bare_times(measured(parallel(name), times)) for name in ("mxnet", "torch"))
    )
    chart = some(charts.case_times_chart(experiment))
    ((bar, _),) = chart.groups.values()
    assert (bar.bounds is not None) == (len(times) > 2)
    assert chart.axis.scale.place(bar.end) > 0.6
    ((compared, parts),) = some(charts.differences_chart(experiment)).groups.items()
    assert compared.endswith(": too few runs to decide") == (len(times) < 2)
    assert any("–" in value for _, value in words([bar])) == (len(times) > 2)
    # A difference has bounds as soon as it can be told.
    assert any("–" in value or "…" in value for _, value in words(parts)) == (len(times) > 1)


def test_times_stand_under_their_case_and_a_model_beside_what_it_predicts() -> None:
    times = some(charts.case_times_chart(of("async"))).groups
    assert words(times["10 products"])[0] == ("mxnet async", "200 ms (200–200)")
    row = some(charts.dispatch_chart(ANALYSIS())).groups["parallel"][0]
    assert row.value == "100 ms of 1.00 s"
    ends = [end for part in row.parts for end in (part.start, part.end)]
    assert ends == pytest.approx([0, 0.1, 0.1, 1.0], rel=0.01)
    (model,) = filter(None, map(charts.cost_model_chart, ANALYSIS().experiments))
    assert words(model.groups["torch sync, waiting once"]) == [
        ("measured", "100 ms (100–100)"),
        ("predicted", "90.0 ms (90.0–90.0)"),
        ("book’s formula", "50.0 ms (50.0–50.0)"),
    ]


def test_parts_of_a_difference_add_up_to_it() -> None:
    mxnet = made_of(parallel("mxnet"), 1.0, {"operations": 0.6, "overhead": 0.2})
    torch = made_of(parallel("torch"), 1.5, {"operations": 0.9, "overhead": 0.2})
    (bars,) = some(charts.differences_chart(analysis_of(mxnet, torch))).groups.values()
    ends = [end for bar in bars for end in (bar.start, bar.end)]
    assert ends == pytest.approx([0, 0.3, 0.3, 0.3, 0.3, 0.5, 0, 0.5])
    assert bars[-1].style == "total"


def test_times_are_written_with_their_bounds() -> None:
    assert with_seconds(Interval(0.0201, 0.0198, 0.0209)) == "20.1 ms (19.8–20.9)"
    assert with_seconds(Interval(0.99, 0.98, 1.02)) == "990 ms (980 ms – 1.02 s)"
    assert with_seconds(Interval(0.99, 0.0, float("inf"))) == "990 ms"


def test_each_layer_of_a_tiny_operation_begins_where_the_one_before_ended() -> None:
    cell, seconds = Cell("async", "torch", "async"), {SINGLE: 0.3, ONCE: 0.6, EACH: 1.0}
    plain = result(cell, seconds, parameters={"steps": 100})
    timed = (
        replace(case, bare_seconds=(0.2,)) if case.name == ONCE else case for case in plain.cases
    )
    experiment = analysis_of(CellResults(cell, (replace(plain, cases=tuple(timed)),)))
    ((row,),) = some(charts.layers_chart(experiment)).groups.values()
    assert row.value == "10.0 ms"
    assert [part.start for part in row.parts] == pytest.approx([0, 0.002, 0.003, 0.006])
    assert row.parts[-1].end == pytest.approx(0.01)
    assert charts.layers_chart(of("parallel")) is None


def test_a_sweep_has_a_panel_for_each_cell_and_a_table() -> None:
    chart, table = charts.curves_chart(of("allreduce"))
    assert [panel.name for panel in some(chart).panels] == list(TIMES)
    # A bound is dotted and has no marks; measured curves differ by shape as well as by colour.
    looks = [("plain copy", True, None), ("star", False, 0), ("native", False, 1)]
    for panel in some(chart).panels:
        assert [(curve.label, curve.dash != "", curve.shape) for curve in panel.curves] == looks
        assert [label for _, label in panel.x.ticks] == ["4 KiB", "4 MiB"]
    assert (
        "star: 0.10 (0.10–0.10); each device's vector: 4 KiB"
        in Drawn(str(inline(chart, "curves"))).titles
    )
    assert table[0][:3] == ("each device's vector", "mxnet async: plain copy", "mxnet async: star")
    assert [row[0] for row in table[1:]] == ["4 KiB", "4 MiB"]
    assert charts.curves_chart(of("parallel")) == (None, ())


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_logarithmic_scale_needs_no_value_that_fits_it(value: float) -> None:
    experiment = of("allreduce")
    cell = experiment.cells[0]
    curves = {label: (Interval(value, value, value),) * 2 for label in cell.curves}
    chart, _ = charts.curves_chart(replace(experiment, cells=(replace(cell, curves=curves),)))
    assert "nan" not in str(inline(some(chart), "curves"))


def test_learning_curves_have_a_colour_for_a_framework_and_dots_without_a_queue() -> None:
    for panel in some(charts.learning_curves(ANALYSIS(), of("data-parallel"))).panels:
        assert [curve.label for curve in panel.curves] == list(TIMES)
        assert [curve.style for curve in panel.curves] == ["c0", "c0", "c1", "c1"]
        assert [curve.dash != "" for curve in panel.curves] == [False, True, False, True]
    assert charts.learning_curves(ANALYSIS(), of("parallel")) is None


def compared(experiment: str = "overlap") -> Comparison:
    cells = [measured(Cell(experiment, *side.split()), (1.0, 1.01)) for side in TIMES]
    return comparison(*cells, failed(Cell(experiment, "numpy", "sync")))


SMALL = many_small(4000)


def test_each_cell_has_a_panel_that_says_what_is_seen() -> None:
    chart, without = charts.timelines_chart(analysis_of(*compared().cells), timeline_of)
    assert without == {"mxnet sync": NASTY}
    overlapped = (
        "305 ms (timed: 1.00 s), 1.8 queues at once, 98 % of communication under computation"
    )
    in_turn = "552 ms (timed: 1.00 s), 1.0 queue at once, 0 % of communication under computation"
    assert [
        (one.name, one.remarks, [lane.name for lane in one.shown.lanes])
        for one in some(chart).panels
    ] == [
        ("MXNet", overlapped, ["host Python", "cpu:1 compute", "cpu:2 compute"]),
        ("PyTorch", overlapped, ["host Python", "cpu:1 compute", "cpu:1 copy"]),
        ("PyTorch without queue", in_turn, ["cpu calling thread"]),
    ]
    # Another case than the experiment's is named.
    other, _ = charts.timelines_chart(analysis_of(*compared("parallel").cells), lambda _: SMALL)
    assert some(other).panels[0].remarks == "50.0 ms of “increments”, 1.1 queues at once"


def test_many_experiments_share_the_page() -> None:
    drawn = [
        charts.timelines_chart(analysis_of(*compared().cells), lambda _: SMALL, count)[0]
        for count in (1, 20)
    ]
    alone, one_of_many = (sum(panel.shown.count for panel in some(chart).panels) for chart in drawn)
    assert 0 < one_of_many <= 300 < alone


@pytest.mark.parametrize(
    ("spans", "notes", "reason"),
    [
        # MXNet writes whole microseconds.
        (
            [Span("add", "compute", "cpu:1", "compute", 1, 1)],
            (),
            "nothing in its trace took any time",
        ),
        ((), ("too many devices",), "too many devices"),
    ],
)
def test_a_trace_without_anything_to_draw_says_why(
    spans: Sequence[Span], notes: tuple[str, ...], reason: str
) -> None:
    page = render(analyse(compared()), lambda _: Timeline("mxnet", spans, (), notes))
    assert f"Without a timeline: mxnet async ({reason}), mxnet sync ({reason}), " in page
    assert "chart-timelines" not in page
    # A comparison without traces says nothing of timelines.
    without = (
        render(analyse(compared()))
        .partition('<section id="overlap">')[2]
        .partition("</section>")[0]
    )
    assert "imeline" not in without


def test_the_folder_s_traces_come_into_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved_timelines(tmp_path) is None
    with claimed_folder(tmp_path, with_traces=True):
        pass
    read: list[Path] = []
    monkeypatch.setattr(
        storage, "read_timeline", lambda path: read.append(path) or TIMELINES["torch async"]
    )
    trace = trace_path(tmp_path, Cell("overlap", "torch", "async"))
    assert trace == tmp_path / "traces" / "overlap-torch-async.json.gz"
    trace.write_bytes(b"")
    page = write_report(analyse(compared()), tmp_path).read_text()
    assert read == [trace]
    assert 'id="chart-timelines-overlap"' in page
    assert "mxnet async (its process wrote no trace), " in page
