"""The labs of the training chapter: right values on any number of devices, and sentences that follow from numbers."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Array, Backend, Device
from parallel_core import MeasurementError, RequestError, Result, Settings
from parallel_core.command_line import cli
from parallel_core.experiments.training_on_multiple_gpus.batch_scaling import verdict as about_scaling
from parallel_core.experiments.training_on_multiple_gpus.building_blocks import explain as about_blocks
from parallel_core.experiments.training_on_multiple_gpus.first_losses import enlarged_start, first_losses, numpy_losses
from parallel_core.experiments.training_on_multiple_gpus.learning_rates import verdict as about_rates
from parallel_core.experiments.training_on_multiple_gpus.learning_rates.trainings import Trained, train_once, with_batch
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import (
    FIXED,
    SCALED,
    case_name,
    device_counts,
    plans,
)
from parallel_core.measurement.result import Case
from parallel_core.training.dataset import Dataset, synthetic

MADE_UP = synthetic("a test needs no more", train=300, test=10)


def batch_scaling(backend: Backend) -> Result:
    return parallel_core.run_batch_scaling(backend, MADE_UP, batch_size=8, steps=2, rounds=2)


def learning_rates(backend: Backend, **changed: Any) -> Result:
    options = {"rates": (0.2, 0.1), "settings": Settings(1, 8, limit=3), "rounds": 1, **changed}
    return parallel_core.run_learning_rates(backend, MADE_UP, **options)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_training_on_the_first_devices_gives_numpy_s_losses(backend: Backend, devices: int) -> None:
    settings, start = Settings(1, 10), enlarged_start(0, 8)
    found = first_losses(backend, devices, MADE_UP, settings, start)
    np.testing.assert_allclose(found, numpy_losses(MADE_UP, settings, start), rtol=1e-4)
    assert len(set(found)) == 3


@given(st.integers(1, 1000))
def test_devices_double_up_to_all_of_them(loaded: int) -> None:
    counts = device_counts(loaded)
    assert counts[0] == 1
    assert counts[-1] == loaded
    assert all(before < after <= 2 * before for before, after in pairwise(counts))
    assert all(after == 2 * before for before, after in pairwise(counts[:-1]))


@given(st.integers(1, 100), st.integers(1, 64))
def test_every_device_beyond_the_first_has_both_kinds_of_batch(batch_size: int, loaded: int) -> None:
    planned = plans(batch_size, loaded)
    assert planned.keys() == {(FIXED, count) for count in device_counts(loaded)} | {
        (SCALED, count) for count in device_counts(loaded)[1:]
    }
    assert all(batch == batch_size * (count if kind == SCALED else 1) for (kind, count), batch in planned.items())
    assert len({case_name(*plan, loaded) for plan in planned}) == len(planned)


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 16))
def test_larger_batches_see_as_many_images(batch_size: int, limit: int, times: int) -> None:
    settings = with_batch(Settings(1, batch_size, limit=limit), times, 0.5)
    assert settings.limit is not None
    assert settings.batch_size == times * batch_size
    assert settings.learning_rate == 0.5
    assert 0 <= settings.limit * settings.batch_size - limit * batch_size < settings.batch_size


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
        parallel_core.run_batch_scaling(backend, MADE_UP, batch_size=20)


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


@pytest.mark.parametrize("run", [batch_scaling, learning_rates])
def test_gradients_that_are_not_summed_make_the_result_invalid(
    backend: Backend, run: Callable[[Backend], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "allreduce", tuple)
    problems = " ".join(run(backend).problems)
    assert "the first losses differ from NumPy's by " in problems
    assert run is batch_scaling or "with the same batch the first losses differ from one device's by " in problems


def test_every_building_block_shows_its_values(backend: Backend) -> None:
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert result.problems == ()
    parameters, summed, even, uneven, rebound, shared = result.notes
    assert "b1 is [0, 0, 0] and its gradient [0, 0, 0]" in parameters
    assert "its gradient is not zero" in parameters
    assert "hold [[1, 1]] and [[2, 2]], after it [[3, 3]] and [[3, 3]]" in summed
    assert "cpu:2 gets [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]" in even
    assert "5 rows over 2 devices are 3 and 2; 1 row over 3 is 1, 0 and 0" in uneven
    assert "the gradients are [[3, 3]] and [[2, 2]] then" in rebound
    assert "parameters at [[-1.5, -1.5]] and [[-1, -1]]" in rebound
    assert "both are at [[-1.5, -1.5]] and [[-1.5, -1.5]]" in rebound
    assert "they are at [[-1, -1]] and [[-1, -1]]" in shared
    assert "leaves them at [[-0.5, -0.5]] and [[0, 0]]" in shared
    assert result.explanation.startswith("All 6 examples gave the values that must come out.")


def split_backwards(backend: Backend) -> Callable[..., tuple[Array, ...]]:
    split = backend.split_and_load
    return lambda x, devices: split(x, devices)[::-1]


def copy_of_something_else(backend: Backend) -> Callable[..., Array]:
    def copy(_: Array, device: Device) -> Array:
        return backend.asarray(np.ones((1, 2), dtype=np.float32), device)

    return copy


@pytest.mark.parametrize(
    ("verb", "broken", "wrong"),
    [
        ("allreduce", lambda _: tuple, ["allreduce of 1s and 2s", "rebinding list items"]),
        ("split_and_load", split_backwards, ["an even split", "uneven splits"]),
        ("copy_to", copy_of_something_else, ["shared memory"]),
    ],
)
def test_a_verb_that_is_wrong_makes_the_building_blocks_invalid(
    backend: Backend, verb: str, broken: Callable[[Backend], Any], wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, verb, broken(backend))
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert [problem.split(":")[0] for problem in result.problems] == wrong
    assert result.checks["max_relative_error"] >= 1e-4
    assert f"{len(wrong)} of 6 examples gave wrong values: {wrong[0]!r}" in result.explanation


def test_parameters_of_another_seed_make_the_building_blocks_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "parallel_core.experiments.training_on_multiple_gpus.building_blocks.demonstrations"
    monkeypatch.setattr(f"{module}.get_params", lambda backend, device: backend.asarray(enlarged_start(1, 1), device))
    (problem,) = parallel_core.run_building_blocks(backend, rounds=1).problems
    assert problem.startswith("parameters on a device: ")


def test_building_blocks_name_what_is_wrong() -> None:
    cases = [replace(case(2e-3), name="get_params"), replace(case(1e-6), name="allreduce")]
    assert about_blocks([], 6, cases).endswith(
        "Until all was done, the verbs took: get_params 2.00 ms and allreduce 1.00 μs."
    )
    assert "2 of 6 examples gave wrong values: 'a' and 'b'." in about_blocks(["a", "b"], 6, cases)


def case(*seconds: float) -> Case:
    return Case("any", seconds, seconds)


def scaling(one: float, fixed: float, scaled: float) -> dict[str, dict[int, Case]]:
    return {FIXED: {1: case(one), 2: case(fixed)}, SCALED: {1: case(one), 2: case(scaled)}}


@pytest.mark.parametrize(
    ("scaled", "sentence"),
    [
        (
            5e-4,
            "trained 1.20 × as fast (2,000 images/s instead of 1,667): the larger batch made devices worth more; 17%",
        ),
        (6.1e-4, "no difference beyond the noise"),
        (8e-4, "trained 0.75 × as fast (1,250 images/s instead of 1,667): the larger batch made devices worth less"),
    ],
)
def test_batch_scaling_is_judged_by_the_numbers(scaled: float, sentence: str) -> None:
    told = about_scaling.explain(scaling(1e-3, 6e-4, scaled), 256)
    assert told.startswith("On 2 devices, batches of 512 instead of 256 images")
    assert sentence in told
    assert told.count(":") == 1


@pytest.mark.parametrize(
    ("scaled", "meaning"),
    [
        (1e-3, "0.50 with the scaled batch (no faster than one device)"),
        (7e-4, "0.71 with the scaled batch (1.43 devices' worth)"),
        (5e-4, "1.00 with the scaled batch (each counted in full)"),
        (4e-4, "1.25 with the scaled batch (2.50 devices' worth)"),
    ],
)
def test_efficiency_is_put_in_words(scaled: float, meaning: str) -> None:
    assert meaning in about_scaling.about_efficiency(scaling(1e-3, 6e-4, scaled), 1)


def test_efficiency_within_the_noise_is_left_open() -> None:
    noisy = {FIXED: {1: case(1e-3, 9e-3), 2: case(1e-3, 9e-3)}}
    assert "the noise leaves open whether they count" in about_scaling.about_efficiency(noisy, 1)


def test_shared_cores_bound_the_efficiency() -> None:
    timed = scaling(1e-3, 6e-4, 5e-4)
    assert "they share cores, which leaves 0.50 at most" in about_scaling.about_efficiency(timed, 0.5)
    assert "share" not in about_scaling.about_efficiency(timed, 1)


ONE = {0.1: 0.5, 0.2: 0.7, 0.4: 0.69, 0.8: 0.1}


@pytest.mark.parametrize(
    ("scaled", "sentences"),
    [
        (
            {0.1: 0.3, 0.2: 0.5, 0.4: 0.7, 0.8: 0.6},
            [
                "0.2 on 1 device (accuracy 0.700, equalled within the noise by 0.4)",
                "0.4 on 2 devices",
                "as good as any",
            ],
        ),
        ({0.1: 0.3, 0.2: 0.7, 0.4: 0.6, 0.8: 0.1}, ["foretells 0.4, and that was worse than the best by 0.100"]),
        ({0.1: 0.3, 0.2: 0.7, 0.4: 0.1, 0.8: 0.1}, ["foretells 0.4, and there the network guessed", "by no other"]),
        ({0.1: 0.3, 0.2: 0.7}, ["foretells 0.4, which was not tried"]),
    ],
)
def test_best_rates(scaled: dict[float, float], sentences: list[str]) -> None:
    told = about_rates.explain(ONE, {2: scaled}, 0.02)
    for sentence in sentences:
        assert sentence in told


def test_rates_that_all_end_at_chance_say_nothing() -> None:
    told = about_rates.explain({0.1: 0.1, 0.2: 0.12}, {2: {0.1: 0.1, 0.2: 0.11}}, 0.02)
    assert told.startswith("Every rate ended at chance, which says nothing about rates")
    assert "best" not in told


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
        (0.7, 1e-7, "the number of devices changed nothing beyond the noise: the first losses differ by 1e-07"),
        (0.6, 1e-7, "and yet the accuracies by up to 0.100, at 0.2: rounding errors may grow"),
        (0.7, 1e-2, "differ by 1e-02 of their size at most, and they should not"),
    ],
)
def test_the_same_batch_on_more_devices(fixed: float, losses: float, sentence: str) -> None:
    assert sentence in about_rates.about_fixed(ONE, {2: {**ONE, 0.2: fixed}}, losses, 0.02)


def test_noise_is_what_the_seeds_do_to_one_point_and_not_to_another() -> None:
    # The second round is better by 0.04 in the mean of the points, and by 0.02 more or less at each of them.
    rounds = [[0.6, 0.62], [0.5, 0.56], [0.1, 0.7]]
    assert about_rates.noise_of(rounds, 2000) == pytest.approx(2 * (2 * 0.0004 / 2) ** 0.5)
    alike = [[0.6, 0.64], [0.5, 0.54], [0.1, 0.7]]
    assert about_rates.noise_of(alike, 2000) == about_rates.MIN_NOISE
    for too_few in ([[0.6], [0.7]], [[0.6], [0.1]]):
        assert about_rates.noise_of(too_few, 2000) == pytest.approx(2 * (0.5 / 2000) ** 0.5)


@pytest.mark.parametrize(
    ("rates", "message"), [("0.1,fast", "'fast' is not a positive number"), ("0.1,0.1", "names one number twice")]
)
def test_rates_that_cannot_be_are_refused(rates: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["run", "learning-rates", "--backend", "numpy", "--rates", rates])
    assert done.exit_code == 2
    assert message in done.output
