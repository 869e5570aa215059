"""The chapter's experiments: `async`, `barriers` and `cost-model`.

Each case waits as its name says, curves are those of the cases, and the model says where its
regimes meet and at which sizes it misses.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend, Device
from backends.arrays import tree_leaves
from backends.devices import DeviceKind
from parallel_core.experiments import EXPERIMENTS, workloads
from parallel_core.experiments.asynchronous_computation import (
    barriers,
    cost_model,
    increments,
)
from parallel_core.experiments.asynchronous_computation.asynchrony import CONVERSIONS, time_waiting
from parallel_core.experiments.asynchronous_computation.barriers import (
    OTHER,
    SAME,
    added_by,
    added_fraction,
    depths,
)
from parallel_core.experiments.asynchronous_computation.cost_model import (
    CostModel,
    Point,
    crossing,
    disturbance,
)
from parallel_core.experiments.asynchronous_computation.increments import OVER_PREDICTED
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.counts import record_counts
from parallel_core.experiments.runner.formulas import interval_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.confidence_intervals import exponential
from parallel_core.measurement.timing import Timing, measure
from tests.parallel_core.experiments.runner.pretended import case, pretended, trial
from tests.parallel_core.experiments.small import small


def test_it_answers_all_its_questions(backend: Backend) -> None:
    result = parallel_core.run_async(backend, **small("async"))
    assert set(result.bands) == {
        "dispatch_fraction",
        "wait_fraction",
        "t2_over_t1",
        "measured_over_predicted",
    }
    blockers = {f"product, to {what}" for what in ("NumPy", "a number", "text")}
    increments = {
        f"increments{how}" for how in (", waiting each time", ", waiting once", " in one launch")
    }
    waits = {"wait for one result", "waitall"}
    assert {one.name for one in result.cases} == {
        "10 products in NumPy",
        "10 products",
        *waits,
        *blockers,
        *increments,
    }
    # A hundred arrays of 4 MiB: those that are kept must be there.
    assert result.metrics["peak_bytes_kept_waiting_every_100"] > 0.8 * 100 * 2**22
    cases = {one.name: one for one in result.cases}
    assert result.metrics["measured_once_seconds"] == cases["increments, waiting once"].median
    sent, done = (getattr(cases["10 products"], which) for which in ("dispatch_median", "median"))
    assert result.metrics["dispatch_fraction"] == pytest.approx(sent / done)


def test_increments_are_queued_behind_multiplications_if_there_is_a_queue(
    load_any: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "RECORDED_INCREMENTS", 100)
    backend = load_any(1)
    trial = Trial(backend, {})
    x, matrix = workloads.ones(trial, trial.devices[0], 2), trial.normal(256, trial.devices[0])
    launch = partial(increments.launch_behind_multiplications, trial, x, matrix)
    declared = (increments.UNFINISHED, increments.MOST_UNFINISHED)
    takes = {increments.BEHIND: partial(measure, backend, launch)}
    counts = record_counts(declared, takes, backend)
    if backend.name == "numpy":
        assert counts == {}
        return
    unfinished, most = (counts[count.name] for count in declared)
    # The multiplications are none of them.
    assert (unfinished.of, most.of) == (100, 100)
    assert most.count <= unfinished.count
    assert (most.count > 0) == (unfinished.count > 0) == (backend.engine == "async")


def test_steps_and_size_are_chosen_to_suit_the_budget(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "SIDE", 8)
    parameters = parallel_core.run_async(backend, rounds=1, budget=1e-9).parameters
    assert (parameters["size"], parameters["steps"]) == (8, 100)


def test_the_cost_model_repeats_the_slower_side() -> None:
    short, long = case("short", 1.0), case("long", 3.0)
    device_bound, python_bound = CostModel(short, long, 2.0), CostModel(long, short, 2.0)
    assert (
        device_bound.waiting_once(10) == device_bound.waiting_once_by_the_book(10) == 1 + 10 * 3 + 2
    )
    assert python_bound.waiting_once(10) == 10 * 3 + 1 + 2
    assert python_bound.waiting_once_by_the_book(10) == 3 + 10 + 2
    assert device_bound.waiting_each(10) == python_bound.waiting_each(10) == 60
    assert device_bound.t2_over_t1.estimate == pytest.approx(3)


@pytest.mark.parametrize(("seconds", "code"), [(31.0, "predicted"), (80.0, "more"), (10.0, "less")])
def test_increments_are_held_against_what_the_model_predicts(seconds: float, code: str) -> None:
    times = ([place - 0.01, place, place + 0.01] for place in (1.0, 3.0, seconds / 10))
    issued, computed, measured = (case("any", *seconds) for seconds in times)
    error = CostModel(issued, computed, 0.0).log_error(measured, 10**6)
    band = OVER_PREDICTED.place(exponential(error), pretended(trial(measured)))
    assert band is not None
    assert band.code == code


def test_what_is_compiled_makes_increments_as_units_that_keep_each(
    load_any: Callable[[int], Backend],
) -> None:
    trial = Trial(load_any(1), {})
    x = workloads.ones(trial, trial.devices[0])
    once = workloads.increments(trial, x, 7, trial.devices[0])
    (made,) = tree_leaves(
        trial.backend.to_numpy(increments.in_one_launch(trial, x, once, 7).launch())
    )
    # All begin with the same value, or each with the one before.
    assert made.item() == (1 + 7 if trial.backend.name == "jax" else 1 + 1)


@pytest.mark.parametrize(("kind", "figures"), [("cpu", 6), ("gpu", 0)])
def test_memory_is_measured_after_a_warm_up_and_where_the_host_holds_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, kind: DeviceKind, figures: int
) -> None:
    launched: list[int] = []
    monkeypatch.setattr(
        increments, "incremented", lambda *args: launched.append(args[2]) or args[1]
    )
    monkeypatch.setattr(increments, "peak_memory_growth", lambda _: len(launched))
    trial = Trial(backend, {})
    trial.devices = [Device(kind, 1)]
    increments.measure_memory(trial)
    assert [figure.estimate for figure in trial.figures.values()] == [1] * figures


def test_each_wait_has_a_curve_for_each_place(backend: Backend) -> None:
    result = parallel_core.run_barriers(backend, **small("barriers"))
    assert result.series["queued"] == (0, 1, 2, 3)
    medians = {one.name: one.median for one in result.cases}
    assert len(medians) == 4 * 2 * 2
    for place in (SAME, OTHER):
        for wait in ("wait", "waitall"):
            expected = tuple(medians[f"{wait}, {count} behind {place}"] for count in (0, 1, 2, 3))
            assert result.series[f"seconds {wait}, {place}"] == expected
    assert set(result.bands) == {
        "added_wait_fraction",
        "other_device_added_wait_fraction",
        "dispatch_fraction",
    }
    assert {one.name for one in result.cases if one.bare_seconds} == {
        f"{wait}, 3 behind {place}" for wait in ("wait", "waitall") for place in (SAME, OTHER)
    }


def test_each_wait_and_each_conversion_is_counted_with_the_most_behind(
    load_any: Callable[[int], Backend],
) -> None:
    counts = parallel_core.run_barriers(load_any(2), **small("barriers")).counts
    names = [count.name for count in EXPERIMENTS["barriers"].counts]
    assert len(set(names)) == 2 + len(CONVERSIONS)
    assert list(counts) in ([], names)
    assert {counted.of for counted in counts.values()} <= {3}
    # The sum is launched behind the others, and one queue serves a device.
    assert "left_after_conversion_to_a_number" not in counts or (
        counts["left_after_conversion_to_a_number"].count == 0
    )


Verbs = Callable[[Callable[[Backend], object]], dict[str, list[str]]]


@pytest.fixture
def verbs(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    """Run a program that times each case once; return the verbs of each that launch and wait."""
    calls, called = list[str](), dict[str, list[str]]()
    for verb in ("launch", "wait", "waitall"):
        right = getattr(backend, verb)
        monkeypatch.setattr(
            backend, verb, lambda *args, verb=verb, right=right: calls.append(verb) or right(*args)
        )

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
    waits = verbs(
        lambda backend: parallel_core.run_barriers(
            backend, size=8, deepest=2, rounds=1, budget=600.0
        )
    )
    assert len(waits) == 3 * 2 * 2
    for name, called in waits.items():
        wait, behind = name.split(", ")
        assert called == ["waitall", *["launch"] * (1 + int(behind.split()[0])), wait, "waitall"], (
            name
        )


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


def test_a_comparison_names_waits_with_the_deepest_queue() -> None:
    described = EXPERIMENTS["barriers"]
    assert {described.case, described.queued_case} == {
        barriers.named(wait, 64, SAME) for wait in ("wait", "waitall")
    }
    assert all("deepest" not in options for options in described.options.values())


@given(st.floats(1e-6, 1e-2), st.floats(1e-6, 1e-2), st.floats(1e-6, 1), st.integers(2, 64))
def test_what_one_adds_is_the_slope_of_the_curve(
    to_one: float, to_all: float, base: float, deepest: int
) -> None:
    cases = {
        name: case(name, *(drift * (base + count * slope) for drift in (1.0, 1.1, 0.9)))
        for wait, slope in (("wait", to_one), ("waitall", to_all))
        for count in depths(deepest)
        for name in (barriers.named(wait, count, SAME),)
    }
    slope = interval_of(added_by("wait", SAME, deepest), cases)
    fraction = interval_of(added_fraction(SAME, deepest), cases)
    assert slope is not None
    assert fraction is not None
    assert slope.estimate == pytest.approx(to_one, rel=1e-6, abs=1e-12)
    assert fraction.estimate == pytest.approx(to_one / to_all, rel=1e-5)
    assert fraction.low < fraction.estimate < fraction.high


def test_every_size_has_a_case_and_stands_on_every_curve(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, among = increments.over_rounds, list[int]()
    monkeypatch.setattr(
        increments, "over_rounds", lambda *a, **k: among.append(k.get("among", 1)) or right(*a, **k)
    )
    result = parallel_core.run_cost_model(backend, largest=100, rounds=1, budget=600.0)
    assert result.series["elements"] == (2, 8, 32)
    assert [one.name for one in result.cases] == [
        f"increment of {size} elements" for size in (2, 8, 32)
    ]
    assert result.series["seconds measured"] == tuple(one.median for one in result.cases)
    predictions = ("longer of t1 and t2", "book's formula", "longer of both and disturbance", "t1")
    assert set(result.series) == {
        "elements",
        "seconds measured",
        *(f"seconds {label}" for label in predictions),
    }
    assert all(len(values) == 3 for values in result.series.values())
    assert all(20 <= one.repeats <= 1000 for one in result.cases)
    # Each size: whether it is missed, unknown, and missed with the disturbance.
    assert among == [3] * 9


def point(
    elements: int, t1: float, t2: float, measured: float | None = None, spread: float = 0.0
) -> Point:
    model = CostModel(case("t1", *(t1,) * 3), case("t2", *(t2,) * 3), 0.0)
    seconds = max(t1, t2) if measured is None else measured
    return Point(
        elements, 10**6, model, case("any", seconds * (1 - spread), seconds, seconds * (1 + spread))
    )


@given(st.floats(2.001, 2**19 - 1), st.floats(1e-7, 1e-3))
def test_the_regimes_meet_where_both_take_equally_long(met: float, t1: float) -> None:
    points = [point(size, t1, t1 * size / met) for size in workloads.geometric(2, 2**19, 4)]
    assert crossing(points) == pytest.approx(met, rel=1e-6)
    # Measured is the longer of both, so a straight line between logarithms is at its most wrong
    # near the bend.
    left = cost_model.floor_left(points)
    assert left is None or met / 4 < left < met * 2


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8))
def test_after_the_crossing_the_device_is_always_slower(ratios: list[float]) -> None:
    points = [point(2 * 4**index, 1.0, ratio) for index, ratio in enumerate(ratios)]
    met = crossing(points)
    if met is None:
        assert ratios[0] > 1 or ratios[-1] <= 1
    else:
        assert all(
            not one.model.python_is_slower for one in points if one.elements > met * 1.000001
        )
        assert points[0].elements <= met * 1.000001 <= points[-1].elements * 1.00001


def test_what_the_sides_disturb_each_other_is_found_at_other_sizes_of_the_same_regime() -> None:
    points = [
        point(2, 4.0, 1.0, 6.0),
        point(8, 4.0, 2.0, 6.1),
        point(32, 4.0, 8.0, 7.0),
        point(128, 4.0, 32.0, 31.0),
    ]
    assert disturbance(points, points[0]) == pytest.approx(2.1, abs=0.01)
    assert disturbance(points, points[3]) == pytest.approx(-1.0, abs=0.01)
    assert disturbance(points[1:], points[1]) == 0
    assert [one.elements for one in points if one.misses()] == [2, 8, 32]
    assert not any(one.misses(disturbance(points, one)) for one in points)
    grows = [
        point(2, 4.0, 1.0, 6.0),
        point(8, 4.0, 1.0, 6.0),
        point(32, 4.0, 1.0, 20.0),
        point(128, 4.0, 1.0, 6.0),
    ]
    assert [one.elements for one in grows if one.misses(disturbance(grows, one))] == [32]


def test_a_prediction_is_per_increment_and_as_uncertain_as_its_time_and_its_parts() -> None:
    for t1, t2 in ((3e-6, 1e-6), (1e-6, 3e-6)):
        assert point(2, t1, t2).predicted == pytest.approx(3e-6, rel=1e-3)
    sure = point(2, 4.0, 2.0, 5.0)
    assert sure.misses()
    assert not replace(sure, model=replace(sure.model, issued=case("t1", 2.5, 4.0, 5.5))).misses()
    assert not point(2, 4.0, 2.0, 5.0, spread=0.4).misses()
    assert not point(2, 4.0, 2.0, 4.1).misses()
    # A tenth of what was measured cannot be called within the noise of a time that is known by a
    # factor of ten.
    assert point(2, 4.0, 2.0, 40.0, spread=0.95).is_unknown()
    assert point(2, 4.0, 2.0, 40.0).misses()
    in_one_round = replace(point(2, 4.0, 2.0, 40.0), case=case("any", 40.0))
    assert (in_one_round.misses(), in_one_round.is_unknown()) == (False, True)
    assert not any(one.is_unknown() for one in (sure, point(2, 4.0, 2.0, 4.1)))
    narrowly = point(2, 4.0, 2.0, 4.33, spread=0.02)
    assert (narrowly.misses(), narrowly.misses(among=10)) == (True, False)
