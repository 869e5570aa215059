"""The cost model over sizes: where its regimes meet, what is predicted, and what the sentences make of it."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from parallel_core.experiments.asynchronous_computation.cost_model import sizes_up_to
from parallel_core.experiments.asynchronous_computation.cost_model.verdicts import (
    Point,
    about_book,
    about_floor,
    about_overlap,
    about_predictions,
    crossing,
    disturbance,
    floor_left,
    missed,
    still_missed,
    verdict,
    what_would_change,
)
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case

SMALL: dict[str, Any] = {"largest": 40, "rounds": 2, "budget": 600.0}

SIZES = sizes_up_to(2**19)
US = 1e-6


def test_every_size_has_a_case_and_stands_on_every_curve(backend: Backend) -> None:
    result = parallel_core.run_cost_model(backend, largest=100, rounds=1, budget=600.0)
    assert result.series["elements"] == (2, 8, 32)
    assert [case.name for case in result.cases] == [f"increment of {size} elements" for size in (2, 8, 32)]
    assert result.series["seconds measured"] == tuple(case.median for case in result.cases)
    assert set(result.series) == {
        "elements",
        "seconds measured",
        "seconds longer of t1 and t2",
        "seconds book's formula",
        "seconds longer of both and disturbance",
        "seconds t1",
    }
    assert all(len(values) == 3 for values in result.series.values())
    assert all(20 <= case.repeats <= 1000 for case in result.cases)


def test_increments_that_are_wrong_make_the_result_invalid(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallel_core.experiments.measuring.relative_error", lambda *_: float("nan"))
    (problem,) = parallel_core.run_cost_model(backend, largest=2, rounds=1, budget=600.0).problems
    assert problem.startswith("increments differ from NumPy's by ")


@given(st.integers(1, 2**40))
def test_sizes_grow_by_four_up_to_the_largest(largest: int) -> None:
    sizes = sizes_up_to(largest)
    assert sizes[0] == 2
    assert all(later == 4 * size for size, later in pairwise(sizes))
    assert len(sizes) == 1 or sizes[-1] <= largest < 4 * sizes[-1]


def point(elements: int, t1: float, t2: float, measured: float | None = None, spread: float = 0.0) -> Point:
    ratio, noise = t2 / t1, max(spread, 0.05)
    model = CostModel(t1, t2, 0.0, Interval(ratio, ratio * (1 - noise), ratio * (1 + noise)))
    seconds = max(t1, t2) if measured is None else measured
    case = Case("any", (seconds * (1 - spread), seconds, seconds * (1 + spread)), (seconds,) * 3)
    return Point(elements, 10**6, model, case)


def proportional(t1: float, overhead: float, met: float) -> list[Point]:
    """Points whose t2 grows with the size, and is t1 at `met` elements where there is no overhead."""
    return [point(size, t1, overhead + t1 * size / met) for size in SIZES]


@given(st.floats(2.001, 2**19 - 1), st.floats(1e-7, 1e-3))
def test_the_regimes_meet_where_both_take_equally_long(met: float, t1: float) -> None:
    points = proportional(t1, 0.0, met)
    assert crossing(points) == pytest.approx(met, rel=1e-6)
    # Measured is the longer of both, so a straight line between logarithms is at its most wrong near the bend.
    left = floor_left(points)
    assert left is None or met / 4 < left < met * 2


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8))
def test_after_the_crossing_the_device_is_always_slower(ratios: list[float]) -> None:
    points = [point(2 * 4**index, 1.0, ratio) for index, ratio in enumerate(ratios)]
    met = crossing(points)
    if met is None:
        assert ratios[0] > 1 or ratios[-1] <= 1
    else:
        assert all(one.t2_over_t1 > 1 for one in points if one.elements > met * 1.000001)
        assert points[0].elements <= met * 1.000001 <= points[-1].elements * 1.00001


def test_predictions_are_per_increment_and_follow_the_slower_side() -> None:
    python, device = point(2, 3 * US, US), point(2, US, 3 * US)
    assert python.predicted == pytest.approx(3 * US, rel=1e-3)
    assert python.by_the_book == pytest.approx(US, rel=1e-3)
    assert device.predicted == pytest.approx(3 * US, rel=1e-3)
    assert device.by_the_book == pytest.approx(3 * US, rel=1e-3)
    assert point(2, 3 * US, US, 6 * US).prediction_error == pytest.approx(-0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("points", "sentences"),
    [
        (
            proportional(15 * US, US, 8192.0),
            [
                "Below about 7,",
                "Python is the slower side: with 2 elements t1 is 15.0 μs and t2 1.00 μs; with 524,288 elements t1 is",
            ],
        ),
        (
            proportional(2 * US, 5 * US, 8192.0),
            ["The assumption holds at every size", "with 2 elements t1 is 2.00 μs and t2 5.00 μs."],
        ),
        (
            [point(2, US, US * 0.001), point(8, 3 * US, US * 0.001)],
            ["Nothing was queued", "inside t1, 1.00 μs for 2 elements and 3.00 μs for 8."],
        ),
        ([point(2, US, US / 2), point(8, US, US / 2)], ["Python is the slower side at the largest size too"]),
        (
            [point(2, US, 0.97 * US), point(8, US, 4 * US)],
            ["The noise leaves open which side is the slower one at the smallest size"],
        ),
        ([point(2, US, 2 * US), point(8, US, US / 2), point(32, US, 4 * US)], ["changed more than once"]),
        # The same ratio is a verdict on a quiet machine and none on a noisy one.
        ([point(2, US, US / 2), point(8, US, 4 * US)], ["Below about 3 elements"]),
        ([point(2, US, 0.8 * US, spread=0.6), point(8, US, 4 * US)], ["The noise leaves open"]),
    ],
)
def test_where_the_assumption_holds_is_told(points: list[Point], sentences: list[str]) -> None:
    told = verdict(points)
    for sentence in sentences:
        assert sentence in told


@pytest.mark.parametrize(
    ("t1", "t2", "measured", "sentence"),
    [
        (3 * US, US, 3 * US, "gives 1.00 μs an increment, and 3.00 μs were measured: it says too little, for t1 is"),
        (US, 3 * US, 3 * US, "gives 3.00 μs an increment, and 3.00 μs were measured: no difference is shown."),
        (US, 3 * US, 6 * US, "were measured: it says too little."),
        (US, 3 * US, US, "were measured: it says too much."),
    ],
)
def test_whether_the_book_s_formula_needs_the_assumption_is_told(
    t1: float, t2: float, measured: float, sentence: str
) -> None:
    assert sentence in about_book(point(2, t1, t2, measured))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (proportional(15 * US, US, 8192.0), "Operations of more than about 7,"),
        (proportional(2 * US, 5 * US, 8192.0), "less than 2.00 μs for a tiny operation"),
        ([point(2, US, US / 2), point(8, US, US / 2)], "(--largest 128)"),
        ([point(2, US, 0.97 * US), point(8, US, 4 * US)], "--rounds 20"),
        ([point(2, US, US * 0.001), point(8, 3 * US, US * 0.001)], "that queues (--engine async)"),
    ],
)
def test_what_would_change_it_follows_from_the_points(queueing: Backend, points: list[Point], words: str) -> None:
    assert words in what_would_change(queueing, points)


def test_the_floor_is_held_against_the_crossing() -> None:
    early = [point(2, 4.0, 1.0, 4.0), point(8, 4.0, 2.0, 10.0), point(32, 4.0, 8.0, 20.0)]
    assert "elements on, which is 0.175 × as many as where t2 = t1 by the fit (16)." in about_floor(early)
    late = [point(2, 4.0, 1.0, 4.0), point(8, 4.0, 8.0, 4.0), point(32, 4.0, 32.0, 16.0)]
    assert "from 10 elements on, which is 1.98 × as many as where t2 = t1 by the fit (5)." in about_floor(late)
    twice = [point(2, 1.0, 2.0, 1.0), point(8, 1.0, 0.5, 4.0), point(32, 1.0, 8.0, 16.0)]
    assert about_floor(twice).endswith("elements on; t1 and t2 cross more than once.")
    assert "do not cross in this range" in about_floor([point(2, 1.0, 2.0), point(8, 1.0, 8.0)])
    assert "does not leave its floor of 1.00 s for good up to 8 elements" in about_floor(
        [point(2, 1.0, 0.5), point(8, 1.0, 0.5)]
    )


@pytest.mark.parametrize(
    ("t1", "t2", "measured", "sentence"),
    [
        (3.0, 5.0, 5.1, "At no size the longer of t1 and t2 is shown to be wrong; at the worst it predicts 5.00 s for"),
        (3.0, 5.0, 10.0, "(−50%). It took even longer than both in turn would, 5.00 s more than the longer side alone"),
        (
            3.0,
            5.0,
            7.0,
            "(−29%). It took 2.00 s more than the longer side alone (both in turn: 8.00 s): the sides disturb",
        ),
        (
            5.0,
            3.0,
            2.5,
            "t1 was measured while the device was busy with products, 5.00 s; in the run itself issuing took",
        ),
        (5.0, 0.001, 10.0, "(−50%). Nothing is queued"),
    ],
)
def test_a_model_that_misses_says_that_it_fails_and_why(t1: float, t2: float, measured: float, sentence: str) -> None:
    told = " ".join(about_predictions([point(2, t1, t2, measured)], ["a lock", "a core"]))
    assert sentence in told
    assert told.startswith("The model fails at 2 elements (1 of 1 sizes): ") == ("At no size" not in told)
    assert ("they share a lock and a core" in told) == ("At no size" not in told)


def test_a_miss_beyond_the_noise_is_told_before_a_larger_one_within() -> None:
    told, _ = about_predictions([point(2, 4.0, 2.0, 8.0, spread=0.9), point(8, 4.0, 2.0, 5.5)], [])
    assert "furthest off at 8 elements" in told
    assert "(−27%)" in told


def test_what_the_sides_disturb_each_other_is_found_at_other_sizes_of_the_same_regime() -> None:
    points = [point(2, 4.0, 1.0, 6.0), point(8, 4.0, 2.0, 6.1), point(32, 4.0, 8.0, 7.0), point(128, 4.0, 32.0, 31.0)]
    assert disturbance(points, points[0]) == pytest.approx(2.1, abs=0.01)
    assert disturbance(points, points[3]) == pytest.approx(-1.0, abs=0.01)
    assert disturbance(points[1:], points[1]) is None
    assert [one.elements for one in missed(points)] == [2, 8, 32]
    assert still_missed(points) == []
    _, better = about_predictions(points, [])
    assert "(+2.05 s where Python is slower and −1.00 s where the device is" in better
    assert better.endswith("is not shown to be wrong at any size.")


def test_a_disturbance_that_depends_on_the_size_makes_no_better_model() -> None:
    _, better = about_predictions([point(2, 4.0, 1.0, 6.0), point(8, 4.0, 2.0, 20.0)], [])
    assert better.endswith("is no better: it fails at 2 and 8 elements, so the disturbance depends on the size.")
    points = [point(2, 4.0, 1.0, 6.0), point(8, 4.0, 1.0, 6.0), point(32, 4.0, 1.0, 20.0), point(128, 4.0, 1.0, 6.0)]
    assert about_predictions(points, [])[1].endswith("holds but at 32 elements.")


def test_a_prediction_is_as_uncertain_as_the_parts_that_it_is_made_of() -> None:
    sure = point(2, 4.0, 2.0, 5.0)
    assert sure.misses()
    scattered = replace(sure, model=replace(sure.model, issued=(2.5, 4.0, 5.5), computed=(2.0, 2.0, 2.0)))
    assert not scattered.misses()


@pytest.mark.parametrize(
    ("t2", "measured", "spread", "sentence"),
    [
        (
            4.0,
            4.1,
            0.0,
            "the longer takes 4.00 s, both in turn 8.00 s, and 4.10 s were measured: the two sides worked",
        ),
        (4.0, 8.0, 0.0, "the two sides took turns, or hindered each other"),
        (4.0, 6.0, 0.0, "the noise leaves open whether"),
        (4.0, 4.1, 0.6, "the noise leaves open whether"),
    ],
)
def test_whether_both_sides_work_at_once_is_told(t2: float, measured: float, spread: float, sentence: str) -> None:
    (told,) = about_overlap([point(2, 4.0, 1.0), point(8, 4.0, t2, measured, spread)])
    assert "most alike at 8 elements" in told
    assert sentence in told


def test_where_no_size_makes_both_sides_alike_overlap_is_not_spoken_of() -> None:
    assert about_overlap([point(2, 4.0, 1.0), point(8, 4.0, 9.0)]) == ()
