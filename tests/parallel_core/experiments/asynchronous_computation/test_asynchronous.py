"""`async` and `barriers`: each case waits as its name says, and curves are those of the cases."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from backends.arrays import tree_leaves
from parallel_core.experiments import EXPERIMENTS, workloads
from parallel_core.experiments.asynchronous_computation import (
    barriers,
    increments,
)
from parallel_core.experiments.asynchronous_computation.asynchrony import time_waiting
from parallel_core.experiments.asynchronous_computation.barriers import (
    CONVERSIONS,
    OTHER,
    SAME,
    added_by,
    added_fraction,
    depths,
)
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.counting import record_counts
from parallel_core.experiments.runner.formulas import interval_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing, measure
from tests.parallel_core.experiments.runner.pretended import case
from tests.parallel_core.experiments.small import small


def test_async_answers_all_its_questions(backend: Backend) -> None:
    result = parallel_core.run_async(backend, **small("async"))
    assert set(result.bands) == {"dispatch_fraction", "wait_fraction"}
    cases = {case.name: case for case in result.cases}
    assert len(cases) == 7
    seconds_of_increment = cases["increments, waiting once"].median / result.parameters["steps"]
    assert result.metrics["increment_seconds"] == pytest.approx(seconds_of_increment)
    products = cases["10 products"]
    dispatch_fraction = products.dispatch_median / products.median
    assert result.metrics["dispatch_fraction"] == pytest.approx(dispatch_fraction)


def test_increments_are_queued_behind_multiplications_if_there_is_a_queue(
    load_any: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "RECORDED_INCREMENTS", 100)
    backend = load_any(1)
    trial = Trial(backend, {})
    device = trial.devices[0]
    x, matrix = workloads.ones(trial, device, 2), trial.normal(256, device)
    launch = partial(increments.launch_behind_multiplications, trial, x, matrix)
    take = partial(measure, backend, launch)
    declared = (increments.UNFINISHED, increments.MOST_UNFINISHED)
    counts = record_counts(declared, {increments.BEHIND: take}, backend, {}).counts
    if backend.name == "numpy":
        assert counts == {}
        return
    unfinished, most_unfinished = (counts[count.name] for count in declared)
    # The multiplications are not counted.
    assert unfinished.of == most_unfinished.of == 100
    assert most_unfinished.count <= unfinished.count
    for counted in (unfinished, most_unfinished):
        assert (counted.count > 0) == (backend.engine == "async")


def test_steps_and_size_are_chosen_to_suit_the_budget(backend: Backend) -> None:
    parameters = parallel_core.run_async(backend, rounds=1, budget=1e-9).parameters
    assert parameters["size"] == 8
    assert parameters["steps"] == 100


def test_what_is_compiled_makes_increments_as_units_that_keep_each(
    load_any: Callable[[int], Backend],
) -> None:
    trial = Trial(load_any(1), {})
    x = workloads.ones(trial, trial.devices[0])
    separate = workloads.increments(trial, x, 7, trial.devices[0])
    unit = increments.in_one_launch(trial, x, separate, 7)
    (value,) = tree_leaves(trial.backend.to_numpy(unit.launch()))
    # All begin with the same value, or each with the one before.
    each_with_the_one_before, all_with_the_first = 1 + 7, 1 + 1
    is_compiled = trial.backend.name == "jax"
    assert value.item() == (each_with_the_one_before if is_compiled else all_with_the_first)


def test_each_wait_has_a_curve_for_each_place(backend: Backend) -> None:
    result = parallel_core.run_barriers(backend, **small("barriers"))
    behind = (0, 1, 2, 3)
    assert result.series["queued"] == behind
    cases = {case.name: case for case in result.cases}
    assert len(cases) == len(behind) * 2 * 2
    for wait, place in product(("wait", "waitall"), (SAME, OTHER)):
        on_curve = [cases[barriers.named(wait, count, place)] for count in behind]
        medians = tuple(case.median for case in on_curve)
        assert result.series[f"seconds {wait}, {place}"] == medians
        assert [bool(case.bare_seconds) for case in on_curve] == [False, False, False, True]
    assert set(result.bands) == {
        "added_wait_fraction",
        "other_device_added_wait_fraction",
        "dispatch_fraction",
    }


def test_each_wait_and_each_conversion_is_counted_with_the_most_behind(
    load_any: Callable[[int], Backend],
) -> None:
    counts = parallel_core.run_barriers(load_any(2), **small("barriers")).counts
    names = [count.name for count in EXPERIMENTS["barriers"].counts]
    waits = 2
    assert len(set(names)) == waits + len(CONVERSIONS)
    # Without a profiler nothing is counted.
    assert list(counts) in ([], names)
    for name, counted in counts.items():
        assert counted.of <= 3, name
    # The sum is launched behind the others, and one queue serves a device.
    to_a_number = counts.get("left_after_conversion_to_a_number")
    assert to_a_number is None or to_a_number.count == 0


@pytest.fixture
def calls_by_case(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The verbs of each case that launch and wait, as soon as a program has timed it once.

    Units of a case, which launch at once what the case launches one by one, are left out.
    """
    calls: list[str] = []
    calls_by_case: dict[str, list[str]] = {}

    def recording(verb: str) -> Callable[..., object]:
        method = getattr(backend, verb)

        def recorded(*arguments: object) -> object:
            calls.append(verb)
            return method(*arguments)

        return recorded

    for verb in ("launch", "wait", "waitall"):
        monkeypatch.setattr(backend, verb, recording(verb))

    def take_once(takes: Mapping[str, Callable[[], Timing]], *_: Any, **__: Any) -> list[Case]:
        for name, take in takes.items():
            calls.clear()
            take()
            if "as one unit" not in name:
                calls_by_case[name] = list(calls)
        return [case(name, 1.0 + index) for index, name in enumerate(takes)]

    monkeypatch.setattr(trials, "interleave", take_once)
    return calls_by_case


