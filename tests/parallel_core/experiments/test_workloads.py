"""The rule by which a run chooses its work, on machines that are made up; and how a trial times
what is registered.

It does so in turn and within its budget, and compares values with NumPy's.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import backends
import parallel_core
from backends import Backend
from parallel_core.experiments import EXPERIMENTS, copying, workloads
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.parameters import Chosen, choose
from parallel_core.experiments.runner.trial import Trial, Work
from tests.parallel_core.experiments.runner.pretended import case
from tests.parallel_core.experiments.small import small

COPYING = [one for one in EXPERIMENTS["overlap"].parameters if isinstance(one, Chosen)]


def chosen(
    backend: Backend,
    patched: pytest.MonkeyPatch,
    budget: float = 30.0,
    speed: float = 1e11,
    bandwidth: float = 1e10,
) -> Any:
    """Choose what `overlap` does where a multiplication and a copy take what their operations and
    bytes do.
    """
    patched.setattr(workloads, "seconds_of_one", lambda _, size, count=1: 2 * size**3 / speed)
    patched.setattr(
        copying, "_seconds_of_a_copy", lambda *args: (31e-6, 4 * args[2] ** 2 / bandwidth)
    )
    made = Trial(backend, dict.fromkeys(one.name for one in COPYING), budget=budget)
    values = choose(made, COPYING)
    assert values.items() <= made.parameters.items()
    return values, made.described["chosen_by"]


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        # Issuing takes a tenth of a copy of 3.1 MB.
        ({}, (880, 22, "issuing", "time")),
        # It does so of smaller ones, too, of which 25 would take less than the usual time.
        ({"bandwidth": 8e9}, (840, 25, "time", "launches")),
        # It would only of such large ones that the fewest would take longer than usual, or than the
        # budget allows.
        ({"bandwidth": 2e10}, (992, 15, "time", "time")),
        ({"budget": 5.0}, (656, 15, "budget", "budget")),
        # A GPU behind a bus: a single copy takes longer than a multiplication.
        ({"bandwidth": 1e9, "speed": 2e12}, (4000, 15, "equal-parts", "time")),
        ({"bandwidth": 1e9, "speed": 5e12}, (8192, 15, "largest", "time")),
    ],
)
def test_what_is_multiplied_and_copied_is_chosen_by_one_rule(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    machine: dict[str, float],
    expected: tuple[int | str, ...],
) -> None:
    values, by = chosen(backend, monkeypatch, **machine)
    assert (values["size"], values["products"], by["size"], by["products"]) == expected
    assert by["copies"] == "equal-parts"
    copying = 4 * values["size"] ** 2 / machine.get("bandwidth", 1e10)
    assert values["copies"] == max(
        1, round(2 * values["size"] ** 3 / machine.get("speed", 1e11) / copying)
    )


def test_no_more_copies_are_chosen_than_their_option_takes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, by = chosen(backend, monkeypatch, bandwidth=1e14)
    assert (values["copies"], by["copies"]) == (
        {one.name: one.maximum for one in COPYING}["copies"],
        "largest",
    )


@pytest.mark.parametrize(("budget", "rule"), [(30.0, "time"), (2.0, "budget")])
def test_three_rounds_fit_a_budget(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, budget: float, rule: str
) -> None:
    monkeypatch.setattr(workloads, "seconds_of_one", lambda _, size, count=1: 2 * size**3 / 1e11)
    size, by = workloads.size_for_run(Trial(backend, {}, budget=budget), 6)
    of_all = workloads.MULTIPLICATIONS * 2 * size**3 / 1e11
    assert by == rule
    assert workloads.FEWEST_TIMINGS * 6 * of_all < budget
    assert of_all == pytest.approx(min(0.2, 0.6 * budget / 24), rel=0.05)


@pytest.mark.parametrize(("count", "times"), [(25, 1.0), (3000, 3.0)])
def test_calls_are_those_of_a_thousand_operations_at_the_most(
    backend: Backend, count: int, times: float
) -> None:
    (device, *_), made = backend.devices, Trial(backend, {})
    for launched in (workloads.multiplications, workloads.increments):
        work = launched(made, made.normal(2, device), count, device)
        assert (work.times, work.calls and work.calls.times) == (1, times)


@pytest.mark.parametrize(("issued", "is_noted"), [(0.4, False), (0.6, True)])
def test_a_copy_that_is_bound_by_issuing_is_noted(
    queueing: Backend, issued: float, is_noted: bool
) -> None:
    made = Trial(queueing, {})
    made.cases["copy"] = replace(case("copy", 1.0), dispatch_seconds=(issued,))
    copying.note_issuing(made, "copy")
    assert len(made.notes) == is_noted
    made.backend, made.notes = backends.load("numpy", 1), []
    copying.note_issuing(made, "copy")
    assert not made.notes


@pytest.mark.parametrize("engine", ["async", "sync"])
def test_a_sweep_has_shares_at_each_size(
    backend: Backend, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "engine", engine)
    result = parallel_core.run_overlap(
        backend, sizes=(24, 16, 32), products=3, copies=2, rounds=2, budget=600.0
    )
    assert (result.parameters["size"], result.parameters["sizes"]) == (32, "16,24,32")
    assert result.series["size"] == (16, 24, 32)
    assert len(result.series["copies"]) == 3
    assert result.series["share hidden"][-1] == pytest.approx(result.metrics["overlap_efficiency"])
    assert ("share issuing" in result.series) == (engine == "async")
    run, copy, together = (one for one in result.cases if one.name.endswith("size 16"))
    saved = run.median + copy.median - together.median
    assert result.series["share hidden"][0] == pytest.approx(saved / min(run.median, copy.median))
    assert together.parts == (run.name, copy.name)
    assert (
        "sizes"
        in parallel_core.run_overlap(backend, size=8, products=2, copies=1, rounds=1).parameters
    )


@pytest.mark.parametrize("engine", ["async", "sync"])
@pytest.mark.parametrize("experiment", ["parallel", "overlap"])
def test_the_price_of_overlap(
    backend: Backend, experiment: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "engine", engine)
    result = EXPERIMENTS[experiment].run(backend, **small(experiment))
    beside = [one.median for one in result.cases if one.name == workloads.BESIDE]
    assert len(beside) == ("price_of_overlap" in result.metrics) == (engine == "async")
    for seconds in beside:
        assert result.metrics["price_of_overlap"] == pytest.approx(
            seconds / result.cases[0].median - 1
        )


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A trial whose works return how long they took."""

    def taken(_: object, launch: Callable[[], object], __: object = None) -> tuple[float, float]:
        result = launch()
        seconds = sum(result) if isinstance(result, list) else result
        return seconds / 2, seconds  # type: ignore[operator]

    monkeypatch.setattr(trials, "measure", taken)
    return Trial(backends.load("numpy", 2), {}, rounds=2)


