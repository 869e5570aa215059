"""How long a training is to be, and the steps that one device takes too."""

import math
from dataclasses import replace
from functools import partial

import pytest

import backends
from backends import Backend
from parallel_core import Settings, run_data_parallel
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.one_device import (
    EQUAL,
    find_gain,
    train_in_turn,
)
from parallel_core.training import plan, step
from parallel_core.training.batches import CompletedSteps, Epoch
from parallel_core.training.checkpoints import Checkpointing, checkpoint_of
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters

NUMPY = backends.load("numpy", 2, threads_per_device=1)
DATA = synthetic("a test needs no more", train=80, test=8)
UNSAID = Settings(epochs=None, batch_size=1)
"""Of 80 batches."""


def a_step_takes(seconds: float) -> partial[plan.TrainingPlan]:
    return partial(plan.plan_training, NUMPY, DATA, agree=lambda _: seconds)


def test_a_training_whose_length_nobody_said_has_as_many_batches_as_fit() -> None:
    planned = a_step_takes(0.5)(UNSAID, 0)
    assert (planned.settings.epochs, planned.settings.limit) == (1, 60)
    assert (planned.batches, planned.images, planned.compared) == (60, 60, 0)
    # The 8 test images take about as long as 8 / 3 steps.
    assert planned.seconds == pytest.approx(0.5 * (60 + 8 / 3))
    assert planned.is_chosen
    slow = a_step_takes(1000.0)(UNSAID, None)
    assert (slow.batches, slow.compared) == (1, 1)


def test_all_batches_are_no_limit_so_that_more_epochs_may_follow() -> None:
    planned = a_step_takes(0.001)(UNSAID, 0)
    assert (planned.settings.limit, planned.batches) == (None, 80)


def test_what_is_said_stays_as_it_is() -> None:
    limited = a_step_takes(1000.0)(replace(UNSAID, limit=7), 0)
    assert (limited.settings.epochs, limited.settings.limit) == (1, 7)
    assert not limited.is_chosen
    whole = a_step_takes(1000.0)(replace(UNSAID, epochs=3), None)
    assert (whole.settings.epochs, whole.settings.limit, whole.batches) == (3, None, 80)
    assert whole.compared == plan.MOST_COMPARED
    # Where nothing is to be chosen, several processes try no step: it would be an exchange.
    assert math.isnan(whole.seconds)


def test_what_was_done_before_and_testing_belong_to_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "_seconds_of_step", lambda *_: 1.0)
    rest = plan.plan_training(NUMPY, DATA, replace(UNSAID, epochs=3), 0, done=200)
    assert rest.seconds == pytest.approx(40 + 3 * 8 / 3)


def test_losses_on_all_devices_are_those_of_one(backend: Backend) -> None:
    result = run_data_parallel(backend, data=DATA, settings=Settings(None, 16), compared=4)
    counted = result.counts[EQUAL.name]
    assert (counted.count, counted.of) == (4, 4)
    assert result.bands[EQUAL.name] == "equal"
    assert result.parameters["epochs"] == 1
    steps = ["a step on one device", "a step on all devices"]
    assert [case.name for case in result.cases][1:] == steps
    one, every = (case.median for case in result.cases[1:])
    assert result.metrics["speedup_over_one_device"] == pytest.approx(one / every)


def test_losses_without_the_other_devices_gradients_are_not(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "exchange", lambda _, gradients, __: list(gradients))
    trial = Trial(backend, {})
    find_gain(trial, train_in_turn(backend, DATA, Settings(1, 16), 5))
    counted = trial.counts[EQUAL.name]
    # The first loss is of the start.
    assert (counted.count, counted.of) == (1, 5)


def test_one_device_is_compared_with_nothing() -> None:
    alone = backends.load("numpy", 1, threads_per_device=1)
    result = run_data_parallel(alone, data=DATA, settings=Settings(1, 40))
    assert (result.counts, len(result.cases)) == ({}, 1)


def test_a_resumed_training_ends_where_it_was_to_end() -> None:
    settings = Settings(epochs=2, batch_size=40, limit=1)
    first = CompletedSteps((Epoch(1, 1.0, 0.1, 40, (2.3,), 0.1),))
    kept = checkpoint_of(NUMPY, initial_parameters(), settings, DATA, first)
    result = run_data_parallel(
        NUMPY, data=DATA, settings=Settings(None, 40), checkpoints=Checkpointing(resumed=kept)
    )
    assert (result.parameters["epochs"], result.parameters["limit"]) == (2, 1)
    assert len(result.series["loss"]) == 2
