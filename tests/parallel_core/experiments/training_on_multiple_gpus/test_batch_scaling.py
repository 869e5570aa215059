"""Batch scaling: a figure for each number of devices, and sentences that follow from them."""

from dataclasses import replace
from typing import Any

import pytest

import parallel_core
from backends import Backend
from parallel_core import RequestError, Result
from parallel_core.experiments.measuring import Units
from parallel_core.experiments.training_on_multiple_gpus.batch_scaling import verdicts as about_scaling
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import (
    FIXED,
    SCALED,
)
from parallel_core.measurement.result import Case
from parallel_core.training.dataset import synthetic
from tests.parallel_core.experiments.bounds import without_bounds

MADE_UP = synthetic("a test needs no more", train=300, test=10)

SMALL: dict[str, Any] = {"data": MADE_UP, "batch_size": 8, "steps": 2, "rounds": 2, "budget": 600.0}


def batch_scaling(backend: Backend) -> Result:
    return parallel_core.run_batch_scaling(backend, MADE_UP, batch_size=8, steps=2, rounds=2)


def test_batch_scaling_has_a_figure_for_each_number_of_devices(backend: Backend) -> None:
    result = batch_scaling(backend)
    names = ("1 device", "2 devices, fixed batch", "2 devices, scaled batch")
    assert [case.name for case in result.cases] == [*names, "all devices, fixed batch", "all devices, scaled batch"]
    assert result.series["devices"] == (1, 2, 3)
    medians = {case.name: case.median for case in result.cases}
    assert result.series["images_per_second scaled batch"] == pytest.approx(
        (16 / medians[names[0]], 32 / medians[names[2]], 48 / medians["all devices, scaled batch"])
    )
    assert result.series["step_seconds fixed batch"][1] == pytest.approx(medians[names[1]] / 2)
    assert result.series["scaling_efficiency scaled batch"][2] == pytest.approx(
        medians[names[0]] / medians["all devices, scaled batch"]
    )
    assert result.metrics["scaled_batch_speedup"] == pytest.approx(
        3 * medians["all devices, fixed batch"] / medians["all devices, scaled batch"]
    )
    assert len({len(values) for values in result.series.values()}) == 1


def test_batch_scaling_refuses_more_images_than_there_are(backend: Backend) -> None:
    with pytest.raises(RequestError, match=r"10 steps of 3 × 20 images are more than the 300 there are: .*--steps"):
        parallel_core.run_batch_scaling(backend, MADE_UP, batch_size=20, steps=10)


@pytest.mark.parametrize(("budget", "images", "steps"), [(1e-3, 300, 1), (1e6, 12, 4)])
def test_steps_are_chosen_to_fit_the_budget_and_the_images(
    backend: Backend, budget: float, images: int, steps: int
) -> None:
    data = replace(MADE_UP, train_images=MADE_UP.train_images[:images], train_labels=MADE_UP.train_labels[:images])
    result = parallel_core.run_batch_scaling(backend, data, batch_size=1, rounds=1, budget=budget)
    assert result.parameters["steps"] == steps


def test_bare_times_are_of_all_steps_of_a_timing(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def times_of_a_step(*_: object, units: Units, **__: object) -> dict[str, Case]:
        assert units.of["1 device"] == ["1 device on cpu:1"]
        assert len(units.of["all devices, fixed batch"]) == 3
        return {name: replace(case(1.0), name=name, bare_seconds=(0.25,)) for name in units.of}

    monkeypatch.setattr(
        "parallel_core.experiments.training_on_multiple_gpus.batch_scaling.take_in_turn", times_of_a_step
    )
    result = batch_scaling(backend)
    assert {case.bare_seconds for case in result.cases} == {(0.5,)}
    assert result.problems == ()


def test_devices_with_a_batch_each_are_not_faster_than_one(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def times(*_: object, units: Units, **__: object) -> dict[str, Case]:
        return {name: case(0.5 if name == "all devices, scaled batch" else 1.0) for name in units.of}

    monkeypatch.setattr("parallel_core.experiments.training_on_multiple_gpus.batch_scaling.take_in_turn", times)
    (problem,) = batch_scaling(backend).problems
    assert without_bounds(problem).startswith("scaled_batch_scaling_efficiency is 2.00 of at most 1, which is beyond")


def test_gradients_that_are_not_summed_make_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "allreduce", tuple)
    problems = " ".join(batch_scaling(backend).problems)
    assert "the first losses differ from NumPy's by " in problems


def case(*seconds: float) -> Case:
    repeated = seconds if len(seconds) > 1 else 3 * seconds
    return Case("any", repeated, repeated)


def scaling(one: float, fixed: float, scaled: float) -> dict[str, dict[int, Case]]:
    return {FIXED: {1: case(one), 2: case(fixed)}, SCALED: {1: case(one), 2: case(scaled)}}


@pytest.mark.parametrize(
    ("scaled", "sentence"),
    [
        (
            5e-4,
            "trained 1.20 × as fast (2,000 images/s instead of 1,667): the larger batch made devices worth",
        ),
        (6.1e-4, "no difference is shown"),
        (
            8e-4,
            "trained 0.75 × as fast (1,250 images/s instead of 1,667): the larger batch made devices",
        ),
    ],
)
def test_batch_scaling_is_judged_by_the_numbers(scaled: float, sentence: str) -> None:
    told = without_bounds(about_scaling.verdict(scaling(1e-3, 6e-4, scaled), 256))
    assert told.startswith("On 2 devices, batches of 512 instead of 256 images")
    assert sentence in told
    assert told.count(":") == 1


@pytest.mark.parametrize(
    ("scaled", "meaning"),
    [
        (1e-3, "0.50 with the scaled batch (perhaps no more than one device)"),
        (7e-4, "0.71 with the scaled batch (more than one device, and not each in full)"),
        (5e-4, "1.00 with the scaled batch (each may count in full)"),
        (4e-4, "1.25 with the scaled batch (each in full, and more)"),
        (2e-3, "0.25 with the scaled batch (less than one device)"),
    ],
)
def test_efficiency_is_put_in_words(scaled: float, meaning: str) -> None:
    assert meaning in without_bounds(about_scaling.about_efficiency(scaling(1e-3, 6e-4, scaled)))


def test_efficiency_within_the_noise_is_left_open() -> None:
    noisy = {FIXED: {1: case(1e-3, 9e-3, 5e-3), 2: case(9e-3, 1e-3, 5e-3)}}
    assert "with the fixed batch (the noise leaves open whether they count" in without_bounds(
        about_scaling.about_efficiency(noisy)
    )


def test_shared_cores_bound_the_efficiency() -> None:
    assert about_scaling.about_cores(1) == ()
    (note,) = about_scaling.about_cores(0.5)
    assert "an efficiency of 0.50" in note
