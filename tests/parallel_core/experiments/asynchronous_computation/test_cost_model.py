"""The cost model over sizes: where its regimes meet, what is predicted, and at which sizes it misses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from parallel_core.experiments.asynchronous_computation import cost_model as module
from parallel_core.experiments.asynchronous_computation.cost_model import CostModel, Point, crossing, disturbance
from parallel_core.experiments.works import geometric
from tests.parallel_core.experiments.runner.pretended import case


def test_every_size_has_a_case_and_stands_on_every_curve(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    right, among = module.over_rounds, list[int]()
    monkeypatch.setattr(module, "over_rounds", lambda *a, **k: among.append(k.get("among", 1)) or right(*a, **k))
    result = parallel_core.run_cost_model(backend, largest=100, rounds=1, budget=600.0)
    assert result.series["elements"] == (2, 8, 32)
    assert [one.name for one in result.cases] == [f"increment of {size} elements" for size in (2, 8, 32)]
    assert result.series["seconds measured"] == tuple(one.median for one in result.cases)
    predictions = ("longer of t1 and t2", "book's formula", "longer of both and disturbance", "t1")
    assert set(result.series) == {"elements", "seconds measured", *(f"seconds {label}" for label in predictions)}
    assert all(len(values) == 3 for values in result.series.values())
    assert all(20 <= one.repeats <= 1000 for one in result.cases)
    # Each size, without the disturbance and with it.
    assert among == [3] * 6


def point(elements: int, t1: float, t2: float, measured: float | None = None, spread: float = 0.0) -> Point:
    model = CostModel(case("t1", *(t1,) * 3), case("t2", *(t2,) * 3), 0.0)
    seconds = max(t1, t2) if measured is None else measured
    return Point(elements, 10**6, model, case("any", seconds * (1 - spread), seconds, seconds * (1 + spread)))


@given(st.floats(2.001, 2**19 - 1), st.floats(1e-7, 1e-3))
def test_the_regimes_meet_where_both_take_equally_long(met: float, t1: float) -> None:
    points = [point(size, t1, t1 * size / met) for size in geometric(2, 2**19, 4)]
    assert crossing(points) == pytest.approx(met, rel=1e-6)
    # Measured is the longer of both, so a straight line between logarithms is at its most wrong near the bend.
    left = module.floor_left(points)
    assert left is None or met / 4 < left < met * 2


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8))
def test_after_the_crossing_the_device_is_always_slower(ratios: list[float]) -> None:
    points = [point(2 * 4**index, 1.0, ratio) for index, ratio in enumerate(ratios)]
    met = crossing(points)
    if met is None:
        assert ratios[0] > 1 or ratios[-1] <= 1
    else:
        assert all(not one.model.python_is_slower for one in points if one.elements > met * 1.000001)
        assert points[0].elements <= met * 1.000001 <= points[-1].elements * 1.00001


def test_what_the_sides_disturb_each_other_is_found_at_other_sizes_of_the_same_regime() -> None:
    points = [point(2, 4.0, 1.0, 6.0), point(8, 4.0, 2.0, 6.1), point(32, 4.0, 8.0, 7.0), point(128, 4.0, 32.0, 31.0)]
    assert disturbance(points, points[0]) == pytest.approx(2.1, abs=0.01)
    assert disturbance(points, points[3]) == pytest.approx(-1.0, abs=0.01)
    assert disturbance(points[1:], points[1]) == 0
    assert [one.elements for one in points if one.misses()] == [2, 8, 32]
    assert not any(one.misses(disturbance(points, one)) for one in points)
    grows = [point(2, 4.0, 1.0, 6.0), point(8, 4.0, 1.0, 6.0), point(32, 4.0, 1.0, 20.0), point(128, 4.0, 1.0, 6.0)]
    assert [one.elements for one in grows if one.misses(disturbance(grows, one))] == [32]


def test_a_prediction_is_per_increment_and_as_uncertain_as_its_time_and_its_parts() -> None:
    for t1, t2 in ((3e-6, 1e-6), (1e-6, 3e-6)):
        assert point(2, t1, t2).predicted == pytest.approx(3e-6, rel=1e-3)
    sure = point(2, 4.0, 2.0, 5.0)
    assert sure.misses()
    assert not replace(sure, model=replace(sure.model, issued=case("t1", 2.5, 4.0, 5.5))).misses()
    assert not point(2, 4.0, 2.0, 5.0, spread=0.4).misses()
    assert not point(2, 4.0, 2.0, 4.1).misses()
    narrowly = point(2, 4.0, 2.0, 4.33, spread=0.02)
    assert (narrowly.misses(), narrowly.misses(among=10)) == (True, False)
