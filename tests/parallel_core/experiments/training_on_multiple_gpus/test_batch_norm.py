"""Synchronised statistics give the step of one device, however rows are divided; those of each device give another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import backends
import parallel_core
from backends import Backend
from parallel_core import RequestError
from parallel_core.experiments.measuring import largest_error
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import network, steps
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import verdicts as answers
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.network import initial_parameters, synthetic_batch
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.steps import difference
from parallel_core.measurement.result import Case
from tests.parallel_core.experiments.bounds import without_bounds

SMALL: dict[str, Any] = {"rows": 16, "rounds": 2}

ITEM = 4


def step_of_one_device(x: np.ndarray, labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    one = backends.load("numpy", devices=1, threads_per_device=1)
    return steps.change(one, steps.per_device, initial_parameters(seed), x, labels)


def test_the_loss_is_that_of_the_textbook_s_formula() -> None:
    w1, scale, shift, w2, b2 = initial_parameters()
    scale, shift = scale + 0.5, shift - 0.25
    x, labels = synthetic_batch(9)
    z = x @ w1
    units = np.maximum((z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5) * scale + shift, 0)
    scores = units @ w2 + b2
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(9), labels]).sum()
    found = network.loss(backends.load("numpy", devices=1).ops)((w1, scale, shift, w2, b2), x, labels)
    assert float(found) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=10)
@given(rows=draw.integers(4, 20), seed=draw.integers(0, 99))
def test_synchronised_statistics_give_the_step_of_one_device(backend: Backend, rows: int, seed: int) -> None:
    batch = synthetic_batch(rows, seed)
    found = steps.change(backend, steps.synchronised, initial_parameters(seed), *batch)
    assert largest_error(found, step_of_one_device(*batch, seed)) < 1e-6


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_it_holds_for_any_number_of_devices(load: Callable[[int], Backend], devices: int) -> None:
    assert difference(load(devices), steps.synchronised, 2 * devices + 1) < 1e-6


def test_statistics_per_device_are_of_the_device_s_rows(backend: Backend) -> None:
    x, labels = synthetic_batch(4)
    found = steps.change(backend, steps.per_device, initial_parameters(), np.tile(x, (3, 1)), np.tile(labels, 3))
    # Every device has the same rows, so its statistics are those of all of them.
    assert largest_error(found, step_of_one_device(x, labels)) < 1e-6
    shuffled = np.repeat(x, 3, axis=0), np.repeat(labels, 3)
    assert largest_error(steps.change(backend, steps.per_device, initial_parameters(), *shuffled), found) > 0.1


def test_the_difference_shrinks_with_the_rows(backend: Backend) -> None:
    few, many = (difference(backend, steps.per_device, 3 * rows) for rows in (8, 128))
    assert few > 2 * many > 1e-3


def test_synchronising_costs_two_allreduces_of_two_sums(backend: Backend) -> None:
    result = parallel_core.run_batch_norm(backend, rows=20, rounds=1)
    assert result.series["rows"] == (8, 16)
    assert result.metrics["synchronising_allreduces"] == 2
    there_and_back, others, units = 2, 2, 128
    assert result.metrics["synchronising_bytes"] == 2 * there_and_back * others * 2 * units * ITEM
    assert result.metrics["synchronised_difference_fraction"] < 1e-6 < result.metrics["per_device_difference_fraction"]
    assert result.metrics["per_device_difference_fraction"] == result.series["difference"][-1]
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)
    medians = {case.name: case.median for case in result.cases}
    assert result.metrics["synchronising_cost"] == pytest.approx(
        medians["synchronised statistics, 16 rows"] / medians["statistics per device, 16 rows"]
    )


def test_a_step_that_is_wrong_makes_the_result_invalid(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (1e-3, float("nan")):
        monkeypatch.setattr(
            "parallel_core.experiments.training_on_multiple_gpus.batch_norm.difference",
            lambda *_, error=error: error,
        )
        (problem,) = parallel_core.run_batch_norm(backend, rows=8, rounds=1).problems
        assert problem.startswith("steps differ from NumPy's by ")


def test_too_few_rows_are_refused(backend: Backend) -> None:
    with pytest.raises(RequestError, match="choose at least 8"):
        parallel_core.run_batch_norm(backend, rows=7)


@pytest.mark.parametrize(
    ("synchronised", "per_device", "sentences"),
    [
        (1e-15, 0.123, ["global batch equals one device's to rounding (1e-15", "rows differs from", "12% of"]),
        (0.02, 1e-9, ["global batch differs from one device's by 2%", "rows equals one device's"]),
        (0.0, 2.5, ["(0e+00 of the largest change)", "by 250% of the largest change"]),
    ],
)
def test_the_verdict_follows_from_the_differences(synchronised: float, per_device: float, sentences: list[str]) -> None:
    told = without_bounds(answers.verdict(synchronised, per_device, 64))
    for sentence in ("With 64 rows a device", *sentences):
        assert sentence in told


@pytest.mark.parametrize(
    ("rows", "differences", "sentence"),
    [
        ((4, 64), (0.4, 0.1), "by 40% at 4 rows a device and 10% at 64: it changes as rows to the power −0.5, where"),
        ((4, 64), (0.1, 0.4), "the power 0.5, where"),
        ((8,), (0.1,), "make a step differ by 10% at 8 rows a device."),
        ((4, 64), (0.4, 0.0), "make a step differ by 0% at 64 rows a device."),
    ],
)
def test_the_growth_is_told(rows: tuple[int, ...], differences: tuple[float, ...], sentence: str) -> None:
    assert sentence in without_bounds(answers.about_growth(rows, differences))


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (4e-3, "took 2.00 × as long as without, 2 ms more."),
        (2e-3, "took 1.00 × as long as without: no difference is shown."),
        (1e-3, "took 0.50 × as long as without, although it does more."),
    ],
)
def test_the_cost_follows_from_the_times(seconds: float, sentence: str) -> None:
    per_device, synchronised = Case("a", (2e-3,) * 3, (2e-3,)), Case("b", (seconds,) * 3, (seconds,))
    assert sentence in without_bounds(answers.about_cost(per_device, synchronised, 64))


def test_the_exchange_is_told() -> None:
    told = without_bounds(answers.about_exchange(2, 8192))
    assert told == "Synchronising adds 2 allreduces and 8,192 bytes between devices to a step."
