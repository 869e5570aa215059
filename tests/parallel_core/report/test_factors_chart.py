"""The factors of ratios: two bars in a row that end where the whole ratio is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.comparison.analysis import ExperimentAnalysis, analyse
from parallel_core.report.factors_chart import FactorsChart, FactorsRow, factors_chart
from tests.parallel_core.comparison.made_up import comparison, failed, measured, parallel
from tests.parallel_core.report.pages import with_bare_times

DRIFT = (1.0, 1.001, 0.999, 1.002, 0.998)


def analysed(
    seconds: float, *, first: str = "mxnet", second: str = "torch", split: bool = True, processes: int = 5
) -> ExperimentAnalysis:
    """Analyse a cell against one that takes a second; MXNet computes half of its time, torch a quarter."""
    cells = [
        measured(parallel(name), [taken * drift for drift in DRIFT[:processes]])
        for name, taken in ((first, 1.0), (second, seconds))
    ]
    return analyse(comparison(*(with_bare_times(one) if split else one for one in cells))).experiments[0]


def drawn(experiment: ExperimentAnalysis) -> tuple[FactorsChart, FactorsRow]:
    chart = factors_chart(experiment)
    assert chart is not None
    (row,) = chart.rows
    return chart, row


@given(st.floats(0.01, 100))
def test_the_bars_are_a_chain_from_equal_times_to_the_ratio(seconds: float) -> None:
    chart, row = drawn(analysed(seconds))
    kernels, scheduling = row.factors
    assert kernels.start == chart.one == row.total.start
    assert scheduling.start == kernels.end
    assert scheduling.end == pytest.approx(row.total.end)
    assert all(0 < place < 100 for place in (kernels.start, kernels.end, scheduling.end))


def test_each_factor_has_its_value_and_its_verdict_in_words() -> None:
    chart, row = drawn(analysed(0.8))
    assert chart.against == "mxnet async"
    assert (row.name, row.total.words) == ("torch async", "faster")
    kernels, scheduling = row.factors
    assert (kernels.kind, kernels.words) == ("kernels", "computes faster")
    assert kernels.value.startswith("0.40 (")
    assert (scheduling.kind, scheduling.words) == ("scheduling", "schedules worse")
    assert scheduling.value.startswith("2.00 (")
    assert kernels.end < chart.one
    _, slow = drawn(analysed(4.0))
    assert [factor.words for factor in slow.factors] == ["computes slower", "schedules worse"]
    _, good = drawn(analysed(0.5, first="torch", second="mxnet"))
    assert [factor.words for factor in good.factors] == ["no difference shown", "schedules better"]


def test_a_ratio_without_bare_times_is_one_bar() -> None:
    chart, row = drawn(analysed(2.0, split=False))
    assert row.factors == ()
    assert not chart.split
    assert (row.total.start, row.total.words) == (chart.one, "slower")


def test_few_processes_are_said_and_do_not_stretch_the_scale() -> None:
    _, row = drawn(analysed(2.0, processes=1))
    assert row.total.bounds is None
    assert row.total.words == "too few runs"
    chart, row = drawn(analysed(2.0, processes=2))
    assert row.total.end - chart.one > 15


def test_nothing_is_drawn_where_nothing_is_compared() -> None:
    alone = analyse(comparison(measured(parallel("mxnet"), DRIFT), failed(parallel("torch")))).experiments[0]
    assert factors_chart(alone) is None
    assert factors_chart(replace(alone, cells=())) is None
