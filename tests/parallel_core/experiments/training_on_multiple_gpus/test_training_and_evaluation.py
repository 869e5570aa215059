"""Training and evaluating on several devices: `building-blocks`, `data-parallel`, `batch-scaling`
and `evaluate`.

What a step computes is tested with the training; here, what is reported, for how many images and on
which devices.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import backends
import parallel_core
from backends import Backend
from parallel_core import Case, Settings
from parallel_core.command_line import cli
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import building_blocks, data_parallel
from parallel_core.experiments.training_on_multiple_gpus.evaluate import (
    ALIKE,
    compare,
    trained_briefly,
)
from parallel_core.experiments.training_on_multiple_gpus.step_counts import AT_ONCE
from parallel_core.experiments.training_steps import enlarged_start
from parallel_core.training import loop as training_loop
from parallel_core.training.batches import CompletedSteps
from parallel_core.training.checkpoints import checkpoint_of, read_checkpoint, write_checkpoint
from parallel_core.training.lenet import initial_parameters
from tests.parallel_core.experiments.small import small

DATA_PARALLEL, BATCH_SCALING, EVALUATE = map(small, ("data-parallel", "batch-scaling", "evaluate"))
MADE_UP = EVALUATE["data"]


def test_every_building_block_shows_its_values(backend: Backend) -> None:
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert result.problems == ()
    assert result.bands == {"right_examples": "right"}
    assert result.metrics["right_examples"] == len(result.notes) == 6
    summed, rebound, shared, parameters, even, uneven = (
        note.split("[", 1)[-1] for note in result.notes
    )
    assert summed.count("[1, 1]") == summed.count("[2, 2]") == 1
    assert summed.count("[3, 3]") == 2
    assert rebound.count("[-1.5, -1.5]") == 3
    assert shared.count("[-1, -1]") == 2
    assert shared.count("[-0.5, -0.5]") == 1
    assert parameters.startswith("0, 0, 0]")
    assert "[[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]" in even
    assert "3 and 2" in uneven


def test_other_parameters_make_the_building_blocks_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = enlarged_start(1, 1)
    monkeypatch.setattr(
        building_blocks, "get_params", lambda backend, device: backend.asarray(start, device)
    )
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert (len(result.problems), "'parameters on a device'" in result.problems[0]) == (1, True)
    assert (result.metrics["right_examples"], result.bands["right_examples"]) == (5, "wrong")


def test_the_training_experiment_reports_epochs(backend: Backend) -> None:
    result = parallel_core.run_data_parallel(backend, **DATA_PARALLEL)
    assert result.data == "synthetic images, since a test needs no more"
    assert len(result.series["test_accuracy"]) == 2
    assert len(result.series["loss"]) == 2 * 5
    assert result.metrics["test_accuracy"] == result.series["test_accuracy"][-1]
    assert result.metrics["best_test_accuracy"] == max(result.series["test_accuracy"])
    assert result.metrics["images_per_second"] == pytest.approx(
        300 / result.metrics["seconds_per_epoch"]
    )
    assert result.checks["max_replica_difference"] == 0
    assert min(result.cases[0].bare_seconds) > 0
    assert result.parameters["batch_size"] == 64


def test_devices_that_differ_after_training_make_the_result_invalid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_parallel, "largest_replica_difference", lambda *_: 1e-9)
    backend = backends.load("numpy", 2, threads_per_device=1)
    result = parallel_core.run_data_parallel(
        backend, data=DATA_PARALLEL["data"], settings=Settings(1, 16, limit=1)
    )
    assert result.problems == (
        "the devices' parameters differ after training, by 1.0e-09 of the largest",
    )
    assert not result.is_merely_disturbed


@pytest.mark.parametrize(("limit", "tested"), [(None, 20), (1, 16)])
def test_a_limited_training_is_tested_on_as_few_images(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, limit: int | None, tested: int
) -> None:
    counted = []
    monkeypatch.setattr(
        training_loop, "evaluate", lambda _, __, data: counted.append(len(data.test_labels)) or 0.5
    )
    result = parallel_core.run_data_parallel(
        backend, data=DATA_PARALLEL["data"], settings=Settings(1, 16, limit=limit), compared=0
    )
    # The check against NumPy has a single one.
    assert counted == [tested, 1]
    assert result.bands == {"test_accuracy": "learnt"}


def test_there_is_a_figure_for_each_number_of_devices(backend: Backend) -> None:
    result = parallel_core.run_batch_scaling(backend, **BATCH_SCALING)
    names = ("1 device", "2 devices, fixed batch", "2 devices, scaled batch")
    assert [case.name for case in result.cases] == [
        *names,
        "all devices, fixed batch",
        "all devices, scaled batch",
    ]
    assert result.series["devices"] == (1, 2, 3)
    medians = [case.median for case in result.cases]
    one, _, _, fixed, scaled = medians
    assert result.series["images_per_second scaled batch"] == pytest.approx(
        (16 / one, 32 / medians[2], 48 / scaled)
    )
    assert result.series["scaling_efficiency scaled batch"][2] == pytest.approx(one / scaled)
    assert result.series["step_seconds fixed batch"][1] == pytest.approx(medians[1] / 2)
    assert result.metrics["fixed_batch_scaling_efficiency"] == pytest.approx(one / fixed / 3)
    assert result.series["scaling_efficiency fixed batch"][-1] == pytest.approx(one / fixed / 3)
    assert result.metrics["scaled_batch_speedup"] == pytest.approx(3 * fixed / scaled)
    assert len({len(values) for values in result.series.values()}) == 1


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
    def timed(takes: dict[str, object], *_: object, **__: object) -> list[Case]:
        assert sum("as one unit" in name for name in takes) == 1 + 2 * 2 + 2 * 3
        seconds = {name: 0.5 if name == "all devices, scaled batch" else 1.0 for name in takes}
        return [Case(name, (each,) * 3, (each,) * 3) for name, each in seconds.items()]

    monkeypatch.setattr(trials, "interleave", timed)
    result = parallel_core.run_batch_scaling(backend, **BATCH_SCALING)
    assert {case.bare_seconds for case in result.cases} == {(2.0,) * 3}
    (problem,) = result.disturbances
    assert problem.startswith("scaled_batch_scaling_efficiency is 2.00 ")


def test_every_number_of_devices_counts_the_same_images(backend: Backend) -> None:
    result = parallel_core.run_evaluate(backend, **{**EVALUATE, "images": 7})
    assert result.parameters["images"] == 7
    assert result.series["devices"] == (1, 2, 3)
    (count,) = set(result.series["correct_images"])
    assert result.metrics["correct_images"] == count == round(result.metrics["test_accuracy"] * 27)
    assert result.metrics["unequal_images"] == 0
    assert result.bands["unequal_images"] == "equal"
    counted = result.counts[ALIKE.name]
    assert (counted.count, counted.of, result.bands[ALIKE.name]) == (27, 27, "equal")
    assert result.checks["max_device_difference"] < 1e-5
    assert result.parameters["train_steps"] == 12
    assert [case.name for case in result.cases] == ["1 device", "2 devices", "3 devices"]
    assert all(len(case.bare_seconds) == 2 for case in result.cases)
    assert all(one.dispatch_seconds < one.seconds for one in result.cases)
    medians = [case.median for case in result.cases]
    assert result.metrics["evaluation_speedup"] == pytest.approx(medians[0] / medians[2])
    assert result.metrics["images_per_second"] == pytest.approx(7 / medians[2])


def test_the_least_of_budgets_trains_and_checks_a_little_and_says_so(backend: Backend) -> None:
    result = parallel_core.run_evaluate(
        backend, **{**EVALUATE, "train_steps": 30, "budget": 1e-6, "images": None}
    )
    assert result.parameters["train_steps"] == 10
    assert result.parameters["images"] == 12
    assert ["10 of 30" in note for note in result.notes][:2] == [True, False]
    assert "first 4 images" in result.notes[1]


def test_a_checkpoint_is_evaluated_as_it_is_and_a_directory_without_refused(
    backend: Backend, tmp_path: Path
) -> None:
    done = CliRunner().invoke(
        cli, ["run", "evaluate", "--backend", "numpy", "--checkpoint", str(tmp_path)]
    )
    assert done.exit_code == 2
    assert "there is no " in " ".join(done.output.split())
    reference = backends.load("numpy", 1)
    kept = checkpoint_of(reference, initial_parameters(3), Settings(), MADE_UP, CompletedSteps())
    write_checkpoint(tmp_path, kept)
    result = parallel_core.run_evaluate(backend, **EVALUATE, checkpoint=read_checkpoint(tmp_path))
    params = [reference.asarray(initial_parameters(3), reference.devices[0])]
    assert result.metrics["test_accuracy"] == training_loop.evaluate(reference, params, MADE_UP)
    assert result.parameters["train_steps"] == 0
    assert result.parameters["checkpoint"].startswith("after 0 steps, written by numpy ")


def test_training_briefly_changes_the_network_and_is_the_same_every_time(backend: Backend) -> None:
    settings = Settings(1, 8, 0.1, limit=12)
    first, again = (trained_briefly(Trial(backend, {}), MADE_UP, settings) for _ in range(2))
    assert all(np.array_equal(mine, other) for mine, other in zip(first, again, strict=True))
    assert not np.allclose(first[0], 8 * initial_parameters(0)[0])


LABELS = np.array([0, 1, 2, 3])
SURE = np.eye(10, dtype=np.float32)[LABELS]


def described(
    scores: Mapping[int, np.ndarray], counted: Mapping[int, int], numpy: np.ndarray = SURE
) -> Trial:
    trial = Trial(backends.load("numpy", 2), {})
    compare(trial, scores, numpy, LABELS, counted)
    return trial


def nearly_tied(by: float) -> np.ndarray:
    """Return the scores with another highest one for image 2, by so little."""
    scores = SURE.copy()
    scores[2, 5] = 1 + by
    return scores


def test_an_image_whose_scores_are_nearly_tied_is_named_and_is_no_error() -> None:
    found = described(
        {1: nearly_tied(-1e-7), 2: nearly_tied(1e-6)}, {1: 4, 2: 3}, nearly_tied(-1e-7)
    )
    assert found.figures["unequal_images"].estimate == 1
    assert (len(found.notes), found.problems) == (1, [])
    assert found.notes[0].startswith("Image 2 ")
    assert found.errors["scores"] < 1e-5


def test_images_are_counted_that_have_the_same_class_on_every_number_of_devices() -> None:
    other_image = SURE[[1, 1, 2, 3]]
    scores = {1: SURE, 2: nearly_tied(1e-6), 4: other_image}
    counted = described(scores, dict.fromkeys(scores, 4)).counts[ALIKE.name]
    # Images 0 and 2 have another class on some number of devices.
    assert (counted.count, counted.of) == (2, 4)
    # Another class in NumPy is none on more devices.
    alike = described({1: SURE, 2: SURE}, {1: 4, 2: 4}, nearly_tied(1e-6)).counts[ALIKE.name]
    assert (alike.count, alike.of) == (4, 4)


@pytest.mark.parametrize(
    ("seen", "code"),
    [(10_000, "equal"), (9_999, "rounding"), (9_900, "rounding"), (0, "different")],
)
def test_a_single_image_of_another_class_is_not_exactly_the_same(seen: int, code: str) -> None:
    assert ALIKE.band(seen, 10_000).code == code


def test_a_single_device_is_not_compared_with_itself(load_any: Callable[[int], Backend]) -> None:
    result = parallel_core.run_evaluate(load_any(1), **EVALUATE)
    assert result.counts == {}
    assert [case.name for case in result.cases] == ["1 device"]


def test_scores_that_differ_beyond_rounding_and_counts_that_are_not_theirs_are_errors() -> None:
    assert (
        "depend on the number of devices"
        in described({1: SURE, 2: nearly_tied(0.5)}, {1: 4, 2: 3}).problems[0]
    )
    (problem,) = described({1: SURE, 2: SURE}, {1: 4, 2: 3}).problems
    assert problem == "2 devices counted 3 correct images, and their scores 4"
    # NumPy is asked about the images that it computed.
    found = described({1: SURE}, {1: 4}, numpy=nearly_tied(1e-6)[:3])
    assert found.figures["unequal_images"].estimate == 1
    assert (
        described({1: SURE}, {1: 4}, numpy=nearly_tied(1e-6)[:2]).figures["unequal_images"].estimate
        == 0
    )
