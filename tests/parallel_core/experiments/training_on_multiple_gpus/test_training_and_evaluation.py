"""Training and evaluating on several devices: `building-blocks`, `data-parallel`, `batch-scaling`
and `evaluate`.

What a step computes is tested with the training; here, what is reported, for how many images and on
which devices.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

import backends
import parallel_core
from backends import Backend
from parallel_core import Case, Settings
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.trial import Trial, budget_ended
from parallel_core.experiments.training_on_multiple_gpus import building_blocks, data_parallel
from parallel_core.experiments.training_on_multiple_gpus.evaluate import (
    ALIKE,
    compare,
    counts_differ,
    trained_briefly,
    unequal_image,
)
from parallel_core.experiments.training_on_multiple_gpus.step_counts import AT_ONCE
from parallel_core.measurement.checks import devices_differ, values_differ
from parallel_core.measurement.result import Note
from parallel_core.training import loop as training_loop
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters
from tests.parallel_core.experiments.small import small

DATA_PARALLEL, BATCH_SCALING, EVALUATE = map(small, ("data-parallel", "batch-scaling", "evaluate"))
MADE_UP = EVALUATE["data"]


def test_every_building_block_shows_its_values(backend: Backend) -> None:
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert result.problems == ()
    assert result.bands == {"right_examples": "right"}
    assert result.metrics["right_examples"] == 6
    assert "begins with [0, 0, 0]" in result.notes[3].sentence


def test_other_parameters_make_the_building_blocks_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_parameters = initial_parameters(seed=1)
    monkeypatch.setattr(
        building_blocks,
        "get_params",
        lambda backend, device: backend.asarray(other_parameters, device),
    )
    result = parallel_core.run_building_blocks(backend, rounds=1)
    (problem,) = result.problems
    error = result.checks["max_relative_error"]
    assert problem == values_differ("the values of 'parameters on a device'", error)
    assert result.metrics["right_examples"] == 5
    assert result.bands["right_examples"] == "wrong"


def test_the_training_experiment_reports_epochs(backend: Backend) -> None:
    result = parallel_core.run_data_parallel(backend, **DATA_PARALLEL)
    metrics, accuracies = result.metrics, result.series["test_accuracy"]
    assert result.data == "synthetic images, since a test needs no more"
    assert result.parameters["batch_size"] == 32
    assert (len(accuracies), len(result.series["loss"])) == (2, 2 * 5)
    assert metrics["test_accuracy"] == accuracies[-1]
    assert metrics["best_test_accuracy"] == max(accuracies)
    assert metrics["images_per_second"] == pytest.approx(150 / metrics["seconds_per_epoch"])
    assert result.checks["max_replica_difference"] == 0
    assert min(result.cases[0].bare_seconds) > 0


def test_devices_that_differ_after_training_make_the_result_invalid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_parallel, "largest_replica_difference", lambda *_: 1e-9)
    backend = backends.load("numpy", 2, threads_per_device=1)
    result = parallel_core.run_data_parallel(
        backend, data=DATA_PARALLEL["data"], settings=Settings(1, 16, limit=1)
    )
    assert result.problems == (devices_differ("parameters after training", 1e-9),)
    assert not result.is_merely_disturbed


@pytest.mark.parametrize(("limit", "tested_images"), [(None, 20), (1, 16)])
def test_a_limited_training_is_tested_on_as_few_images(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, limit: int | None, tested_images: int
) -> None:
    image_counts = []

    def evaluate(_: Backend, __: object, data: Dataset) -> float:
        image_counts.append(len(data.test_labels))
        return 0.5

    monkeypatch.setattr(training_loop, "evaluate", evaluate)
    result = parallel_core.run_data_parallel(
        backend, data=DATA_PARALLEL["data"], settings=Settings(1, 16, limit=limit), compared=0
    )
    # The check against NumPy has a single image.
    assert image_counts == [tested_images, 1]
    assert result.bands == {"test_accuracy": "learnt"}


def test_there_is_a_figure_for_each_number_of_devices(backend: Backend) -> None:
    result = parallel_core.run_batch_scaling(backend, **BATCH_SCALING)
    assert [case.name for case in result.cases] == [
        "1 device",
        "2 devices, fixed batch",
        "2 devices, scaled batch",
        "all devices, fixed batch",
        "all devices, scaled batch",
    ]
    single, fixed_on_2, scaled_on_2, fixed_on_3, scaled_on_3 = (
        case.median for case in result.cases
    )
    steps, batch_size, series = 2, 8, result.series
    images = steps * batch_size
    assert series["devices"] == (1, 2, 3)
    assert series["images_per_second scaled batch"] == pytest.approx(
        (images / single, 2 * images / scaled_on_2, 3 * images / scaled_on_3)
    )
    assert series["step_seconds fixed batch"] == pytest.approx(
        (single / steps, fixed_on_2 / steps, fixed_on_3 / steps)
    )
    last_figures = {
        "scaled_batch_scaling_efficiency": single / scaled_on_3,
        "fixed_batch_scaling_efficiency": single / fixed_on_3 / 3,
        "scaled_batch_speedup": 3 * fixed_on_3 / scaled_on_3,
    }
    for name, expected in last_figures.items():
        assert result.metrics[name] == pytest.approx(expected), name
    for kind in ("fixed", "scaled"):
        _, _, on_all = series[f"scaling_efficiency {kind} batch"]
        assert on_all == pytest.approx(last_figures[f"{kind}_batch_scaling_efficiency"])


def test_each_step_with_the_scaled_batch_is_counted(load_any: Callable[[int], Backend]) -> None:
    result = EXPERIMENTS["batch-scaling"].run(load_any(2), **BATCH_SCALING)
    if result.backend["name"] == "numpy":
        assert result.counts == {}
        return
    counted = result.counts[AT_ONCE.name]
    assert counted.of == BATCH_SCALING["steps"]
    if result.backend["engine"] == "sync":
        assert counted.repetitions == (0, 0)


@pytest.mark.parametrize(("budget", "images", "steps"), [(1e-3, 300, 1), (1e6, 12, 4)])
def test_steps_are_chosen_to_fit_budget_and_images(
    backend: Backend, budget: float, images: int, steps: int
) -> None:
    data = replace(
        MADE_UP,
        train_images=MADE_UP.train_images[:images],
        train_labels=MADE_UP.train_labels[:images],
    )
    result = parallel_core.run_batch_scaling(
        backend, data=data, batch_size=1, rounds=1, budget=budget
    )
    assert result.parameters["steps"] == steps


def test_bare_times_are_of_all_steps_and_gains_have_a_limit(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interleave(takes: dict[str, object], *_: object, **__: object) -> list[Case]:
        """Let every case take a second in each of three rounds, and the last one half of that."""
        units = [name for name in takes if "as one unit" in name]
        assert len(units) == 1 + 2 * 2 + 2 * 3
        cases = []
        for name in takes:
            seconds = 0.5 if name == "all devices, scaled batch" else 1.0
            cases.append(Case(name, (seconds,) * 3, (seconds,) * 3))
        return cases

    monkeypatch.setattr(trials, "interleave", interleave)
    result = parallel_core.run_batch_scaling(backend, **BATCH_SCALING)
    assert {case.bare_seconds for case in result.cases} == {(2.0, 2.0, 2.0)}
    (problem,) = result.disturbances
    assert problem.code == "impossible-figure"
    assert result.metrics["scaled_batch_scaling_efficiency"] == 2


def test_every_number_of_devices_is_timed_and_counts_the_same_images(backend: Backend) -> None:
    result = parallel_core.run_evaluate(backend, **{**EVALUATE, "images": 7})
    metrics = result.metrics
    assert result.parameters["images"] == 7
    assert result.parameters["train_steps"] == 12
    assert result.series["devices"] == (1, 2, 3)
    (correct_images,) = set(result.series["correct_images"])
    assert metrics["correct_images"] == correct_images
    assert round(metrics["test_accuracy"] * 27) == correct_images
    assert metrics["unequal_images"] == 0
    alike = result.counts[ALIKE.name]
    assert alike.count == alike.of == 27
    assert result.bands["unequal_images"] == result.bands[ALIKE.name] == "equal"
    assert result.checks["max_device_difference"] < 1e-5

    assert [case.name for case in result.cases] == ["1 device", "2 devices", "3 devices"]
    for case in result.cases:
        assert len(case.bare_seconds) == 2
        assert case.dispatch_seconds < case.seconds
    on_1, _, on_3 = (case.median for case in result.cases)
    assert metrics["evaluation_speedup"] == pytest.approx(on_1 / on_3)
    assert metrics["images_per_second"] == pytest.approx(7 / on_3)


def test_the_least_of_budgets_trains_and_checks_a_little_and_says_so(backend: Backend) -> None:
    options = {**EVALUATE, "train_steps": 30, "budget": 1e-6, "images": None}
    result = parallel_core.run_evaluate(backend, **options)
    assert result.parameters["train_steps"] == 10
    assert result.parameters["images"] == 12
    assert result.notes[:2] == (
        budget_ended("the training", "10 of 30 steps"),
        budget_ended("NumPy's scores", "4 of 27 images"),
    )


def test_training_briefly_changes_the_network_and_is_the_same_every_time(backend: Backend) -> None:
    settings = Settings(1, 8, 0.1, limit=12, initial_scale=8.0)
    parameters = trained_briefly(Trial(backend, {}), MADE_UP, settings)
    parameters_again = trained_briefly(Trial(backend, {}), MADE_UP, settings)
    for array, array_again in zip(parameters, parameters_again, strict=True):
        np.testing.assert_array_equal(array, array_again)
    assert not np.allclose(parameters[0], 8 * initial_parameters(0)[0])


LABELS = np.array([0, 1, 2, 3])
CERTAIN = np.eye(10, dtype=np.float32)[LABELS]
"""Scores of which only that of the right class is not 0."""


def compared(
    scores: Mapping[int, np.ndarray],
    correct_images: Mapping[int, int],
    numpy_scores: np.ndarray = CERTAIN,
) -> Trial:
    """Return a trial in which scores were compared, each by its number of devices."""
    trial = Trial(backends.load("numpy", 2), {})
    compare(trial, scores, numpy_scores, LABELS, correct_images)
    return trial


def nearly_tied(difference: float) -> np.ndarray:
    """Return the scores where another class of image 2 is higher than the right one by this."""
    scores = CERTAIN.copy()
    scores[2, 5] = 1 + difference
    return scores


def test_an_image_whose_scores_are_nearly_tied_is_named_and_is_no_error() -> None:
    scores = {1: nearly_tied(-1e-7), 2: nearly_tied(1e-6)}
    trial = compared(scores, {1: 4, 2: 3}, nearly_tied(-1e-7))
    assert trial.figures["unequal_images"].estimate == 1
    assert trial.notes == [unequal_image(2, "on 2 devices", 1e-7)]
    assert trial.problems == []
    assert trial.errors["scores"] < 1e-5


def test_images_are_counted_that_have_the_same_class_on_every_number_of_devices() -> None:
    def alike(scores: Mapping[int, np.ndarray], numpy_scores: np.ndarray) -> int:
        counted = compared(scores, dict.fromkeys(scores, 4), numpy_scores).counts[ALIKE.name]
        assert counted.of == 4
        return counted.count

    other_class_of_image_0 = CERTAIN[[1, 1, 2, 3]]
    # Images 0 and 2 have another class on a number of devices.
    assert alike({1: CERTAIN, 2: nearly_tied(1e-6), 4: other_class_of_image_0}, CERTAIN) == 2
    # Another class with NumPy is none on more devices.
    assert alike({1: CERTAIN, 2: CERTAIN}, nearly_tied(1e-6)) == 4


@pytest.mark.parametrize(
    ("alike", "code"),
    [(10_000, "equal"), (9_999, "rounding"), (9_900, "rounding"), (0, "different")],
)
def test_a_single_image_of_another_class_is_not_exactly_the_same(alike: int, code: str) -> None:
    assert ALIKE.band(alike, 10_000).code == code


def test_a_single_device_is_not_compared_with_itself(load_any: Callable[[int], Backend]) -> None:
    result = parallel_core.run_evaluate(load_any(1), **EVALUATE)
    assert result.counts == {}
    assert [case.name for case in result.cases] == ["1 device"]


@pytest.mark.parametrize(
    ("on_two_devices", "problem"),
    [
        (nearly_tied(0.5), devices_differ("scores", 1.5)),
        (CERTAIN, counts_differ(devices=2, counted=3, by_scores=4)),
    ],
    ids=["beyond-rounding", "not-that-of-the-scores"],
)
def test_other_scores_and_another_count_are_a_problem(
    on_two_devices: np.ndarray, problem: Note
) -> None:
    assert compared({1: CERTAIN, 2: on_two_devices}, {1: 4, 2: 3}).problems == [problem]


@pytest.mark.parametrize(("images", "unequal_images"), [(3, 1), (2, 0)])
def test_numpy_is_asked_about_the_images_that_it_computed(images: int, unequal_images: int) -> None:
    # Image 2, the third one, has another class with NumPy.
    numpy_scores = nearly_tied(1e-6)[:images]
    trial = compared({1: CERTAIN}, {1: 4}, numpy_scores)
    assert trial.figures["unequal_images"].estimate == unequal_images
