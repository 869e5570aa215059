"""How long a training is to be, and the steps that one device takes too."""

import math
from dataclasses import replace

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


def plan_for_steps_of(
    seconds: float, settings: Settings, compared: int | None
) -> plan.TrainingPlan:
    """Plan a training whose steps take these seconds each."""
    return plan.plan_training(NUMPY, DATA, settings, compared, agree=lambda _: seconds)


def test_a_training_whose_length_nobody_said_has_as_many_batches_as_fit() -> None:
    planned = plan_for_steps_of(0.5, UNSAID, 0)
    assert planned.settings.epochs == 1
    assert planned.settings.limit == 60
    assert planned.batches == 60
    assert planned.images == 60
    assert planned.compared == 0
    # The 8 test images take about as long as 8 / 3 steps.
    assert planned.seconds == pytest.approx(0.5 * (60 + 8 / 3))
    assert planned.is_chosen


def test_a_training_of_slow_steps_has_a_batch_that_is_compared() -> None:
    planned = plan_for_steps_of(1000.0, UNSAID, None)
    assert planned.batches == 1
    assert planned.compared == 1


def test_all_batches_are_no_limit_so_that_more_epochs_may_follow() -> None:
    planned = plan_for_steps_of(0.001, UNSAID, 0)
    assert planned.settings.limit is None
    assert planned.batches == 80


def test_a_limit_that_is_given_stays() -> None:
    planned = plan_for_steps_of(1000.0, replace(UNSAID, limit=7), 0)
    assert planned.settings.epochs == 1
    assert planned.settings.limit == 7
    assert not planned.is_chosen


def test_epochs_that_are_given_stay() -> None:
    planned = plan_for_steps_of(1000.0, replace(UNSAID, epochs=3), None)
    assert planned.settings.epochs == 3
    assert planned.settings.limit is None
    assert planned.batches == 80
    assert planned.compared == plan.MOST_COMPARED
    # Where nothing is to be chosen, several processes try no step: it would be an exchange.
    assert math.isnan(planned.seconds)


def test_an_estimate_leaves_out_the_steps_that_are_done_and_has_the_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "_seconds_of_step", lambda *_: 1.0)
    planned = plan.plan_training(NUMPY, DATA, replace(UNSAID, epochs=3), 0, done=200)
    steps_left, steps_of_tests = 3 * 80 - 200, 3 * 8 / 3
    assert planned.seconds == pytest.approx(steps_left + steps_of_tests)


def test_losses_on_all_devices_are_those_of_one(backend: Backend) -> None:
    result = run_data_parallel(backend, data=DATA, settings=Settings(None, 16), compared=4, count=0)
    counted = result.counts[EQUAL.name]
    assert counted.count == 4
    assert counted.of == 4
    assert result.bands[EQUAL.name] == "equal"
    assert result.parameters["epochs"] == 1
    _, single_step, divided_step = result.cases
    assert single_step.name == "a step on one device"
    assert divided_step.name == "a step on all devices"
    speedup = single_step.median / divided_step.median
    assert result.metrics["speedup_over_one_device"] == pytest.approx(speedup)


def test_losses_without_the_other_devices_gradients_differ_from_those_of_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "exchange", lambda _, gradients, __: list(gradients))
    trial = Trial(backend, {})
    find_gain(trial, train_in_turn(backend, DATA, Settings(1, 16), 5))
    counted = trial.counts[EQUAL.name]
    # The first loss is of the start.
    assert counted.count == 1
    assert counted.of == 5


def test_a_single_device_is_compared_with_nothing() -> None:
    single_device = backends.load("numpy", 1, threads_per_device=1)
    result = run_data_parallel(single_device, data=DATA, settings=Settings(1, 40))
    assert result.counts == {}
    assert len(result.cases) == 1


def test_a_resumed_training_ends_where_it_was_to_end() -> None:
    settings = Settings(epochs=2, batch_size=40, limit=1)
    first_epoch = CompletedSteps((Epoch(1, 1.0, 0.1, 40, (2.3,), 0.1),))
    kept = checkpoint_of(NUMPY, initial_parameters(), settings, DATA, first_epoch)
    result = run_data_parallel(
        NUMPY, data=DATA, settings=Settings(None, 40), checkpoints=Checkpointing(resumed=kept)
    )
    assert result.parameters["epochs"] == 2
    assert result.parameters["limit"] == 1
    assert len(result.series["loss"]) == 2
