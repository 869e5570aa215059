"""Learning rates: a curve for each kind of batch, and what they show of rates."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
import parallel_core
from backends import Backend
from parallel_core import MeasurementError, Result, Settings
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import learning_rates as module
from parallel_core.experiments.training_on_multiple_gpus.best_rates import (
    MIN_NOISE,
    find_figures,
    noise_of,
)
from parallel_core.experiments.training_steps import FIXED, SCALED
from parallel_core.training.batches import Epoch
from tests.parallel_core.experiments.runner.pretended import pretended
from tests.parallel_core.experiments.small import small


def learning_rates(backend: Backend, **changes: Any) -> Result:
    """Run the experiment with little work."""
    options = {
        **small("learning-rates"),
        "rates": (0.2, 0.1),
        "settings": Settings(1, 8, limit=3),
        **changes,
    }
    return parallel_core.run_learning_rates(backend, **options)


@given(
    batch_size=st.integers(1, 100), limit=st.integers(1, 1000), times_as_large=st.integers(1, 16)
)
def test_larger_batches_see_as_many_images(
    batch_size: int, limit: int, times_as_large: int
) -> None:
    large_batch_size = times_as_large * batch_size
    settings = Settings(1, batch_size, limit=limit)
    of_large = module.with_batch(settings, large_batch_size, learning_rate=0.5)
    assert of_large.limit is not None
    assert of_large.batch_size == large_batch_size
    assert of_large.learning_rate == 0.5
    further_images = of_large.limit * large_batch_size - limit * batch_size
    assert 0 <= further_images < large_batch_size


def test_a_point_is_a_mean_over_seeds_at_its_rate_and_batch(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_once = module.train_once

    def train_with_telling_accuracy(*arguments: Any) -> tuple[Epoch]:
        """Return an accuracy that tells with which rate, seed and batch size was trained."""
        (epoch,) = train_once(*arguments)
        settings = arguments[3]
        accuracy = settings.learning_rate + settings.seed / 100 + settings.batch_size / 1000
        return (replace(epoch, accuracy=accuracy),)

    monkeypatch.setattr(module, "train_once", train_with_telling_accuracy)
    result = learning_rates(backend, settings=Settings(1, 4, limit=3, seed=5), rounds=2)
    batch_sizes = {
        "1 device": 4,
        f"2 devices, {FIXED}": 4,
        f"2 devices, {SCALED}": 8,
        f"3 devices, {FIXED}": 4,
        f"3 devices, {SCALED}": 12,
    }
    assert list(result.series) == ["rate", *(f"test_accuracy {name}" for name in batch_sizes)]
    assert result.series["rate"] == (0.1, 0.2)
    mean_of_seeds = (5 + 6) / 2 / 100
    for name, batch_size in batch_sizes.items():
        accuracies = [rate + mean_of_seeds + batch_size / 1000 for rate in (0.1, 0.2)]
        assert result.series[f"test_accuracy {name}"] == pytest.approx(accuracies)
    assert [len(case.seconds) for case in result.cases] == [4] * 5


def test_a_rate_at_which_the_loss_is_not_finite_is_a_further_point(backend: Backend) -> None:
    result = learning_rates(backend, rates=(0.1, 1e30))
    for name, values in result.series.items():
        if name != "rate":
            _, at_highest_rate = values
            assert 0 <= at_highest_rate <= 1
    assert len(result.cases[0].seconds) == 1
    message = r"on 1 device no loss stayed finite: choose lower --rates"
    with pytest.raises(MeasurementError, match=message):
        learning_rates(backend, rates=(1e30,))


LEARNT = {0.1: 0.5, 0.2: 0.7, 0.4: 0.69, 0.8: 0.1}
Accuracies = Mapping[float, float]
"""The test accuracy at each learning rate."""


def of_accuracies(
    one_device: Accuracies, scaled: Accuracies, fixed: Accuracies | None = None
) -> Result:
    """Return the result of two devices with a fixed and with a scaled batch, and of one device.

    Each accuracy is that of three seeds that are nearly the same: little noise.
    """
    curves = {(FIXED, 1): one_device, (FIXED, 2): fixed or one_device, (SCALED, 2): scaled}
    accuracies = {
        plan: {
            rate: [accuracy + 0.001, accuracy, accuracy - 0.001] for rate, accuracy in curve.items()
        }
        for plan, curve in curves.items()
    }
    trial = Trial(backends.load("numpy", 2), {"rounds": 3, "limit": 200})
    find_figures(trial, accuracies, 2000)
    experiment = EXPERIMENTS["learning-rates"]
    return pretended(trial, *experiment.metrics, changes=experiment.changes)


@pytest.mark.parametrize(
    ("scaled", "ratio_bounds", "ratio_band", "gain_band"),
    [
        ({0.1: 0.3, 0.2: 0.5, 0.4: 0.6, 0.8: 0.7}, (2, 4), None, "better"),
        ({0.1: 0.3, 0.2: 0.7, 0.4: 0.6, 0.8: 0.1}, (0.5, 1), None, "worse"),
        ({0.1: 0.7, 0.2: 0.4, 0.4: 0.3, 0.8: 0.1}, (0.25, 0.5), "lower", "worse"),
        ({0.1: 0.5, 0.2: 0.7, 0.4: 0.69}, (0.5, 2), None, "better"),
    ],
)
def test_best_rates_are_sets_and_the_rule_is_compared_with_keeping_the_rate(
    scaled: dict[float, float],
    ratio_bounds: tuple[float, float],
    ratio_band: str | None,
    gain_band: str,
) -> None:
    result = of_accuracies(LEARNT, scaled)
    assert result.metric_intervals["best_rate_ratio"] == pytest.approx(ratio_bounds)
    assert result.metrics["lowest_best_rate_one_device"] == 0.2
    assert result.metrics["highest_best_rate_one_device"] == 0.4
    assert result.bands["best_rate_ratio"] == ratio_band
    assert result.bands["scaled_rate_gain"] == gain_band
    assert result.bands["fixed_batch_difference_over_noise"] == "same"


def test_a_gain_is_the_mean_over_the_rates() -> None:
    scaled = {0.1: 0.3, 0.2: 0.5, 0.4: 0.69, 0.8: 0.7}
    result = of_accuracies(LEARNT, scaled)
    # Twice the rate with the scaled batch, less the same rate.
    gains = [0.5 - 0.3, 0.69 - 0.5, 0.7 - 0.69]
    assert result.metrics["scaled_rate_gain"] == pytest.approx(sum(gains) / 3)
    assert result.metrics["lowest_scaled_rate_gain"] == pytest.approx(gains[2])
    # A rate at which one device guesses says nothing.
    guessed = of_accuracies({**LEARNT, 0.2: 0.1}, scaled)
    assert guessed.metrics["scaled_rate_gain"] == pytest.approx((gains[0] + gains[2]) / 2)
    no_rate_doubled = of_accuracies(LEARNT, {0.1: 0.3, 0.11: 0.5})
    assert "scaled_rate_gain" not in no_rate_doubled.metrics


def test_differences_with_the_same_batch_are_told() -> None:
    result = of_accuracies(LEARNT, LEARNT, fixed={**LEARNT, 0.2: 0.6})
    assert result.bands["fixed_batch_difference_over_noise"] == "differ"
    over_noise = result.metrics["fixed_batch_difference_over_noise"]
    assert over_noise == pytest.approx(0.1 / MIN_NOISE)


CLEAR = {0.1: 0.3, 0.2: 0.7, 0.4: 0.6, 0.8: 0.1}
GUESSED = {0.1: 0.1, 0.2: 0.12}


@pytest.mark.parametrize(
    ("one_device", "scaled", "option", "is_decided"),
    [
        (LEARNT, CLEAR, "(--rounds 6)", False),
        (CLEAR, CLEAR, "(--limit 400)", True),
        (GUESSED, GUESSED, "--initial-scale", False),
    ],
    ids=["two-best-rates", "clear", "guessed"],
)
def test_what_would_change_the_answer_depends_on_what_was_found(
    one_device: Accuracies, scaled: Accuracies, option: str, is_decided: bool
) -> None:
    result = of_accuracies(one_device, scaled)
    assert result.answer is not None
    assert option in result.answer.would_change
    assert (result.bands["best_rate_ratio"] is not None) == is_decided


def test_noise_is_what_the_seeds_do_to_one_point_and_not_to_another() -> None:
    # The second seed is better by 0.04 in the mean of the points, and by 0.02 more or less at each
    # of them.
    points = [[0.6, 0.62], [0.5, 0.56]]
    # Student's t of one degree of freedom at 98.5 %.
    noise = noise_of(points, 2000)
    assert noise == pytest.approx(21.205 * (2 * 0.0004 / 2) ** 0.5, rel=1e-3)
    assert noise_of([[0.6, 0.64], [0.5, 0.54]], 2000) == MIN_NOISE
    assert noise_of(points, 2000, differences=10) > 5 * noise


@pytest.mark.parametrize(("points", "seeds"), [([[0.6], [0.7]], 1), ([[0.6, 0.7]], 2)])
def test_the_noise_of_too_few_points_or_seeds_is_that_of_counting_images(
    points: list[list[float]], seeds: int
) -> None:
    test_images = 2000
    variance_of_counting = 0.25 / test_images
    # The normal quantile at 98.5 %.
    noise = 2.1701 * (2 * variance_of_counting / seeds) ** 0.5
    assert noise_of(points, test_images) == pytest.approx(noise, rel=1e-3)


def test_the_noise_of_two_rates_passes_over_guesses_and_that_of_devices_is_of_one_rate() -> None:
    # The accuracies of three seeds.
    calm, loud, guessed = (0.6, 0.6, 0.6), (0.5, 0.7, 0.6), (0.1, 0.7, 0.1)
    accuracies = {
        (FIXED, 1): {0.1: calm, 0.2: calm, 0.4: guessed},
        (FIXED, 2): {0.1: calm, 0.2: loud, 0.4: calm},
        (SCALED, 2): {0.1: loud, 0.2: calm, 0.4: guessed},
    }
    trial = Trial(backends.load("numpy", 2), {})
    find_figures(trial, accuracies, 2000)
    between_rates = trial.figures["accuracy_noise"].estimate
    between_devices = trial.figures["largest_accuracy_noise_between_devices"].estimate
    # The same training on two devices is no further point.
    assert between_rates == pytest.approx(noise_of([calm, calm, calm, loud], 2000, differences=2))
    # Of the three rates the last one has the largest noise between devices.
    assert between_devices == pytest.approx(noise_of([guessed, calm], 2000, differences=3))
    assert MIN_NOISE < between_rates < between_devices


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let four steps be the fewest, and two be tried."""
    monkeypatch.setattr(module, "FEWEST_STEPS", 4)
    monkeypatch.setattr(module, "PROBED_STEPS", 2)


