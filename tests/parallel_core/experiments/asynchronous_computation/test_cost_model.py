"""`cost-model`: where the model's regimes meet, and at which sizes it misses what was measured."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from parallel_core.experiments import workloads
from parallel_core.experiments.asynchronous_computation import fitting
from parallel_core.experiments.asynchronous_computation.cost_model import (
    CostModel,
    Point,
    crossing,
)
from parallel_core.measurement.confidence_intervals import exponential
from parallel_core.measurement.result import Case
from tests.parallel_core.experiments.runner.pretended import case


def test_the_cost_model_repeats_the_slower_side() -> None:
    short, long = case("short", 1.0), case("long", 3.0)
    device_bound = CostModel(issued=short, computed=long, t3=2.0)
    assert device_bound.waiting_once(10) == 1 + 10 * 3 + 2
    assert device_bound.waiting_once_by_the_book(10) == 1 + 10 * 3 + 2
    assert device_bound.t2_over_t1.estimate == pytest.approx(3)
    python_bound = CostModel(issued=long, computed=short, t3=2.0)
    assert python_bound.waiting_once(10) == 10 * 3 + 1 + 2
    assert python_bound.waiting_once_by_the_book(10) == 3 + 10 * 1 + 2


@pytest.mark.parametrize("seconds", [31.0, 80.0, 10.0])
def test_increments_are_held_against_what_the_model_predicts(seconds: float) -> None:
    def spread(middle: float) -> Case:
        return case("any", middle - 0.01, middle, middle + 0.01)

    issued, computed, measured = spread(1.0), spread(3.0), spread(seconds / 10)
    error = CostModel(issued, computed, 0.0).log_error(measured, 10**6)
    over_predicted = exponential(error)
    # The longer of both sets the pace: 3 s for each of ten.
    assert over_predicted.estimate == pytest.approx(seconds / 30, rel=0.01)
    assert over_predicted.low <= over_predicted.estimate <= over_predicted.high


def test_every_size_has_a_case_stands_on_every_curve_and_is_asked_about_among_all_sizes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_rounds = fitting.over_rounds
    among: list[int] = []

    def recorded(*arguments: Any, **options: Any) -> Any:
        among.append(options.get("among", 1))
        return over_rounds(*arguments, **options)

    monkeypatch.setattr(fitting, "over_rounds", recorded)
    result = parallel_core.run_cost_model(backend, largest=100, rounds=1, budget=600.0)
    assert result.series["elements"] == (2, 8, 32)
    names = [case.name for case in result.cases]
    assert names == [f"increment of {size} elements" for size in (2, 8, 32)]
    assert result.series["seconds measured"] == tuple(case.median for case in result.cases)
    assert [len(values) for values in result.series.values()] == [3] * 5
    assert all(20 <= case.repeats <= 1000 for case in result.cases)
    # Each of three sizes: whether it is missed, and unknown.
    assert among == [3] * (2 * 3)


def point(
    elements: int, t1: float, t2: float, measured: float | None = None, spread: float = 0.0
) -> Point:
    """Return a size whose increment was measured: as predicted, unless seconds are given."""
    model = CostModel(case("t1", t1, t1, t1), case("t2", t2, t2, t2), 0.0)
    seconds = max(t1, t2) if measured is None else measured
    increment = case("any", seconds * (1 - spread), seconds, seconds * (1 + spread))
    return Point(elements, 10**6, model, increment)


@given(meeting=st.floats(2.001, 2**19 - 1), t1=st.floats(1e-7, 1e-3))
def test_the_regimes_meet_where_both_take_equally_long(meeting: float, t1: float) -> None:
    points = [point(size, t1, t1 * size / meeting) for size in workloads.geometric(2, 2**19, 4)]
    assert crossing(points) == pytest.approx(meeting, rel=1e-6)


@given(ratios=st.lists(st.floats(0.01, 100), min_size=2, max_size=8))
def test_after_the_crossing_the_device_is_always_slower(ratios: list[float]) -> None:
    points = [point(2 * 4**index, 1.0, ratio) for index, ratio in enumerate(ratios)]
    meeting = crossing(points)
    if meeting is None:
        assert ratios[0] > 1 or ratios[-1] <= 1
    else:
        beyond_rounding = meeting * 1.000001
        beyond = [point for point in points if point.elements > beyond_rounding]
        assert not any(point.model.python_is_slower for point in beyond)
        assert points[0].elements <= beyond_rounding <= points[-1].elements * 1.00001


@pytest.mark.parametrize(("t1", "t2"), [(3e-6, 1e-6), (1e-6, 3e-6)])
def test_a_prediction_is_per_increment(t1: float, t2: float) -> None:
    assert point(2, t1, t2).predicted == pytest.approx(3e-6, rel=1e-3)


def test_a_prediction_is_as_uncertain_as_its_time_and_its_parts() -> None:
    certain = point(2, 4.0, 2.0, measured=5.0)
    assert certain.misses()
    assert not certain.is_unknown()
    uncertain_issuing = replace(certain.model, issued=case("t1", 2.5, 4.0, 5.5))
    assert not replace(certain, model=uncertain_issuing).misses()
    assert not point(2, 4.0, 2.0, measured=5.0, spread=0.4).misses()
    close = point(2, 4.0, 2.0, measured=4.1)
    assert not close.misses()
    assert not close.is_unknown()


def test_a_time_that_is_known_by_a_factor_of_ten_leaves_a_prediction_unknown() -> None:
    assert point(2, 4.0, 2.0, measured=40.0).misses()
    # A tenth of what was measured cannot be called within the noise of such a time.
    assert point(2, 4.0, 2.0, measured=40.0, spread=0.95).is_unknown()
    single_round = replace(point(2, 4.0, 2.0, measured=40.0), case=case("any", 40.0))
    assert not single_round.misses()
    assert single_round.is_unknown()


def test_a_narrow_miss_is_none_among_ten_questions() -> None:
    narrow = point(2, 4.0, 2.0, measured=4.33, spread=0.02)
    assert narrow.misses()
    assert not narrow.misses(among=10)
