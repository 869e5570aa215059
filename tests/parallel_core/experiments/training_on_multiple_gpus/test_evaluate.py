"""Evaluation: one count of correct images on every number of devices, and sentences that follow from the scores."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import backends
import parallel_core
from backends import Backend
from parallel_core import Settings
from parallel_core.command_line import cli
from parallel_core.experiments.training_on_multiple_gpus.evaluate import verdicts as about_evaluation
from parallel_core.experiments.training_on_multiple_gpus.evaluate.networks import trained_briefly
from parallel_core.experiments.training_on_multiple_gpus.evaluate.scores import Compared
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.system.machine_watch import MachineWatch
from parallel_core.training.checkpoints import Checkpoint, checkpoint_of, read_checkpoint, write_checkpoint
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import evaluate
from parallel_core.training.progress import CompletedSteps

# Shards of 4 on 3 devices: the last ones are of other lengths, and one of them is empty.
MADE_UP = synthetic("a test needs no more", train=2000, test=27)

SMALL: dict[str, Any] = {"data": MADE_UP, "batch_size": 4, "train_steps": 12, "rounds": 2}


def test_every_number_of_devices_counts_the_same_images(backend: Backend) -> None:
    result = parallel_core.run_evaluate(backend, **SMALL)
    assert result.series["devices"] == (1, 2, 3)
    (count,) = set(result.series["correct_images"])
    assert result.metrics["correct_images"] == count == round(result.metrics["test_accuracy"] * 27)
    assert result.metrics["unequal_images"] == 0
    assert result.checks["max_device_difference"] < 1e-5
    assert result.explanation.startswith("1, 2 and 3 devices classified the same ")
    assert "equal to the last image, and NumPy agrees on all of them" in result.explanation
    assert result.parameters["train_steps"] == 12
    assert [case.name for case in result.cases] == ["1 device", "2 devices", "3 devices"]
    assert all(len(case.bare_seconds) == 2 for case in result.cases)


def test_the_least_of_budgets_trains_and_checks_a_little_and_says_so(backend: Backend) -> None:
    result = parallel_core.run_evaluate(backend, **{**SMALL, "train_steps": 30}, budget=1e-6)
    assert result.parameters["train_steps"] == 10
    assert "NumPy agrees on the first 4 of them" in result.explanation
    assert result.notes[0].startswith("The network was trained for 10 steps first: the budget ended it before 30 ")
    assert result.parameters["images"] == 12
    # What one framework chose is asked of the next one.
    asked = parallel_core.run_evaluate(backend, **SMALL, images=7)
    assert asked.parameters["images"] == 7


def kept() -> Checkpoint:
    return checkpoint_of(backends.load("numpy", 1), initial_parameters(3), Settings(), MADE_UP, CompletedSteps())


def test_a_checkpoint_is_evaluated_as_it_is(backend: Backend, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, kept())
    result = parallel_core.run_evaluate(backend, **SMALL, checkpoint=read_checkpoint(tmp_path))
    reference = backends.load("numpy", 1)
    params = [reference.asarray(initial_parameters(3), reference.devices[0])]
    assert result.metrics["test_accuracy"] == evaluate(reference, params, MADE_UP)
    assert result.parameters["train_steps"] == 0
    assert result.parameters["checkpoint"].startswith("after 0 steps, written by numpy ")


def test_a_directory_without_a_checkpoint_is_refused_in_a_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["run", "evaluate", "--backend", "numpy", "--checkpoint", str(tmp_path)])
    assert done.exit_code == 2
    assert "there is no " in " ".join(done.output.split())


def test_training_briefly_changes_the_network_and_is_the_same_every_time(backend: Backend) -> None:
    settings = Settings(1, 8, 0.1, limit=12)
    (first, steps), (again, _) = (trained_briefly(backend, MADE_UP, settings, 8.0, lambda: 1.0) for _ in range(2))
    assert steps == 12
    assert all(np.array_equal(mine, other) for mine, other in zip(first, again, strict=True))
    assert not np.allclose(first[0], 8 * initial_parameters(0)[0])


LABELS = np.array([0, 1, 2, 3])
SURE = np.eye(10, dtype=np.float32)[LABELS]


def compared(scores: Mapping[str, np.ndarray], counted: Mapping[str, int], numpy: np.ndarray = SURE) -> Compared:
    return Compared(scores, numpy, LABELS, counted)


def nearly_tied(by: float) -> np.ndarray:
    """Return the scores with another highest one for image 2, by so little."""
    scores = SURE.copy()
    scores[2, 5] = 1 + by
    return scores


def test_an_image_whose_scores_are_nearly_tied_is_named_and_is_no_error() -> None:
    found = compared(
        {"1 device": nearly_tied(-1e-7), "2 devices": nearly_tied(1e-6)},
        {"1 device": 4, "2 devices": 3},
        nearly_tied(-1e-7),
    )
    assert [(one.image, one.where) for one in found.unequal] == [(2, "2 devices")]
    assert found.unequal[0].margin < 1e-6
    assert found.problems == ()
    told = about_evaluation.about_counts(found)
    assert told.startswith("Of 4 images 4 on 1 device and 3 on 2 devices are classified correctly. ")
    assert "image 2 in 2 devices" in told


def test_scores_that_differ_beyond_rounding_are_an_error() -> None:
    found = compared({"1 device": SURE, "2 devices": nearly_tied(0.5)}, {"1 device": 4, "2 devices": 3})
    assert found.problems[0].startswith("the scores depend on the number of devices, by ")


def test_a_count_that_is_not_that_of_the_scores_is_an_error() -> None:
    found = compared({"1 device": SURE, "2 devices": SURE}, {"1 device": 4, "2 devices": 3})
    assert found.problems == ("2 devices counted 3 correct images, and their scores 4",)
    assert "the counts contradict them" in about_evaluation.about_counts(found)


def test_numpy_is_asked_about_the_images_that_it_computed() -> None:
    unlike = compared({"1 device": SURE}, {"1 device": 4}, numpy=nearly_tied(1e-6)[:3])
    assert [one.where for one in unlike.unequal] == ["NumPy"]
    assert "NumPy agrees on the first 2 of them" in about_evaluation.about_counts(
        compared({"1 device": SURE}, {"1 device": 4}, numpy=SURE[:2])
    )


QUIET = MachineWatch(1.0, 2.0, 0.0, 0.0, None, None, None)


@pytest.mark.parametrize(
    ("speedup", "said"),
    [
        (Interval(1.9, 1.8, 2.0), "2 devices were 1.90 (1.80–2.00) × as fast as one, "),
        (Interval(0.5, 0.4, 0.6), "2 devices were slower: 0.50 (0.40–0.60) × as fast"),
        (Interval(1.2, 0.8, 1.6), "Whether 2 devices are faster the noise leaves open: 1.20 (0.80–1.60) × "),
    ],
)
def test_no_more_is_said_of_speed_than_the_interval_shows(speedup: Interval, said: str) -> None:
    speeds = {1: Interval(100.0, 90.0, 110.0), 2: Interval(190.0, 180.0, 200.0)}
    assert about_evaluation.about_speed(speeds, speedup, QUIET).startswith(said)
    busy = replace(QUIET, others_share=0.5)
    assert about_evaluation.about_speed(speeds, speedup, busy).startswith("How fast that was cannot be said")
