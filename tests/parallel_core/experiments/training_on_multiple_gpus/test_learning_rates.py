"""Learning rates: a curve for each kind of batch, and what they show of rates."""

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


def learning_rates(backend: Backend, **changed: Any) -> Result:
    options = {
        **small("learning-rates"),
        "rates": (0.2, 0.1),
        "settings": Settings(1, 8, limit=3),
        **changed,
    }
    return parallel_core.run_learning_rates(backend, **options)


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 16))
def test_larger_batches_see_as_many_images(batch_size: int, limit: int, times: int) -> None:
    settings = module.with_batch(
        Settings(1, batch_size, limit=limit), times * batch_size, learning_rate=0.5
    )
    assert settings.limit is not None
    assert settings.batch_size == times * batch_size
    assert settings.learning_rate == 0.5
    assert 0 <= settings.limit * settings.batch_size - limit * batch_size < settings.batch_size


def test_a_point_is_a_mean_over_seeds_at_its_rate_and_batch(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = module.train_once

    def train_and_say_what(*args: Any) -> tuple[Epoch]:
        (epoch,), settings = right(*args), args[3]
        accuracy = settings.learning_rate + settings.seed / 100 + settings.batch_size / 1000
        return (replace(epoch, accuracy=accuracy),)

    monkeypatch.setattr(module, "train_once", train_and_say_what)
    result = learning_rates(backend, settings=Settings(1, 4, limit=3, seed=5), rounds=2)
    batches = {"1 device": 4}
    for count in (2, 3):
        batches |= {f"{count} devices, {FIXED}": 4, f"{count} devices, {SCALED}": 4 * count}
    assert list(result.series) == ["rate", *(f"test_accuracy {name}" for name in batches)]
    assert result.series["rate"] == (0.1, 0.2)
    for name, batch in batches.items():
        expected = [rate + 0.055 + batch / 1000 for rate in (0.1, 0.2)]
        assert result.series[f"test_accuracy {name}"] == pytest.approx(expected)
    assert [len(case.seconds) for case in result.cases] == [4] * 5


def test_a_rate_at_which_the_loss_is_not_finite_is_one_more_point(backend: Backend) -> None:
    result = learning_rates(backend, rates=(0.1, 1e30))
    assert all(0 <= values[1] <= 1 for name, values in result.series.items() if name != "rate")
    assert len(result.cases[0].seconds) == 1
    with pytest.raises(
        MeasurementError, match=r"on 1 device no loss stayed finite: choose lower --rates"
    ):
        learning_rates(backend, rates=(1e30,))


LEARNT = {0.1: 0.5, 0.2: 0.7, 0.4: 0.69, 0.8: 0.1}


def found(
    one: Mapping[float, float],
    scaled: Mapping[float, float],
    fixed: Mapping[float, float] | None = None,
) -> Result:
    """Return the result of accuracies of three seeds that are nearly the same: little noise."""
    trial = Trial(backends.load("numpy", 2), {"rounds": 3, "limit": 200})
    curves = {(FIXED, 1): one, (FIXED, 2): fixed or one, (SCALED, 2): scaled}
    near = (0.001, 0.0, -0.001)
    accuracies = {
        plan: {rate: [at + by for by in near] for rate, at in each.items()}
        for plan, each in curves.items()
    }
    find_figures(trial, accuracies, 2000)
    experiment = EXPERIMENTS["learning-rates"]
    return pretended(trial, *experiment.metrics, changes=experiment.changes)


@pytest.mark.parametrize(
    ("scaled", "bands", "ratio"),
    [
        ({0.1: 0.3, 0.2: 0.5, 0.4: 0.6, 0.8: 0.7}, (None, "better"), (2, 4)),
        ({0.1: 0.3, 0.2: 0.7, 0.4: 0.6, 0.8: 0.1}, (None, "worse"), (0.5, 1)),
        ({0.1: 0.7, 0.2: 0.4, 0.4: 0.3, 0.8: 0.1}, ("lower", "worse"), (0.25, 0.5)),
        ({0.1: 0.5, 0.2: 0.7, 0.4: 0.69}, (None, "better"), (0.5, 2)),
    ],
)
def test_best_rates_are_sets_and_the_rule_is_compared_with_keeping_the_rate(
    scaled: dict[float, float], bands: tuple[str | None, ...], ratio: tuple[float, float]
) -> None:
    result = found(LEARNT, scaled)
    assert result.metric_intervals["best_rate_ratio"] == pytest.approx(ratio)
    assert (
        result.metrics["lowest_best_rate_one_device"],
        result.metrics["highest_best_rate_one_device"],
    ) == (0.2, 0.4)
    assert (result.bands["best_rate_ratio"], result.bands["scaled_rate_gain"]) == bands
    assert result.bands["fixed_batch_difference_over_noise"] == "same"


def test_a_gain_is_the_mean_over_the_rates_and_differences_with_the_same_batch_are_told() -> None:
    result = found(LEARNT, {0.1: 0.3, 0.2: 0.5, 0.4: 0.69, 0.8: 0.7})
    assert result.metrics["scaled_rate_gain"] == pytest.approx((0.2 + 0.19 + 0.01) / 3)
    assert result.metrics["lowest_scaled_rate_gain"] == pytest.approx(0.01)
    # A rate at which one device guesses says nothing.
    guessed = found({**LEARNT, 0.2: 0.1}, {0.1: 0.3, 0.2: 0.5, 0.4: 0.69, 0.8: 0.7})
    assert guessed.metrics["scaled_rate_gain"] == pytest.approx((0.2 + 0.01) / 2)
    assert "scaled_rate_gain" not in found(LEARNT, {0.1: 0.3, 0.11: 0.5}).metrics
    result = found(LEARNT, LEARNT, {**LEARNT, 0.2: 0.6})
    assert result.bands["fixed_batch_difference_over_noise"] == "differ"
    assert result.metrics["fixed_batch_difference_over_noise"] == pytest.approx(0.1 / MIN_NOISE)


def test_what_would_change_it_depends_on_what_was_found() -> None:
    clear, guessed = {0.1: 0.3, 0.2: 0.7, 0.4: 0.6, 0.8: 0.1}, {0.1: 0.1, 0.2: 0.12}
    options = (
        (LEARNT, clear, "(--rounds 6)"),
        (clear, clear, "(--limit 400)"),
        (guessed, guessed, "--initial-scale"),
    )
    for one, scaled, option in options:
        result = found(one, scaled)
        assert result.answer is not None
        assert option in result.answer.would_change
        assert (result.bands["best_rate_ratio"] is None) == (one is not clear)


def test_noise_is_what_the_seeds_do_to_one_point_and_not_to_another() -> None:
    # The second seed is better by 0.04 in the mean of the points, and by 0.02 more or less at each
    # of them.
    points = [[0.6, 0.62], [0.5, 0.56]]
    # Student's t of one degree of freedom, and the normal quantile, at 98.5 %.
    assert noise_of(points, 2000) == pytest.approx(21.205 * (2 * 0.0004 / 2) ** 0.5, rel=1e-3)
    assert noise_of([[0.6, 0.64], [0.5, 0.54]], 2000) == MIN_NOISE
    assert noise_of(points, 2000, differences=10) > 5 * noise_of(points, 2000)
    for too_few, count in (([[0.6], [0.7]], 1), ([[0.6, 0.7]], 2)):
        assert noise_of(too_few, 2000) == pytest.approx(
            2.1701 * (0.5 / 2000 / count) ** 0.5, rel=1e-3
        )


def test_the_noise_of_two_rates_passes_over_guesses_and_that_of_devices_is_of_one_rate() -> None:
    calm, loud, guessed = (0.6, 0.6, 0.6), (0.5, 0.7, 0.6), (0.1, 0.7, 0.1)

    rows = {
        (FIXED, 1): (calm, calm, guessed),
        (FIXED, 2): (calm, loud, calm),
        (SCALED, 2): (loud, calm, guessed),
    }

    def noise(*rates: float) -> tuple[float, float]:
        trial = Trial(backends.load("numpy", 2), {})
        each = {plan: dict(zip((0.1, 0.2, 0.4), row, strict=True)) for plan, row in rows.items()}
        find_figures(
            trial, {plan: {rate: row[rate] for rate in rates} for plan, row in each.items()}, 2000
        )
        figures = trial.figures
        return figures["accuracy_noise"].estimate, figures[
            "largest_accuracy_noise_between_devices"
        ].estimate

    (_, first), (_, second), (_, third) = noise(0.1), noise(0.2), noise(0.4)
    assert first == MIN_NOISE
    assert third > second > 0.1
    between_rates, largest = noise(0.1, 0.2, 0.4)
    # The same training on two devices is no further point.
    assert between_rates == pytest.approx(noise_of([calm] * 3 + [loud], 2000, differences=2))
    assert largest == pytest.approx(noise_of([guessed, calm], 2000, differences=3))
    assert MIN_NOISE < between_rates < third < largest


def test_the_budget_shortens_trainings_but_for_a_given_length(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEWEST_STEPS", 4)
    monkeypatch.setattr(module, "PROBED_STEPS", 2)
    seen: list[tuple[int, int]] = []
    begun: list[str] = []
    options: dict[str, Any] = {
        "rates": (0.1,),
        "budget": 1e-6,
        "on_batch": lambda *done: seen.append(done),
    }
    options["on_training"] = begun.append
    assert learning_rates(backend, settings=Settings(1, 4), **options).parameters["limit"] == 4
    seen.clear()
    begun.clear()
    # As many images as any of the batches divides.
    assert (
        learning_rates(backend, settings=Settings(1, 8, limit=6), **options).parameters["limit"]
        == 6
    )
    # Progress counts through all trainings.
    epochs, images = zip(*seen, strict=True)
    assert list(epochs) == sorted(epochs)
    assert set(epochs) == {1, 2, 3, 4, 5}
    assert sum(images) == 5 * 48
    assert [line.split(":")[0] for line in begun] == [
        f"training {number} of 5" for number in range(1, 6)
    ]


@pytest.mark.parametrize("epochs", [1, 4])
def test_steps_fit_the_seconds_of_all_epochs(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    monkeypatch.setattr(
        module, "train_once", lambda *args: 0.5 * args[3].last_epoch * args[3].limit
    )
    monkeypatch.setattr(module, "measure", lambda _, train: (0.0, train()))
    data = small("learning-rates")["data"]
    # Of half a second each.
    assert module.steps_that_fit(backend, data, Settings(epochs, 8), 1.0, 0.5 * epochs * 51) == 50
