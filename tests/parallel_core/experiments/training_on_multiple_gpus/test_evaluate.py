"""Evaluation: one count of correct images on every number of devices, and classes that agree but for rounding."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import backends
import parallel_core
from backends import Backend
from parallel_core import Settings
from parallel_core.command_line import cli
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.evaluate import compare, trained_briefly
from parallel_core.training.batches import CompletedSteps
from parallel_core.training.checkpoints import checkpoint_of, read_checkpoint, write_checkpoint
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import evaluate
from tests.parallel_core.experiments.small import small

SMALL = small("evaluate")
MADE_UP = SMALL["data"]


def test_every_number_of_devices_counts_the_same_images(backend: Backend) -> None:
    result = parallel_core.run_evaluate(backend, **{**SMALL, "images": 7})
    assert result.parameters["images"] == 7
    assert result.series["devices"] == (1, 2, 3)
    (count,) = set(result.series["correct_images"])
    assert result.metrics["correct_images"] == count == round(result.metrics["test_accuracy"] * 27)
    assert result.metrics["unequal_images"] == 0
    assert result.bands["unequal_images"] == "equal"
    assert result.checks["max_device_difference"] < 1e-5
    assert result.parameters["train_steps"] == 12
    assert [case.name for case in result.cases] == ["1 device", "2 devices", "3 devices"]
    assert all(len(case.bare_seconds) == 2 for case in result.cases)
    assert all(
        sent < done for one in result.cases for sent, done in zip(one.dispatch_seconds, one.seconds, strict=True)
    )
    medians = [case.median for case in result.cases]
    assert result.metrics["evaluation_speedup"] == pytest.approx(medians[0] / medians[2])
    assert result.metrics["images_per_second"] == pytest.approx(7 / medians[2])


def test_the_least_of_budgets_trains_and_checks_a_little_and_says_so(backend: Backend) -> None:
    result = parallel_core.run_evaluate(backend, **{**SMALL, "train_steps": 30, "budget": 1e-6, "images": None})
    assert result.parameters["train_steps"] == 10
    assert result.parameters["images"] == 12
    assert ["10 of 30" in note for note in result.notes][:2] == [True, False]
    assert "first 4 images" in result.notes[1]


def test_a_checkpoint_is_evaluated_as_it_is_and_a_directory_without_one_is_refused_in_a_line(
    backend: Backend, tmp_path: Path
) -> None:
    done = CliRunner().invoke(cli, ["run", "evaluate", "--backend", "numpy", "--checkpoint", str(tmp_path)])
    assert done.exit_code == 2
    assert "there is no " in " ".join(done.output.split())
    reference = backends.load("numpy", 1)
    kept = checkpoint_of(reference, initial_parameters(3), Settings(), MADE_UP, CompletedSteps())
    write_checkpoint(tmp_path, kept)
    result = parallel_core.run_evaluate(backend, **SMALL, checkpoint=read_checkpoint(tmp_path))
    params = [reference.asarray(initial_parameters(3), reference.devices[0])]
    assert result.metrics["test_accuracy"] == evaluate(reference, params, MADE_UP)
    assert result.parameters["train_steps"] == 0
    assert result.parameters["checkpoint"].startswith("after 0 steps, written by numpy ")


def test_training_briefly_changes_the_network_and_is_the_same_every_time(backend: Backend) -> None:
    settings = Settings(1, 8, 0.1, limit=12)
    first, again = (trained_briefly(Trial(backend, {}), MADE_UP, settings) for _ in range(2))
    assert all(np.array_equal(mine, other) for mine, other in zip(first, again, strict=True))
    assert not np.allclose(first[0], 8 * initial_parameters(0)[0])


LABELS = np.array([0, 1, 2, 3])
SURE = np.eye(10, dtype=np.float32)[LABELS]


def described(scores: Mapping[int, np.ndarray], counted: Mapping[int, int], numpy: np.ndarray = SURE) -> Trial:
    trial = Trial(backends.load("numpy", 2), {})
    compare(trial, scores, numpy, LABELS, counted)
    return trial


def nearly_tied(by: float) -> np.ndarray:
    """Return the scores with another highest one for image 2, by so little."""
    scores = SURE.copy()
    scores[2, 5] = 1 + by
    return scores


def test_an_image_whose_scores_are_nearly_tied_is_named_and_is_no_error() -> None:
    found = described({1: nearly_tied(-1e-7), 2: nearly_tied(1e-6)}, {1: 4, 2: 3}, nearly_tied(-1e-7))
    assert found.figures["unequal_images"].estimate == 1
    assert (len(found.notes), found.problems) == (1, [])
    assert found.notes[0].startswith("Image 2 ")
    assert found.errors["scores"] < 1e-5


def test_scores_that_differ_beyond_rounding_and_counts_that_are_not_theirs_are_errors() -> None:
    assert "depend on the number of devices" in described({1: SURE, 2: nearly_tied(0.5)}, {1: 4, 2: 3}).problems[0]
    (problem,) = described({1: SURE, 2: SURE}, {1: 4, 2: 3}).problems
    assert problem == "2 devices counted 3 correct images, and their scores 4"
    # NumPy is asked about the images that it computed.
    found = described({1: SURE}, {1: 4}, numpy=nearly_tied(1e-6)[:3])
    assert found.figures["unequal_images"].estimate == 1
    assert described({1: SURE}, {1: 4}, numpy=nearly_tied(1e-6)[:2]).figures["unequal_images"].estimate == 0