def test_each_case_waits_as_its_name_says(
    backend: Backend, calls_by_case: Mapping[str, list[str]]
) -> None:
    parallel_core.run_barriers(backend, size=8, deepest=2, rounds=1, budget=600.0)
    for wait, behind, place in product(("wait", "waitall"), range(3), (SAME, OTHER)):
        calls = ["waitall", *["launch"] * (1 + behind), wait, "waitall"]
        assert calls_by_case[barriers.named(wait, behind, place)] == calls


def test_async_waits_for_one_result_or_for_all(
    backend: Backend, calls_by_case: Mapping[str, list[str]]
) -> None:
    trial = Trial(backend, {})
    time_waiting(trial, 8)
    trial.run()
    launches = ["launch"] * 11
    assert calls_by_case["wait for one result"] == ["waitall", *launches, "wait", "waitall"]
    assert calls_by_case["waitall"] == ["waitall", *launches, "waitall", "waitall"]


def test_a_comparison_names_waits_with_the_deepest_queue() -> None:
    described = EXPERIMENTS["barriers"]
    assert {described.case, described.queued_case} == {
        barriers.named(wait, 64, SAME) for wait in ("wait", "waitall")
    }
    assert all("deepest" not in options for options in described.options.values())


@given(
    added_to_wait=st.floats(1e-6, 1e-2),
    added_to_waitall=st.floats(1e-6, 1e-2),
    seconds_of_none=st.floats(1e-6, 1),
    deepest=st.integers(2, 64),
)
def test_what_a_multiplication_adds_is_the_slope_of_the_curve(
    added_to_wait: float, added_to_waitall: float, seconds_of_none: float, deepest: int
) -> None:
    cases = {}
    added_by_wait = {"wait": added_to_wait, "waitall": added_to_waitall}
    for wait, behind in product(added_by_wait, depths(deepest)):
        name = barriers.named(wait, behind, SAME)
        seconds = seconds_of_none + behind * added_by_wait[wait]
        cases[name] = case(name, seconds, 1.1 * seconds, 0.9 * seconds)
    slope = interval_of(added_by("wait", SAME, deepest), cases)
    assert slope is not None
    assert slope.estimate == pytest.approx(added_to_wait, rel=1e-6, abs=1e-12)
    fraction = interval_of(added_fraction(SAME, deepest), cases)
    assert fraction is not None
    assert fraction.estimate == pytest.approx(added_to_wait / added_to_waitall, rel=1e-5)
    assert fraction.low < fraction.estimate < fraction.high
