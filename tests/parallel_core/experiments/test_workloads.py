"""The rule by which a run chooses its work, on machines that are made up; and how a trial times
what is registered.

It does so in turn and within its budget, and compares values with NumPy's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import backends
from backends import Backend
from parallel_core.experiments import EXPERIMENTS, copying, probing, workloads
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.parameters import Chosen, choose
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from tests.parallel_core.experiments.runner.pretended import case
from tests.parallel_core.experiments.small import small

COPYING = [
    parameter for parameter in EXPERIMENTS["overlap"].parameters if isinstance(parameter, Chosen)
]


@dataclass(frozen=True)
class Machine:
    """A machine that is made up, and the seconds that a run on it may take."""

    budget: float = 30.0
    operations_per_second: float = 1e11
    bytes_per_second: float = 1e10

    def seconds_of_multiplication(self, size: int) -> float:
        """Return what a multiplication of two square matrices takes."""
        return 2 * size**3 / self.operations_per_second

    def seconds_of_copy(self, size: int) -> float:
        """Return what a copy of a square matrix takes."""
        return 4 * size**2 / self.bytes_per_second


def choose_overlap(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what `overlap` does on a machine, and the rule by which each value was chosen."""
    issuing_seconds = 31e-6
    monkeypatch.setattr(probing, "free_memory", lambda: 10**12)
    monkeypatch.setattr(
        workloads,
        "seconds_of_one",
        lambda _, size, count=1: machine.seconds_of_multiplication(size),
    )
    monkeypatch.setattr(
        copying,
        "_seconds_of_a_copy",
        lambda _backend, _target, size, *_: (issuing_seconds, machine.seconds_of_copy(size)),
    )
    not_given = dict.fromkeys(parameter.name for parameter in COPYING)
    trial = Trial(backend, not_given, budget=machine.budget)
    values = choose(trial, COPYING)
    assert values.items() <= trial.parameters.items()
    return values, trial.described["chosen_by"]


@pytest.mark.parametrize(
    ("machine", "size", "size_rule", "products", "products_rule"),
    [
        # Issuing takes a tenth of a copy of 3.1 MB.
        (Machine(), 880, "issuing", 22, "time"),
        # It does so of smaller ones, too, of which 25 would take less than the usual time.
        (Machine(bytes_per_second=8e9), 840, "time", 25, "launches"),
        # It would only of such large ones that the fewest would take longer than usual, or than the
        # budget allows.
        (Machine(bytes_per_second=2e10), 992, "time", 15, "time"),
        (Machine(budget=5.0), 656, "budget", 15, "budget"),
        # A GPU behind a bus: a single copy takes longer than a multiplication.
        (Machine(30.0, 2e12, 1e9), 4000, "equal-parts", 15, "time"),
        (Machine(30.0, 5e12, 1e9), 8192, "largest", 15, "time"),
    ],
)
def test_what_is_multiplied_and_copied_is_chosen_by_one_rule(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    size: int,
    size_rule: str,
    products: int,
    products_rule: str,
) -> None:
    values, rules = choose_overlap(backend, monkeypatch, machine)
    assert (values["size"], rules["size"]) == (size, size_rule)
    assert (values["products"], rules["products"]) == (products, products_rule)
    # As many copies as take as long as a multiplication.
    copies_of_equal_time = machine.seconds_of_multiplication(size) / machine.seconds_of_copy(size)
    assert values["copies"] == max(1, round(copies_of_equal_time))
    assert rules["copies"] == "equal-parts"


def test_no_more_copies_are_chosen_than_their_option_takes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    maxima = {parameter.name: parameter.maximum for parameter in COPYING}
    fast_copies = Machine(bytes_per_second=1e14)
    values, rules = choose_overlap(backend, monkeypatch, fast_copies)
    assert values["copies"] == maxima["copies"]
    assert rules["copies"] == "largest"


@pytest.mark.parametrize(("budget", "rule"), [(30.0, "time"), (2.0, "budget")])
def test_three_rounds_fit_a_budget(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, budget: float, rule: str
) -> None:
    machine = Machine(budget)
    monkeypatch.setattr(
        workloads,
        "seconds_of_one",
        lambda _, size, count=1: machine.seconds_of_multiplication(size),
    )
    size, chosen_by = workloads.size_for_run(Trial(backend, {}, budget=budget), 6)
    assert chosen_by == rule
    seconds_of_case = workloads.MULTIPLICATIONS * machine.seconds_of_multiplication(size)
    assert workloads.FEWEST_TIMINGS * 6 * seconds_of_case < budget
    assert seconds_of_case == pytest.approx(min(0.2, 0.6 * budget / 24), rel=0.05)


@pytest.mark.parametrize(("count", "times"), [(25, 1.0), (3000, 3.0)])
@pytest.mark.parametrize("work_of", [workloads.multiplications, workloads.increments])
def test_calls_are_those_of_a_thousand_operations_at_the_most(
    backend: Backend, work_of: Callable[..., Work], count: int, times: float
) -> None:
    device, trial = backend.devices[0], Trial(backend, {})
    work = work_of(trial, trial.normal(2, device), count, device)
    assert work.times == 1
    assert work.calls is not None
    assert work.calls.times == times


