"""The report's charts and tables: what is shown of times, differences, curves and timelines, in
which words, and what is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from backends.profiling import Doubt, Span, Timeline
from parallel_core.compare import storage
from parallel_core.compare.analysis import ExperimentAnalysis, analyse
from parallel_core.compare.results import Cell, CellResults, Comparison
from parallel_core.compare.storage import claimed_folder, saved_timelines, trace_path
from parallel_core.experiments.asynchronous_computation.increments import EACH, ONCE, SINGLE
from parallel_core.measurement.confidence_intervals import Interval, with_seconds
from parallel_core.report import charts, write_report
from parallel_core.report.page import render
from parallel_core.report.plots.svg import inline
from parallel_core.report.tables import case_times_table, differences_table
from tests.parallel_core.compare.made_up import (
    NASTY,
    TIMES,
    comparison,
    every_chart,
    failed,
    measured,
    parallel,
    result,
)
from tests.parallel_core.compare.test_time_differences import made_of
from tests.parallel_core.report.pages import TIMELINES, timeline_of, with_bare_times
from tests.parallel_core.report.plots.drawn import Drawn
from tests.parallel_core.report.plots.frameworks import many_small

Present = TypeVar("Present")
ANALYSIS = cache(lambda: analyse(every_chart()))

TITLES = ["MXNet", "MXNet without queues", "PyTorch", "PyTorch without queues"]


def experiment_named(name: str) -> ExperimentAnalysis:
    """Return the analysis of an experiment of the comparison with every chart."""
    by_name = {analysed.experiment.name: analysed for analysed in ANALYSIS().experiments}
    return by_name[name]


def analysis_of(*cells: CellResults) -> ExperimentAnalysis:
    """Return the analysis of the only experiment of these cells."""
    (experiment,) = analyse(comparison(*cells)).experiments
    return experiment


def present(value: Present | None) -> Present:
    """Return a value that must not be missing."""
    assert value is not None
    return value


def has_bounds(value: str) -> bool:
    """Return whether a value in words has bounds, such as `1.0 (0.9–1.1)`."""
    return "–" in value or "…" in value


@pytest.mark.parametrize("times", [(1.0,), (1.0, 2.0), (1.0, 2.0, 4.0)])
def test_times_have_bounds_from_three_processes_on_and_differences_from_two(
    times: tuple[float, ...],
) -> None:
    mxnet, torch = (with_bare_times(measured(parallel(name), times)) for name in ("mxnet", "torch"))
    experiment = analysis_of(mxnet, torch)
    _, (_, *times_of_case) = case_times_table(experiment)
    assert [has_bounds(value) for value in times_of_case] == [len(times) >= 3] * 2
    _, (_, *parts) = differences_table(experiment)
    assert any(map(has_bounds, parts)) == (len(times) >= 2)


def test_times_stand_beside_their_case_and_below_their_cell() -> None:
    (case, *titles), *rows = case_times_table(experiment_named("async"))
    assert (case, *titles) == ("case", *TITLES)
    times_of_case = {name: times for name, *times in rows}
    assert times_of_case["10 products"][0] == "200 ms (200–200)"
    row = present(charts.dispatch_chart(ANALYSIS())).groups["parallel: on all together"][0]
    dispatch, computation = row.parts
    assert row.value == "100 ms of 1.00 s"
    assert (dispatch.start, dispatch.end) == pytest.approx((0, 0.1), rel=0.01)
    assert (computation.start, computation.end) == pytest.approx((0.1, 1.0), rel=0.01)


def test_a_case_that_a_cell_does_not_have_has_no_time_there() -> None:
    mxnet, torch = (measured(parallel(name), (1.0,)) for name in ("mxnet", "torch"))
    (torch_result,) = torch.results
    more_cases = (*torch_result.cases, replace(torch_result.cases[0], name="another"))
    torch = replace(torch, results=(replace(torch_result, cases=more_cases),))
    *_, row = case_times_table(analysis_of(mxnet, torch))
    assert row == ("another", "", "1.00 s")


def test_parts_of_a_difference_add_up_to_it() -> None:
    mxnet = made_of(parallel("mxnet"), 1.0, {"operations": 0.6, "overhead": 0.2})
    torch = made_of(parallel("torch"), 1.5, {"operations": 0.9, "overhead": 0.2})
    headings, *rows = differences_table(analysis_of(mxnet, torch))
    assert headings == (
        "difference",
        "operations",
        "launching",
        "copying",
        "waiting",
        "together",
    )
    ((sides, *parts),) = rows
    operations, _, copies, waiting, together = (part.partition(" (")[0] for part in parts)
    assert sides == "PyTorch against MXNet"
    assert (operations, copies, waiting, together) == ("300 ms", "", "200 ms", "500 ms")


def test_times_are_written_with_their_bounds() -> None:
    assert with_seconds(Interval(0.0201, 0.0198, 0.0209)) == "20.1 ms (19.8–20.9)"
    assert with_seconds(Interval(0.99, 0.98, 1.02)) == "990 ms (980 ms – 1.02 s)"
    assert with_seconds(Interval(0.99, 0.0, float("inf"))) == "990 ms"


def test_each_layer_of_a_tiny_operation_begins_where_the_one_before_ended() -> None:
    cell = Cell("async", "torch", "async")
    seconds = {SINGLE: 0.3, ONCE: 0.6, EACH: 1.0}
    without_bare_times = result(cell, seconds, parameters={"steps": 100})
    cases = tuple(
        replace(case, bare_seconds=(0.2,)) if case.name == ONCE else case
        for case in without_bare_times.cases
    )
    experiment = analysis_of(CellResults(cell, (replace(without_bare_times, cases=cases),)))
    ((row,),) = present(charts.layers_chart(experiment)).groups.values()
    assert row.value == "10.0 ms"
    assert [part.start for part in row.parts] == pytest.approx([0, 0.002, 0.003, 0.006])
    assert row.parts[-1].end == pytest.approx(0.01)
    assert charts.layers_chart(experiment_named("parallel")) is None


def test_a_sweep_has_a_panel_for_each_cell() -> None:
    chart, _ = charts.curves_chart(experiment_named("allreduce"))
    panels = present(chart).panels
    assert [panel.name for panel in panels] == TITLES
    for panel in panels:
        bound, star, native = panel.curves
        assert [curve.label for curve in panel.curves] == ["plain copy", "star", "native"]
        # A bound is dotted and has no marks; measured curves differ by shape as well as by colour.
        assert [bool(curve.dash) for curve in (bound, star, native)] == [True, False, False]
        assert [curve.shape for curve in (bound, star, native)] == [None, 0, 1]
        assert [label for _, label in panel.x.ticks] == ["4 KiB", "4 MiB"]
    titles = Drawn(str(inline(chart, "curves"))).titles
    assert "star: 0.10 (0.10–0.10); each device's vector: 4 KiB" in titles
    assert charts.curves_chart(experiment_named("parallel")) == (None, ())


def test_a_sweep_has_a_table_with_a_row_for_each_size() -> None:
    _, (header, *rows) = charts.curves_chart(experiment_named("allreduce"))
    assert header[:3] == ("each device's vector", "MXNet: plain copy", "MXNet: star")
    assert [row[0] for row in rows] == ["4 KiB", "4 MiB"]


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_logarithmic_scale_needs_no_value_that_fits_it(value: float) -> None:
    experiment = experiment_named("allreduce")
    cell = experiment.cells[0]
    curves = {label: (Interval(value, value, value),) * 2 for label in cell.curves}
    chart, _ = charts.curves_chart(replace(experiment, cells=(replace(cell, curves=curves),)))
    assert "nan" not in str(inline(present(chart), "curves"))


def test_learning_curves_have_a_colour_for_a_framework_and_dots_without_a_queue() -> None:
    chart = present(charts.learning_curves(ANALYSIS(), experiment_named("data-parallel")))
    for panel in chart.panels:
        assert [curve.label for curve in panel.curves] == TITLES
        assert [curve.style for curve in panel.curves] == ["c0", "c0", "c1", "c1"]
        assert [bool(curve.dash) for curve in panel.curves] == [False, True, False, True]
    assert charts.learning_curves(ANALYSIS(), experiment_named("parallel")) is None


def compared(experiment: str = "overlap") -> Comparison:
    """Return a comparison of all sides in an experiment, in which NumPy failed."""
    cells = [measured(Cell(experiment, *side.split()), (1.0, 1.01)) for side in TIMES]
    return comparison(*cells, failed(Cell(experiment, "numpy", "sync")))


SMALL = many_small(4000)


def test_each_cell_has_a_panel_that_says_what_is_seen() -> None:
    chart, reasons_without = charts.timelines_chart(analysis_of(*compared().cells), timeline_of)
    assert reasons_without == {"MXNet without queues": NASTY}
    overlapped = (
        "305 ms (timed: 1.00 s), 1.8 queues at once, 98 % of communication alongside computation"
    )
    in_turn = (
        "552 ms (timed: 1.00 s), 1.0 queue at once, 0 % of communication alongside computation"
    )
    panels = {
        panel.name: (panel.remarks, [lane.name for lane in panel.shown.lanes])
        for panel in present(chart).panels
    }
    assert list(panels.items()) == [
        ("MXNet", (overlapped, ["host Python", "cpu:1 compute", "cpu:2 compute"])),
        ("PyTorch", (overlapped, ["host Python", "cpu:1 compute", "cpu:1 copy"])),
        ("PyTorch without queues", (in_turn, ["cpu calling thread"])),
    ]


def test_a_panel_names_a_case_that_is_not_the_experiment_s() -> None:
    experiment = analysis_of(*compared("parallel").cells)
    chart, _ = charts.timelines_chart(experiment, lambda _: SMALL)
    first_panel = present(chart).panels[0]
    assert first_panel.remarks == "50.0 ms of “increments”, 1.1 queues at once"


def test_many_experiments_share_the_page() -> None:
    experiment = analysis_of(*compared().cells)

    def blocks_of_page(experiments: int) -> int:
        """Return how many blocks the timelines have where experiments share a page."""
        chart, _ = charts.timelines_chart(experiment, lambda _: SMALL, experiments)
        return sum(panel.shown.count for panel in present(chart).panels)

    assert blocks_of_page(1) > 300
    assert 0 < blocks_of_page(20) <= 300


@pytest.mark.parametrize(
    ("spans", "notes", "reason"),
    [
        # MXNet writes whole microseconds.
        (
            [Span("add", "compute", "cpu:1", "compute", 1, 1)],
            (),
            "nothing in its trace took any time",
        ),
        ((), (Doubt("many", "too many devices"),), "too many devices"),
    ],
)
def test_a_trace_without_anything_to_draw_says_why(
    spans: Sequence[Span], notes: tuple[Doubt, ...], reason: str
) -> None:
    page = render(analyse(compared()), lambda _: Timeline("mxnet", spans, (), notes))
    assert f"Without a timeline: MXNet ({reason}), MXNet without queues ({reason}), " in page
    assert "chart-timelines" not in page


def test_a_comparison_without_traces_says_nothing_of_timelines() -> None:
    page = render(analyse(compared()))
    section = page.partition('<section id="overlap"')[2].partition("</section>")[0]
    assert section
    assert "imeline" not in section


def test_the_folder_s_traces_come_into_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved_timelines(tmp_path) is None
    with claimed_folder(tmp_path, with_traces=True):
        pass
    read_paths: list[Path] = []

    def read_timeline(path: Path) -> Timeline:
        read_paths.append(path)
        return TIMELINES["torch async"]

    monkeypatch.setattr(storage, "read_timeline", read_timeline)
    trace = trace_path(tmp_path, Cell("overlap", "torch", "async"))
    assert trace == tmp_path / "traces" / "overlap-torch-async.json.gz"
    trace.write_bytes(b"")
    page = write_report(analyse(compared()), tmp_path).read_text()
    assert read_paths == [trace]
    assert 'id="chart-timelines-overlap"' in page
    assert "MXNet (its process wrote no trace), " in page