def taking(seconds: float, alone: float) -> Work:
    return Work(lambda: seconds, lambda: alone)


def test_a_case_is_of_once_and_its_bare_time_is_that_of_the_slowest_unit(trial: Trial) -> None:
    first, second = taking(24.0, 6.0), taking(6.0, 12.0)
    trial.time("both", first, second, parts=("first",), repeats=6)
    trial.time("first", first)
    trial.time("none", first, bare=())
    cases = trial.run()
    assert cases["both"].seconds == (5.0, 5.0)
    assert cases["both"].dispatch_seconds == (2.5, 2.5)
    assert cases["both"].repeats == 6
    assert {name: one.bare_seconds for name, one in cases.items()} == {
        "both": (2, 2),
        "first": (6, 6),
        "none": (),
    }
    assert cases["both"].parts == ("first",)
    assert list(cases) == ["both", "first", "none"]


def test_what_comes_before_is_done_each_time_and_a_work_in_two_cases_is_one_unit_once(
    trial: Trial,
) -> None:
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
        trial.time(f"size {at}", taking(at, at), curve="mine", at=at)
    trial.run()
    trial.time("later", taking(3.0, 3.0), take=lambda: (1.0, 7.0))
    trial.run()
    assert list(trial.cases) == ["size 2", "size 1", "later"]
    assert trial.cases["later"].seconds == (7.0, 7.0)
    assert trial.points == {"mine": {2: 2.0, 1: 1.0}}


def test_rounds_that_are_given_are_taken_whatever_they_take_and_a_unit_may_be_a_part_or_more(
    trial: Trial,
) -> None:
    trial.budget = 1e-9
    trial.time("many", Work(lambda: 6.0, lambda: 4.0, times=0.5))
    case = trial.run(rounds=3)["many"]
    assert (case.seconds, case.bare_seconds) == ((6.0,) * 3, (2.0,) * 3)
    trial.found_by("half", lambda times: times["many"] / 12)
    trial.found_by("missing", lambda times: times["none"])
    assert {name: one.estimate for name, one in trial.figures.items()} == {
        "half": pytest.approx(0.5)
    }


def test_a_budget_that_is_spent_ends_the_rounds_after_the_first() -> None:
    spent, ample = (
        Trial(backends.load("numpy", 1), {}, rounds=9, budget=budget) for budget in (1e-6, 100.0)
    )
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
