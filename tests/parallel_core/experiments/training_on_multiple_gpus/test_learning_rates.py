"""Learning rates: a curve for each kind of batch, and sentences that follow from them."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from parallel_core import MeasurementError, Result, Settings
from parallel_core.command_line import cli
from parallel_core.experiments.training_on_multiple_gpus.learning_rates import verdicts as about_rates
from parallel_core.experiments.training_on_multiple_gpus.learning_rates.noise import MIN_NOISE, Seeds, noise_of
from parallel_core.experiments.training_on_multiple_gpus.learning_rates.trainings import Trained, train_once, with_batch
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED, SCALED
from parallel_core.measurement.result import Case
from parallel_core.training.dataset import Dataset, synthetic

MADE_UP = synthetic("a test needs no more", train=300, test=10)

SMALL: dict[str, Any] = {"data": MADE_UP, "rates": (0.1, 0.2), "settings": Settings(1, 8, limit=4), "rounds": 1}


def learning_rates(backend: Backend, **changed: Any) -> Result:
    options = {"rates": (0.2, 0.1), "settings": Settings(1, 8, limit=3), "rounds": 1, **changed}
    return parallel_core.run_learning_rates(backend, MADE_UP, **options)


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 16))
def test_larger_batches_see_as_many_images(batch_size: int, limit: int, times: int) -> None:
    settings = with_batch(Settings(1, batch_size, limit=limit), times, 0.5)
    assert settings.limit is not None
    assert settings.batch_size == times * batch_size
    assert settings.learning_rate == 0.5
    assert 0 <= settings.limit * settings.batch_size - limit * batch_size < settings.batch_size


def test_learning_rates_have_a_curve_for_each_kind_of_batch(backend: Backend) -> None:
    result = learning_rates(backend)
    assert result.series["rate"] == (0.1, 0.2)
    assert list(result.series)[1:] == [
        "test_accuracy 1 device",
        "test_accuracy 2 devices, fixed batch",
        "test_accuracy 2 devices, scaled batch",
        "test_accuracy 3 devices, fixed batch",
        "test_accuracy 3 devices, scaled batch",
    ]
    assert all(len(values) == 2 for values in result.series.values())
    assert result.checks["max_device_difference"] < 1e-4
    assert result.problems == ()
    assert result.metrics["best_test_accuracy_one_device"] == max(result.series["test_accuracy 1 device"])
    assert len(result.notes) == 3
    assert result.notes[0].startswith("Each point is of 1 seed, too few for their noise (--rounds), and of 3 batches")
    low, high = (result.metrics[f"{which}_best_rate_one_device"] for which in ("lowest", "highest"))
    assert low <= result.metrics["best_rate_one_device"] <= high


def test_a_point_is_the_mean_over_the_seeds_at_its_rate_and_batch(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_and_say_what(backend: Backend, devices: int, data: Dataset, settings: Settings, *rest: Any) -> Trained:
        trained = train_once(backend, devices, data, settings, *rest)
        return replace(trained, accuracy=settings.learning_rate + settings.seed / 100 + settings.batch_size / 1000)

    monkeypatch.setattr(
        "parallel_core.experiments.training_on_multiple_gpus.learning_rates.train_once", train_and_say_what
    )
    result = learning_rates(backend, settings=Settings(1, 4, limit=3, seed=5), rounds=2)
    for name, batch in (("1 device", 4), ("3 devices, fixed batch", 4), ("3 devices, scaled batch", 12)):
        expected = [rate + 0.055 + batch / 1000 for rate in (0.1, 0.2)]
        assert result.series[f"test_accuracy {name}"] == pytest.approx(expected)
    assert [len(case.seconds) for case in result.cases] == [4] * 5


def test_progress_counts_through_all_trainings(backend: Backend) -> None:
    seen: list[tuple[int, int]] = []
    # As many images as any of the batches divides.
    settings = Settings(1, 8, limit=6)
    learning_rates(
        backend, rates=(0.1,), settings=settings, on_batch=lambda epoch, images: seen.append((epoch, images))
    )
    assert [epoch for epoch, _ in seen] == sorted(epoch for epoch, _ in seen)
    assert {epoch for epoch, _ in seen} == {1, 2, 3, 4, 5}
    assert sum(images for _, images in seen) == 5 * 48


def test_a_rate_at_which_the_loss_is_not_finite_is_one_more_point(backend: Backend) -> None:
    result = learning_rates(backend, rates=(0.1, 1e30))
    assert all(0 <= values[1] <= 1 for name, values in result.series.items() if name != "rate")
    assert len(result.cases[0].seconds) == 1
    with pytest.raises(MeasurementError, match=r"on 1 device no loss stayed finite: choose lower --rates"):
        learning_rates(backend, rates=(1e30,))


def test_gradients_that_are_not_summed_make_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "allreduce", tuple)
    problems = " ".join(learning_rates(backend).problems)
    assert "the first losses differ from NumPy's by " in problems
    assert "with the same batch the first losses differ from one device's by " in problems


def case(*seconds: float) -> Case:
    return Case("any", seconds, seconds)


ONE = {0.1: 0.5, 0.2: 0.7, 0.4: 0.69, 0.8: 0.1}


@pytest.mark.parametrize(
    ("scaled", "sentences"),
    [
        (
            {0.1: 0.3, 0.2: 0.5, 0.4: 0.7, 0.8: 0.6},
            ["0.2 and 0.4 (accuracy up to 0.700) on 1 device", "0.4 (accuracy up to 0.700) on 2 devices"],
        ),
        ({0.1: 0.3, 0.2: 0.5, 0.4: 0.7, 0.8: 0.6}, ["foretells 0.4 and 0.8, of which 0.4 was as good as any."]),
        ({0.1: 0.3, 0.2: 0.5, 0.4: 0.7, 0.8: 0.69}, ["foretells 0.4 and 0.8, and that was as good as any."]),
        (
            {0.1: 0.3, 0.2: 0.7, 0.4: 0.6, 0.8: 0.1},
            ["foretells 0.4 and 0.8, and that was worse than the best by 0.100"],
        ),
        ({0.1: 0.3, 0.2: 0.7, 0.4: 0.1, 0.8: 0.1}, ["foretells 0.4 and 0.8, and there the network guessed"]),
        ({0.1: 0.3, 0.2: 0.7}, ["foretells 0.4 and 0.8, which was not tried"]),
    ],
)
def test_best_rates(scaled: dict[float, float], sentences: list[str]) -> None:
    told = f"{about_rates.verdict(ONE, {2: scaled}, 0.02)} {about_rates.about_scaling(ONE, {2: scaled}, 0.02)}"
    for sentence in sentences:
        assert sentence in told


def test_rates_that_all_end_at_chance_say_nothing() -> None:
    told = about_rates.verdict({0.1: 0.1, 0.2: 0.12}, {2: {0.1: 0.1, 0.2: 0.11}}, 0.02)
    assert told.startswith("Every rate ended at chance, which says nothing about rates")
    assert "best" not in told
    told = about_rates.about_scaling({0.1: 0.1, 0.2: 0.12}, {2: {0.1: 0.1, 0.2: 0.11}}, 0.02)
    assert told == "Linear scaling foretells 0.4, and the network learnt with neither batch."


def test_a_best_rate_is_a_set_and_neighbours_are_named_by_the_first_and_the_last() -> None:
    told = about_rates.verdict({0.1: 0.7, 0.2: 0.7, 0.4: 0.69, 0.8: 0.1}, {2: {0.1: 0.7, 0.2: 0.3, 0.4: 0.7}}, 0.02)
    assert "best rates were 0.1 to 0.4 (accuracy up to 0.700) on 1 device and 0.1 and 0.4 (accuracy" in told


@pytest.mark.parametrize(
    ("scaled", "sentences"),
    [
        (
            {0.1: 0.3, 0.2: 0.5, 0.4: 0.69, 0.8: 0.7},
            [
                "multiplying the rate by 2 was better at 0.1 and 0.2 (by up to 0.200) than keeping it.",
                "lost 0.133 of",
                "and 0 at the scaled",
            ],
        ),
        (
            {0.1: 0.3, 0.2: 0.4, 0.4: 0.6, 0.8: 0.1},
            ["was better at 0.1 and 0.2 (by up to 0.200) and worse at 0.4 (by up to 0.500) than keeping it."],
        ),
        (
            {0.1: 0.5, 0.2: 0.4, 0.4: 0.3, 0.8: 0.1},
            ["multiplying the rate by 2 was worse at 0.1, 0.2 and 0.4 (by up to 0.200) than"],
        ),
        ({0.1: 0.5, 0.2: 0.51, 0.4: 0.5, 0.8: 0.51}, ["multiplying the rate by 2 made no difference beyond the noise"]),
    ],
)
def test_the_rule_is_held_against_keeping_the_rate(scaled: dict[float, float], sentences: list[str]) -> None:
    told = about_rates.about_rule(ONE, scaled, 2, 0.02)
    assert "in the mean of 3 rates" in told
    for sentence in sentences:
        assert sentence in told


def test_a_rule_that_was_not_tried_is_called_so() -> None:
    assert "the rule could not be tried: no rate is 3 × another" in about_rates.about_rule(ONE, ONE, 3, 0.02)


@pytest.mark.parametrize(
    ("fixed", "losses", "sentence"),
    [
        (
            0.7,
            1e-7,
            "the number of devices changed nothing beyond the noise over seeds: the first losses differ by 1e-07",
        ),
        (0.6, 1e-7, "and yet the accuracies by up to 0.100, at 0.2, where the noise over seeds is 0.020: rounding"),
        (0.7, 1e-2, "differ by 1e-02 of their size at most, and they should not"),
    ],
)
def test_the_same_batch_on_more_devices(fixed: float, losses: float, sentence: str) -> None:
    assert sentence in about_rates.about_fixed(ONE, {2: {**ONE, 0.2: fixed}}, losses, lambda _: 0.02)
    # At another rate the same difference may be noise.
    loud = about_rates.about_fixed(ONE, {2: {**ONE, 0.2: 0.6}}, 1e-7, lambda rate: 0.2 if rate == 0.2 else 0.02)
    assert "the accuracies by 0.100, at 0.2, where the noise is 0.200" in loud


def test_noise_is_what_the_seeds_do_to_one_point_and_not_to_another() -> None:
    # The second seed is better by 0.04 in the mean of the points, and by 0.02 more or less at each of them.
    points = [[0.6, 0.62], [0.5, 0.56]]
    # Student's t of one degree of freedom, and the normal quantile, at 98.5 %.
    assert noise_of(points, 2, 2000) == pytest.approx(21.205 * (2 * 0.0004 / 2) ** 0.5, rel=1e-3)
    assert noise_of([[0.6, 0.64], [0.5, 0.54]], 2, 2000) == MIN_NOISE
    assert noise_of(points, 2, 2000, differences=10) > 5 * noise_of(points, 2, 2000)
    for too_few, count in (([[0.6], [0.7]], 1), ([[0.6, 0.7]], 2)):
        assert noise_of(too_few, count, 2000) == pytest.approx(2.1701 * (0.5 / 2000 / count) ** 0.5, rel=1e-3)


def test_the_noise_of_two_rates_passes_over_guesses_and_that_of_devices_is_of_one_rate() -> None:
    calm, loud = (0.6, 0.6, 0.6), (0.5, 0.7, 0.6)
    guessed = (0.1, 0.7, 0.1)
    seeds = Seeds(
        {
            (FIXED, 1): {0.1: calm, 0.2: calm, 0.4: guessed},
            (FIXED, 2): {0.1: calm, 0.2: loud, 0.4: calm},
            (SCALED, 2): {0.1: loud, 0.2: calm, 0.4: guessed},
        },
        2000,
    )
    assert seeds.between_devices(0.1) == MIN_NOISE
    assert seeds.between_devices(0.2) > 0.1
    assert seeds.between_devices(0.4) > seeds.between_devices(0.2)
    assert MIN_NOISE < seeds.between_rates < seeds.between_devices(0.4)


def test_differences_of_nothing_but_noise_are_seldom_called_any() -> None:
    generator = np.random.default_rng(0)
    rates = (0.1, 0.2, 0.4, 0.8)
    found = 0
    for _ in range(400):
        accuracies = {
            (FIXED, count): {rate: tuple(0.6 + 0.05 * generator.standard_normal(3)) for rate in rates}
            for count in (1, 2, 4)
        }
        seeds = Seeds(accuracies, 2000)
        means = {count: {rate: fmean(own) for rate, own in row.items()} for (_, count), row in accuracies.items()}
        told = about_rates.about_fixed(means[1], {2: means[2], 4: means[4]}, 1e-7, seeds.between_devices)
        found += "and yet" in told
    assert found <= 0.05 * 400


def test_the_budget_shortens_trainings_and_an_explicit_length_is_kept(backend: Backend) -> None:
    for_little, as_told = (
        learning_rates(backend, settings=Settings(1, 4, limit=limit), rates=(0.1,), budget=1e-6) for limit in (None, 3)
    )
    assert for_little.parameters["limit"] == 20
    assert as_told.parameters["limit"] == 3


@pytest.mark.parametrize(
    ("rates", "message"), [("0.1,fast", "'fast' is not a positive number"), ("0.1,0.1", "names one number twice")]
)
def test_rates_that_cannot_be_are_refused(rates: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["run", "learning-rates", "--backend", "numpy", "--rates", rates])
    assert done.exit_code == 2
    assert message in done.output