@pytest.mark.usefixtures("few_steps")
def test_the_budget_shortens_trainings_but_for_a_given_length(backend: Backend) -> None:
    options: dict[str, Any] = {"rates": (0.1,), "budget": 1e-6}
    chosen = learning_rates(backend, settings=Settings(1, 4), **options)
    assert chosen.parameters["limit"] == 4
    # As many images as any of the batches divides.
    given = learning_rates(backend, settings=Settings(1, 8, limit=6), **options)
    assert given.parameters["limit"] == 6


@pytest.mark.usefixtures("few_steps")
def test_progress_counts_through_all_trainings(backend: Backend) -> None:
    images_of_epochs: Counter[int] = Counter()
    begun: list[str] = []
    learning_rates(
        backend,
        rates=(0.1,),
        budget=1e-6,
        settings=Settings(1, 8, limit=6),
        on_batch=lambda epoch, images: images_of_epochs.update({epoch: images}),
        on_training=begun.append,
    )
    assert list(images_of_epochs.items()) == [(epoch, 48) for epoch in range(1, 6)]
    titles = [line.split(":")[0] for line in begun]
    assert titles == [f"training {number} of 5" for number in range(1, 6)]


@pytest.mark.parametrize("epochs", [1, 4])
def test_steps_fit_the_seconds_of_all_epochs(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    seconds_of_step = 0.5

    def train_once(*arguments: Any) -> float:
        settings = arguments[3]
        return seconds_of_step * settings.last_epoch * settings.limit

    monkeypatch.setattr(module, "train_once", train_once)
    monkeypatch.setattr(module, "measure", lambda _, train: (0.0, train()))
    data = small("learning-rates")["data"]
    seconds = seconds_of_step * epochs * 51
    assert module.steps_that_fit(backend, data, Settings(epochs, 8), seconds) == 50
