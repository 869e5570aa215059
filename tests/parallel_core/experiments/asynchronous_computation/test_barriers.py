"""Barriers: the curves are those of the cases, the slopes are right, and the sentences follow from them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation.barriers import added, depths
from parallel_core.experiments.asynchronous_computation.barriers.verdicts import (
    Added,
    about_deepest,
    verdict,
    what_would_change,
)
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing
from tests.parallel_core.experiments.bounds import without_bounds

SMALL: dict[str, Any] = {"size": 40, "deepest": 3, "rounds": 2, "budget": 600.0}

PLACES = ("on the same device", "on another device")


def test_each_wait_has_a_curve_for_each_place(backend: Backend) -> None:
    result = parallel_core.run_barriers(backend, size=16, deepest=3, rounds=2, budget=600.0)
    assert result.series["queued"] == (0, 1, 2, 3)
    medians = {case.name: case.median for case in result.cases}
    assert len(medians) == 4 * 2 * 2
    for place in PLACES:
        for wait in ("wait", "waitall"):
            expected = tuple(medians[f"{wait}, {count} behind {place}"] for count in (0, 1, 2, 3))
            assert result.series[f"seconds {wait}, {place}"] == expected
    assert {"added_wait_fraction", "other_device_added_wait_fraction"} < set(result.metrics)


def test_each_case_waits_as_its_name_says(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            verb = getattr(backend, name)
            if name not in ("launch", "wait", "waitall"):
                return verb

            def recorded(*args: Any) -> Any:
                calls.append(name)
                return verb(*args)

            return recorded

    def once(_: Backend, takes: Mapping[str, Callable[[], Timing]], *__: Any, **___: Any) -> dict[str, Case]:
        for name, take in takes.items():
            calls.clear()
            take()
            found[name] = tuple(calls)
        return {name: Case(name, (1.0 + index,), (0.5,)) for index, name in enumerate(takes)}

    found: dict[str, tuple[str, ...]] = {}
    monkeypatch.setattr("parallel_core.experiments.asynchronous_computation.barriers.take_in_turn", once)
    parallel_core.run_barriers(Recorded(), size=8, deepest=2, rounds=1, budget=600.0)  # type: ignore[arg-type]
    for name, verbs in found.items():
        behind = int(name.split(", ")[1].split()[0])
        wait = name.split(", ")[0]
        assert verbs == ("waitall", *("launch",) * (1 + behind), wait, "waitall"), name


def test_a_single_device_has_one_place(load: Callable[[int], Backend]) -> None:
    result = parallel_core.run_barriers(load(1), size=16, deepest=1, rounds=1, budget=600.0)
    assert set(result.series) == {"queued", "seconds wait, on the same device", "seconds waitall, on the same device"}
    assert "other_device_added_wait_fraction" not in result.metrics


def test_a_size_is_chosen_when_none_is_given(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallel_core.experiments.asynchronous_computation.barriers.TARGET_SECONDS", 0.001)
    assert parallel_core.run_barriers(backend, deepest=1, rounds=1, budget=600.0).parameters["size"] % 8 == 0


def test_products_that_are_wrong_make_the_result_invalid(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallel_core.experiments.measuring.relative_error", lambda *_: float("nan"))
    problems = parallel_core.run_barriers(backend, size=16, deepest=1, rounds=1, budget=600.0).problems
    assert any(problem.startswith("products differ from NumPy's by ") for problem in problems)


def test_a_comparison_times_the_depth_that_it_names() -> None:
    described = EXPERIMENTS["barriers"]
    assert 64 in depths(64)
    assert {described.case, described.queued_case} == {f"{wait}, 64 behind {PLACES[0]}" for wait in ("wait", "waitall")}
    assert all("deepest" not in options for options in described.options.values())


@given(st.integers(1, 1000))
def test_depths_are_powers_of_two_and_the_deepest(deepest: int) -> None:
    found = depths(deepest)
    assert found[0] == 0
    assert found[-1] == deepest
    assert list(found) == sorted(set(found))
    assert all(depth & (depth - 1) == 0 for depth in found[:-1])


@given(
    st.lists(st.tuples(st.floats(1e-6, 1e-2), st.floats(1e-6, 1e-2), st.floats(1e-6, 1)), min_size=1, max_size=4),
    st.integers(2, 64),
)
def test_what_a_product_adds_is_the_slope_of_its_round(rounds: list[tuple[float, float, float]], deepest: int) -> None:
    queued = depths(deepest)
    cases = {}
    for index, wait in enumerate(("wait", "waitall")):
        for count in queued:
            seconds = tuple(of_round[2] + count * of_round[index] for of_round in rounds)
            cases[f"{wait}, {count} behind here"] = Case("any", seconds, seconds)
    found = added(cases, queued, "here")
    assert found.to_wait == pytest.approx([slope for slope, _, _ in rounds], rel=1e-6, abs=1e-12)
    assert found.to_waitall == pytest.approx([slope for _, slope, _ in rounds], rel=1e-6, abs=1e-12)
    assert found.fraction.estimate == pytest.approx(np.median(found.to_wait) / np.median(found.to_waitall))


@pytest.mark.parametrize(
    ("to_wait", "dispatch_fraction", "sentence"),
    [
        (
            (0.01, 0.02, 0.03),
            0.01,
            "was selective: a product launched behind it on some device added 0.02 of what",
        ),
        ((-0.03, -0.001, 0.0), 0.01, "was selective: a product launched behind it on some device added 0.00"),
        ((0.99, 1.0, 1.01), 1.0, "Nothing was queued: the launches returned when all was done"),
        # What is done needs no quiet machine to be called so.
        ((0.4, 1.0, 1.0), 1.0, "Nothing was queued"),
        ((0.99, 1.0, 1.01), 0.01, "was waiting for all that was queued"),
        ((0.4, 0.5, 0.6), 0.01, "No clear verdict: "),
        # A single round that points the other way leaves the verdict open.
        ((0.0, 0.01, 0.6), 0.01, "No clear verdict: "),
        ((0.45, 0.5, 0.55), 0.01, "was selective in part"),
        ((0.6, 1.0, 1.0), 0.9, "No clear verdict: "),
    ],
)
def test_the_verdict_follows_from_the_slopes(
    to_wait: tuple[float, ...], dispatch_fraction: float, sentence: str
) -> None:
    share = Interval(dispatch_fraction, 0.95 * dispatch_fraction, 1.05 * dispatch_fraction)
    assert sentence in without_bounds(verdict(Added(to_wait, (1.0, 1.0, 1.0)), "on some device", share))


def test_products_that_take_no_time_give_no_verdict() -> None:
    assert "no verdict; choose a larger --size" in verdict(
        Added((1.0, 1.0), (1.0, 0.0)), "here", Interval(0.0, 0.0, 0.0)
    )


@pytest.mark.parametrize(
    ("same", "other", "dispatched", "words"),
    [
        (0.01, 0.01, 0.01, "queues nothing (--engine sync)"),
        (1.0, 0.01, 0.01, "Work behind it on another device"),
        (1.0, 1.0, 0.01, "Larger products (--size 80)"),
        (1.0, 1.0, 1.0, "Larger products (--size 80)"),
        (0.25, 0.25, 0.01, "--rounds 20 --budget 60"),
    ],
)
def test_what_would_change_it_follows_from_the_slopes(
    queueing: Backend, same: float, other: float, dispatched: float, words: str
) -> None:
    slopes = [Added((added,) * 3, (1.0,) * 3) for added in (same, other)]
    share = Interval(dispatched, 0.95 * dispatched, 1.05 * dispatched)
    assert words in what_would_change(queueing, *slopes, share, 40)


def test_the_deepest_queue_is_told_in_seconds() -> None:
    one, everything = Case("any", (0.001,), (0.001,)), Case("any", (0.25,), (0.25,))
    assert about_deepest(one, everything, 64, "here") == (
        "With 64 behind it here, one result was there after 1.00 ms and everything after 250 ms."
    )
