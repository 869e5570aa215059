"""Curves: places of points, what marks say, and what is left out."""

import math
from dataclasses import replace

import pytest

from parallel_core.comparison.analysis import Analysis, ExperimentAnalysis, analyse
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.plots.curves import CurvesChart
from parallel_core.plots.svg import inline
from parallel_core.report.charts import curves_chart, learning_curves
from tests.parallel_core.comparison.made_up import TIMES, every_chart
from tests.parallel_core.plots.drawn import Drawn


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse(every_chart())


def of(analysis: Analysis, name: str) -> ExperimentAnalysis:
    return next(one for one in analysis.experiments if one.experiment.name == name)


def drawn(chart: CurvesChart | None) -> CurvesChart:
    assert chart is not None
    return chart


def test_a_sweep_has_a_panel_for_each_cell_and_a_table(analysis: Analysis) -> None:
    chart = drawn(curves_chart(of(analysis, "allreduce"))[0])
    assert [panel.name for panel in chart.panels] == list(TIMES)
    for panel in chart.panels:
        assert [curve.label for curve in panel.curves] == ["plain copy", "star", "native"]
        # A bound is dotted and has no marks; measured curves differ by shape as well as by colour.
        assert [(curve.dash != "", curve.shape) for curve in panel.curves] == [(True, None), (False, 0), (False, 1)]
        assert [label for _, label in panel.x.ticks] == ["4 KiB", "4 MiB"]
    assert "star: 0.10 (0.10–0.10); each device's vector: 4 KiB" in Drawn(str(inline(chart, "curves"))).titles
    table = curves_chart(of(analysis, "allreduce"))[1]
    assert table[0][:3] == ("each device's vector", "mxnet async: plain copy", "mxnet async: star")
    assert [row[0] for row in table[1:]] == ["4 KiB", "4 MiB"]


def test_only_what_sweeps_has_curves(analysis: Analysis) -> None:
    parallel = of(analysis, "parallel")
    assert (curves_chart(parallel), learning_curves(analysis, parallel)) == ((None, ()), None)


def test_learning_curves_have_a_colour_for_a_framework_and_dots_without_a_queue(analysis: Analysis) -> None:
    losses, accuracies = drawn(learning_curves(analysis, of(analysis, "data-parallel"))).panels
    for panel in (losses, accuracies):
        assert [curve.label for curve in panel.curves] == list(TIMES)
        assert [curve.style for curve in panel.curves] == ["c0", "c0", "c1", "c1"]
        assert [curve.dash != "" for curve in panel.curves] == [False, True, False, True]


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_logarithmic_scale_needs_no_value_that_fits_it(analysis: Analysis, value: float) -> None:
    experiment = of(analysis, "allreduce")
    cell = experiment.cells[0]
    curves = {label: (Interval(value, value, value),) * 2 for label in cell.curves}
    chart = drawn(curves_chart(replace(experiment, cells=(replace(cell, curves=curves),)))[0])
    assert "nan" not in str(inline(chart, "curves"))