@pytest.mark.parametrize(("issuing_seconds", "is_noted"), [(0.4, False), (0.6, True)])
def test_a_copy_that_is_bound_by_issuing_is_noted(
    queueing: Backend, issuing_seconds: float, is_noted: bool
) -> None:
    def notes_on(backend: Backend) -> int:
        trial = Trial(backend, {})
        trial.cases["copy"] = replace(case("copy", 1.0), dispatch_seconds=(issuing_seconds,))
        copying.note_issuing(trial, "copy")
        return len(trial.notes)

    assert notes_on(queueing) == is_noted
    without_queue = backends.load("numpy", 1)
    assert notes_on(without_queue) == 0


@pytest.mark.parametrize("engine", ["async", "sync"])
@pytest.mark.parametrize("experiment", ["parallel", "overlap"])
def test_the_price_of_overlap_is_measured_where_there_is_a_queue(
    backend: Backend, experiment: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "engine", engine)
    result = EXPERIMENTS[experiment].run(backend, **small(experiment))
    medians = {case.name: case.median for case in result.cases}
    if engine == "sync":
        assert workloads.BESIDE not in medians
        assert "price_of_overlap" not in result.metrics
    else:
        price = medians[workloads.BESIDE] / result.cases[0].median - 1
        assert result.metrics["price_of_overlap"] == pytest.approx(price)


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A trial whose works return how long they took, of which control returned after half."""

    def measure(_: object, launch: Callable[[], Any], *__: object) -> tuple[float, float]:
        returned = launch()
        seconds = sum(returned) if isinstance(returned, list) else returned
        return seconds / 2, seconds

    monkeypatch.setattr(trials, "measure", measure)
    return Trial(backends.load("numpy", 2), {}, rounds=2)


def taking(seconds: float, seconds_of_unit: float) -> Work:
    """Return a work that takes these seconds, and as one unit those."""
    return Work(lambda: seconds, lambda: seconds_of_unit)


def test_a_case_is_of_once_and_its_bare_time_is_that_of_the_slowest_unit(trial: Trial) -> None:
    first, second = taking(24.0, 6.0), taking(6.0, 12.0)
    trial.time("both", first, second, parts=("first",), repeats=6)
    trial.time("first", first)
    trial.time("none", first, bare=())
    cases = trial.run()
    assert list(cases) == ["both", "first", "none"]
    both = cases["both"]
    assert (both.seconds, both.dispatch_seconds) == ((5.0, 5.0), (2.5, 2.5))
    assert (both.repeats, both.parts) == (6, ("first",))
    assert both.bare_seconds == (2, 2)
    assert cases["first"].bare_seconds == (6, 6)
    assert cases["none"].bare_seconds == ()


def test_what_comes_before_is_done_each_time_and_a_work_in_two_cases_is_one_unit_once(
    trial: Trial,
) -> None:
    done: list[str] = []

    def do(name: str) -> float:
        done.append(name)
        return 1.0

    work = Work(partial(do, "work"), partial(do, "unit"))
    trial.time("prepared", work, before=partial(do, "before"))
    trial.time("unprepared", work)
    trial.run()
    warm_up_and_rounds, cases = 1 + 2, 2
    assert done[0] == "before"
    assert done.count("before") == done.count("unit") == warm_up_and_rounds
    assert done.count("work") == cases * warm_up_and_rounds


def test_phases_keep_the_cases_before_and_points_make_curves(trial: Trial) -> None:
    for size in (2, 1):
        trial.time(f"size {size}", taking(size, size), curve="mine", at=size)
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
    many = trial.run(rounds=3)["many"]
    assert many.seconds == (6.0, 6.0, 6.0)
    assert many.bare_seconds == (2.0, 2.0, 2.0)


def test_a_figure_whose_cases_are_missing_is_missing(trial: Trial) -> None:
    trial.time("many", taking(6.0, 6.0))
    trial.run(rounds=3)
    trial.found_by("half", lambda times: times["many"] / 12)
    trial.found_by("missing", lambda times: times["none"])
    assert list(trial.figures) == ["half"]
    assert trial.figures["half"].estimate == pytest.approx(0.5)


def test_a_budget_that_is_spent_ends_the_rounds_after_the_first() -> None:
    def run_within(budget: float) -> Trial:
        trial = Trial(backends.load("numpy", 1), {}, rounds=9, budget=budget)
        trial.time("nothing", Work(lambda: None))
        trial.run()
        return trial

    assert len(run_within(1e-6).cases["nothing"].seconds) == 1
    ample = run_within(100.0)
    assert len(ample.cases["nothing"].seconds) == 9
    assert 40 < ample.left(0.5) <= 50
    assert 50 < ample.left(0.9) <= 90


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
