"""Bars: what is drawn of figures and times, and in which words."""

from dataclasses import replace

import pytest

from parallel_core.comparison.analysis import Analysis, analyse
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.experiments.asynchronous_computation.asynchrony import EACH, ONCE, SINGLE
from parallel_core.measurement.confidence_intervals import Interval, with_seconds
from parallel_core.plots.bars import BarsChart
from parallel_core.report.charts import (
    case_times_chart,
    cost_model_chart,
    differences_chart,
    dispatch_chart,
    layers_chart,
    metric_chart,
)
from tests.parallel_core.comparison.made_up import TIMES, comparison, every_chart, measured, parallel, result
from tests.parallel_core.comparison.test_account import made_of


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse(every_chart())


def bars_of(chart: BarsChart | None, group: str = "") -> list[tuple[str, str]]:
    assert chart is not None
    return [(bar.name, bar.value) for bar in chart.groups[group]]


def test_a_figure_has_a_bar_a_value_and_a_whisker_for_each_cell(analysis: Analysis) -> None:
    chart = metric_chart(analysis.experiments[0])
    assert [name for name, _ in bars_of(chart)] == list(TIMES)
    assert bars_of(chart)[1] == ("mxnet sync", "0.50 (0.48–0.52)")
    assert chart is not None
    first, second, *_ = chart.groups[""]
    assert first.start == second.start == 0
    assert first.end == pytest.approx(2 * second.end)
    assert (first.style, second.style) == ("total", "total hollow")
    assert second.bounds is not None
    assert second.bounds[0] < second.end < second.bounds[1]


def test_a_negative_figure_is_drawn_to_the_left_of_nothing() -> None:
    cells = [measured(parallel(name), (1.0, 1.01, 0.99)) for name in ("mxnet", "torch")]
    worse = tuple(replace(one, metrics={"parallel_speedup": -0.5}) for one in cells[1].results)
    analysis = analyse(comparison(cells[0], replace(cells[1], results=worse)))
    chart = metric_chart(analysis.experiments[0])
    assert chart is not None
    positive, negative = chart.groups[""]
    assert negative.end == chart.axis.scale.low == -0.5
    assert positive.end > positive.start == negative.start == 0


def test_a_single_process_has_no_whisker_and_two_do_not_shrink_the_bars() -> None:
    for times, has_whisker in (((1.0,), False), ((1.0, 2.0), True)):
        analysis = analyse(comparison(measured(parallel("mxnet"), times)))
        chart = case_times_chart(analysis.experiments[0])
        assert chart is not None
        ((bar,),) = chart.groups.values()
        assert (bar.bounds is not None) == has_whisker
        assert chart.axis.scale.place(bar.end) > 0.6


def test_times_stand_under_their_case_and_dispatch_under_its_experiment(analysis: Analysis) -> None:
    asynchronous = next(one for one in analysis.experiments if one.experiment.name == "async")
    assert bars_of(case_times_chart(asynchronous), "10 products")[0] == ("mxnet async", "200 ms (200–200)")
    assert bars_of(dispatch_chart(analysis), "parallel")[:1] == [("mxnet async", "100 ms of 1.00 s")]


def test_the_cost_model_is_drawn_where_it_was_measured(analysis: Analysis) -> None:
    drawn = [cost_model_chart(experiment) for experiment in analysis.experiments]
    (chart,) = filter(None, drawn)
    assert bars_of(chart, "torch sync, waiting once") == [
        ("measured", "100 ms (100–100)"),
        ("predicted", "90.0 ms (90.0–90.0)"),
        ("book’s formula", "50.0 ms (50.0–50.0)"),
    ]


def test_times_are_written_with_their_bounds() -> None:
    assert with_seconds(Interval(0.0201, 0.0198, 0.0209)) == "20.1 ms (19.8–20.9)"
    assert with_seconds(Interval(0.99, 0.98, 1.02)) == "990 ms (980 ms – 1.02 s)"
    assert with_seconds(Interval(0.99, 0.0, float("inf"))) == "990 ms"


def test_parts_of_a_difference_add_up_to_it() -> None:
    cells = [
        made_of(parallel(name), whole, {"operations": operations, "overhead": 0.2})
        for name, whole, operations in (("mxnet", 1.0, 0.6), ("torch", 1.5, 0.9))
    ]
    chart = differences_chart(analyse(comparison(*cells)).experiments[0])
    assert chart is not None
    ((first, overhead, rest, total),) = chart.groups.values()
    assert (first.start, first.end) == pytest.approx((0, 0.3))
    assert (overhead.start, overhead.end) == pytest.approx((0.3, 0.3))
    assert (rest.start, rest.end) == pytest.approx((0.3, 0.5))
    assert (total.start, total.end, total.style) == (0, pytest.approx(0.5), "total")


def test_each_layer_of_a_tiny_operation_begins_where_the_one_before_ended() -> None:
    seconds = {SINGLE: 0.3, ONCE: 0.6, EACH: 1.0}
    plain = result(Cell("async", "torch", "async"), seconds, parameters={"steps": 100})
    timed = (replace(case, bare_seconds=(0.2,)) if case.name == ONCE else case for case in plain.cases)
    cell = CellResults(Cell("async", "torch", "async"), (replace(plain, cases=tuple(timed)),))
    chart = layers_chart(analyse(comparison(cell)).experiments[0])
    assert chart is not None
    assert [value for _, value in bars_of(chart, "torch async")] == ["2.00 ms", "1.00 ms", "3.00 ms", "4.00 ms"]
    assert [bar.start for bar in chart.groups["torch async"]] == pytest.approx([0, 0.002, 0.003, 0.006])
    assert layers_chart(analyse(comparison(measured(parallel("torch"), (1.0,)))).experiments[0]) is None
