"""Curves: places of points, what marks say, and what is left out."""

import math
from dataclasses import replace

import pytest

from parallel_core.comparison.analysis import Analysis, ExperimentAnalysis, analyse
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.report.curves_chart import MAX_POINTS, CurvesChart, curves_chart, learning_chart
from tests.parallel_core.comparison.made_up import TIMES, every_chart


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse(every_chart())


def of(analysis: Analysis, name: str) -> ExperimentAnalysis:
    return next(one for one in analysis.experiments if one.experiment.name == name)


def drawn(chart: CurvesChart | None) -> CurvesChart:
    assert chart is not None
    return chart


def test_a_sweep_has_a_panel_for_each_cell_and_a_legend_for_all(analysis: Analysis) -> None:
    chart = drawn(curves_chart(of(analysis, "allreduce")))
    assert [panel.name for panel in chart.panels] == list(TIMES)
    assert [curve.label for curve in chart.legend] == ["plain copy", "star", "native"]
    # A bound is dotted and has no marks; measured curves differ by shape as well as by colour.
    assert [(curve.dash != "", curve.shape) for curve in chart.legend] == [(True, None), (False, 0), (False, 1)]
    assert [tick.label for tick in chart.x_ticks] == ["4 KiB", "4 MiB"]
    star = chart.panels[0].curves[1]
    assert star.marks[0].text == "star: 0.10 (0.10–0.10) at 4 KiB"
    assert star.marks[0].y > star.marks[1].y
    assert chart.table[0][:3] == ("each device's vector", "mxnet async: plain copy", "mxnet async: star")
    assert [row[0] for row in chart.table[1:]] == ["4 KiB", "4 MiB"]


def test_a_point_that_is_no_number_is_left_out(analysis: Analysis) -> None:
    experiment = of(analysis, "allreduce")
    cell = experiment.cells[0]
    holed = {**cell.curves, "star": (Interval(*[math.nan] * 3), cell.curves["star"][1])}
    chart = drawn(curves_chart(replace(experiment, cells=(replace(cell, curves=holed),))))
    assert [len(curve.marks) for curve in chart.panels[0].curves] == [2, 1, 2]
    assert "nan" not in chart.panels[0].curves[1].points


def test_only_what_sweeps_has_curves(analysis: Analysis) -> None:
    assert curves_chart(of(analysis, "parallel")) is None
    assert learning_chart(analysis, of(analysis, "parallel")) is None


def test_learning_curves_are_thinned_and_thinner_one_by_one(analysis: Analysis) -> None:
    experiment = of(analysis, "data-parallel")
    losses, accuracies = drawn(learning_chart(analysis, experiment)).panels
    assert [curve.label for curve in losses.curves] == list(TIMES)
    widths = [curve.width for curve in losses.curves]
    assert widths == sorted(widths, reverse=True)
    # One process has no interval.
    assert accuracies.curves[0].marks[-1].text == "mxnet async: 0.5 at epoch 2"
    cell = experiment.cells[0]
    long = replace(cell.results.valid[0], series={"loss": (2.0,) * 10_000, "test_accuracy": (0.1,)})
    results = replace(cell.results, results=(long,))
    chart = drawn(learning_chart(analysis, replace(experiment, cells=(replace(cell, results=results),))))
    assert len(chart.panels[0].curves[0].points.split()) <= MAX_POINTS
    # The last batch is not among the points, and the last epoch has its mark.
    assert [chart.x_ticks[-1].label, chart.x_ticks[-1].place] == ["1", 100]


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_logarithmic_scale_needs_no_value_that_fits_it(analysis: Analysis, value: float) -> None:
    experiment = of(analysis, "allreduce")
    cell = experiment.cells[0]
    curves = {label: (Interval(value, value, value),) * 2 for label in cell.curves}
    assert drawn(curves_chart(replace(experiment, cells=(replace(cell, curves=curves),)))).panels
