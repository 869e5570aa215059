"""Barriers: each case waits as its name says, the curves are those of the cases, and slopes are of straight lines."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import barriers
from parallel_core.experiments.asynchronous_computation.asynchrony import time_waiting
from parallel_core.experiments.asynchronous_computation.barriers import OTHER, SAME, added_by, added_fraction, depths
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.metrics import interval_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.timing import Timing
from tests.parallel_core.experiments.runner.pretended import case
from tests.parallel_core.experiments.small import small


def test_each_wait_has_a_curve_for_each_place(backend: Backend) -> None:
    result = parallel_core.run_barriers(backend, **small("barriers"))
    assert result.series["queued"] == (0, 1, 2, 3)
    medians = {one.name: one.median for one in result.cases}
    assert len(medians) == 4 * 2 * 2
    for place in (SAME, OTHER):
        for wait in ("wait", "waitall"):
            expected = tuple(medians[f"{wait}, {count} behind {place}"] for count in (0, 1, 2, 3))
            assert result.series[f"seconds {wait}, {place}"] == expected
    assert set(result.bands) == {"added_wait_fraction", "other_device_added_wait_fraction", "dispatch_fraction"}
    assert {one.name for one in result.cases if one.bare_seconds} == {
        f"{wait}, 3 behind {place}" for wait in ("wait", "waitall") for place in (SAME, OTHER)
    }


Verbs = Callable[[Callable[[Backend], object]], dict[str, list[str]]]


@pytest.fixture
def verbs(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    """Run a program that times each case once; return the verbs of each that launch and wait."""
    calls, called = list[str](), dict[str, list[str]]()
    for verb in ("launch", "wait", "waitall"):
        right = getattr(backend, verb)
        monkeypatch.setattr(backend, verb, lambda *args, verb=verb, right=right: calls.append(verb) or right(*args))

    def once(takes: Mapping[str, Callable[[], Timing]], *_: Any, **__: Any) -> Any:
        for name, take in takes.items():
            calls.clear()
            take()
            called[name] = list(calls)
        return [case(name, 1.0 + index) for index, name in enumerate(takes)]

    def found(run: Callable[[Backend], object]) -> dict[str, list[str]]:
        monkeypatch.setattr(trials, "interleave", once)
        run(backend)
        return {name: own for name, own in called.items() if "as one unit" not in name}

    return found


def test_each_case_waits_as_its_name_says(verbs: Verbs) -> None:
    waits = verbs(lambda backend: parallel_core.run_barriers(backend, size=8, deepest=2, rounds=1, budget=600.0))
    assert len(waits) == 3 * 2 * 2
    for name, called in waits.items():
        wait, behind = name.split(", ")
        assert called == ["waitall", *["launch"] * (1 + int(behind.split()[0])), wait, "waitall"], name


def test_async_waits_for_one_result_or_for_all(verbs: Verbs) -> None:
    def run(backend: Backend) -> None:
        trial = Trial(backend, {})
        time_waiting(trial, 8)
        trial.run()

    waits = verbs(run)
    assert waits.pop("wait for one result") == ["waitall", *["launch"] * 11, "wait", "waitall"]
    assert waits.pop("waitall") == ["waitall", *["launch"] * 11, "waitall", "waitall"]
    # One multiplication, which a conversion waits for.
    assert [called[:2] for called in waits.values()] == [["waitall", "launch"]] * 3


def test_a_single_device_has_one_place(load: Callable[[int], Backend]) -> None:
    result = parallel_core.run_barriers(load(1), size=16, deepest=1, rounds=1, budget=600.0)
    assert set(result.series) == {"queued", "seconds wait, on the same device", "seconds waitall, on the same device"}
    assert "other_device_added_wait_fraction" not in result.metrics


def test_a_comparison_names_waits_with_the_deepest_queue() -> None:
    described = EXPERIMENTS["barriers"]
    assert {described.case, described.queued_case} == {barriers.named(wait, 64, SAME) for wait in ("wait", "waitall")}
    assert all("deepest" not in options for options in described.options.values())


@given(st.floats(1e-6, 1e-2), st.floats(1e-6, 1e-2), st.floats(1e-6, 1), st.integers(2, 64))
def test_what_one_adds_is_the_slope_of_the_curve(to_one: float, to_all: float, base: float, deepest: int) -> None:
    cases = {
        name: case(name, *(drift * (base + count * slope) for drift in (1.0, 1.1, 0.9)))
        for wait, slope in (("wait", to_one), ("waitall", to_all))
        for count in depths(deepest)
        for name in (barriers.named(wait, count, SAME),)
    }
    slope, fraction = (
        interval_of(formula, cases) for formula in (added_by("wait", SAME, deepest), added_fraction(SAME, deepest))
    )
    assert slope is not None
    assert fraction is not None
    assert slope.estimate == pytest.approx(to_one, rel=1e-6, abs=1e-12)
    assert fraction.estimate == pytest.approx(to_one / to_all, rel=1e-5)
    assert fraction.low < fraction.estimate < fraction.high
