"""A trial times what a program registers, in turn and within its budget, and compares values with NumPy's."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import backends
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.trial import Trial, Work


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A trial whose works return how long they took."""

    def taken(_: object, launch: Callable[[], object], __: object = None) -> tuple[float, float]:
        result = launch()
        seconds = sum(result) if isinstance(result, list) else result
        return seconds / 2, seconds  # type: ignore[operator]

    monkeypatch.setattr(trials, "measure", taken)
    return Trial(backends.load("numpy", 2), {}, rounds=2)


def works(seconds: float, alone: float) -> Work:
    return Work(lambda: seconds, lambda: alone)


def test_a_case_is_of_once_and_its_bare_time_is_that_of_the_slowest_unit(trial: Trial) -> None:
    first, second = works(24.0, 6.0), works(6.0, 12.0)
    trial.time("both", first, second, parts=("first",), repeats=6)
    trial.time("first", first)
    trial.time("none", first, bare=())
    cases = trial.run()
    assert cases["both"].seconds == (5.0, 5.0)
    assert cases["both"].dispatch_seconds == (2.5, 2.5)
    assert cases["both"].repeats == 6
    assert {name: one.bare_seconds for name, one in cases.items()} == {"both": (2, 2), "first": (6, 6), "none": ()}
    assert cases["both"].parts == ("first",)
    assert list(cases) == ["both", "first", "none"]


def test_what_comes_before_is_done_each_time_and_a_work_in_two_cases_is_one_unit_once(trial: Trial) -> None:
    done: list[str] = []
    counted = Work(lambda: done.append("work") or 1.0, lambda: done.append("unit") or 1.0)
    trial.time("one", counted, before=partial(done.append, "before"))
    trial.time("two", counted)
    trial.run()
    # A warm-up and two rounds.
    assert (done.count("before"), done.count("work"), done.count("unit")) == (3, 6, 3)
    assert done[0] == "before"


def test_phases_keep_the_cases_before_and_points_make_curves(trial: Trial) -> None:
    for at in (2, 1):
        trial.time(f"size {at}", works(at, at), curve="mine", at=at)
    trial.run()
    trial.time("later", works(3.0, 3.0), take=lambda: (1.0, 7.0))
    trial.run()
    assert list(trial.cases) == ["size 2", "size 1", "later"]
    assert trial.cases["later"].seconds == (7.0, 7.0)
    assert trial.points == {"mine": {2: 2.0, 1: 1.0}}


def test_rounds_that_are_given_are_taken_whatever_they_take_and_a_unit_may_be_a_part_or_more(trial: Trial) -> None:
    trial.budget = 1e-9
    trial.time("many", Work(lambda: 6.0, lambda: 4.0, times=0.5))
    case = trial.run(rounds=3)["many"]
    assert (case.seconds, case.bare_seconds) == ((6.0,) * 3, (2.0,) * 3)
    trial.found_by("half", lambda times: times["many"] / 12)
    trial.found_by("missing", lambda times: times["none"])
    assert {name: one.estimate for name, one in trial.figures.items()} == {"half": pytest.approx(0.5)}


def test_a_budget_that_is_spent_ends_the_rounds_after_the_first() -> None:
    spent, ample = (Trial(backends.load("numpy", 1), {}, rounds=9, budget=budget) for budget in (1e-6, 100.0))
    for trial in (spent, ample):
        trial.time("nothing", Work(lambda: None))
        trial.run()
    assert len(spent.cases["nothing"].seconds) == 1
    assert len(ample.cases["nothing"].seconds) == 9
    assert 40 < ample.left(0.5) <= 50 < ample.left(0.9) <= 90


def test_values_are_compared_with_numpy_s_and_the_largest_error_counts() -> None:
    trial = Trial(backends.load("numpy", 1), {})
    right = np.eye(2)
    trial.check("products", [right, 1.5 * right], [right, right])
    trial.check("products", [right], [right])
    assert trial.errors == {"products": 0.5}
    trial.check("sums", [right, np.full((2, 2), np.nan)], [right, right])
    assert math.isnan(trial.errors["sums"])
    trial.check("shapes", [np.ones(3)], [np.ones(2)])
    assert trial.errors["shapes"] == math.inf
    with pytest.raises(ValueError, match="zip"):
        trial.check("fewer", [right], [right, right])
