"""Synchronised statistics give the step of one device, however rows are divided; those of each device give another."""

from collections.abc import Callable
from itertools import starmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import backends
import parallel_core
from backends import Backend
from parallel_core.experiments.training_on_multiple_gpus import batch_norm
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import PER_DEVICE, SYNCHRONISED, difference
from parallel_core.measurement.checks import relative_error

initial_parameters, synthetic_batch = batch_norm.initial_parameters, batch_norm.synthetic_batch


def largest_error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(starmap(relative_error, zip(found, expected, strict=True)))


def change(backend: Backend, name: str, x: np.ndarray, labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    return batch_norm.ways(len(x))[name].changes(backend, initial_parameters(seed), (x, labels), 1 / len(x))


def step_of_one_device(x: np.ndarray, labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    one = backends.load("numpy", devices=1, threads_per_device=1)
    return change(one, PER_DEVICE, x, labels, seed)


def test_the_loss_is_that_of_the_textbook_s_formula() -> None:
    w1, scale, shift, w2, b2 = initial_parameters()
    scale, shift = scale + 0.5, shift - 0.25
    x, labels = synthetic_batch(9)
    z = x @ w1
    units = np.maximum((z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5) * scale + shift, 0)
    scores = units @ w2 + b2
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(9), labels]).sum()
    found = batch_norm.loss(backends.load("numpy", devices=1).ops)((w1, scale, shift, w2, b2), x, labels)
    assert float(found) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=16)
@given(rows=draw.integers(5, 20), devices=draw.sampled_from([1, 2, 3, 5]), seed=draw.integers(0, 99))
def test_synchronised_statistics_give_the_step_of_one_device(
    load: Callable[[int], Backend], rows: int, devices: int, seed: int
) -> None:
    batch = synthetic_batch(rows, seed)
    found = change(load(devices), SYNCHRONISED, *batch, seed)
    assert largest_error(found, step_of_one_device(*batch, seed)) < 1e-6


def test_statistics_per_device_are_of_the_device_s_rows_and_differ_by_less_the_more_there_are(backend: Backend) -> None:
    x, labels = synthetic_batch(4)
    found = change(backend, PER_DEVICE, np.tile(x, (3, 1)), np.tile(labels, 3))
    # Every device has the same rows, so its statistics are those of all of them.
    assert largest_error(found, step_of_one_device(x, labels)) < 1e-6
    shuffled = np.repeat(x, 3, axis=0), np.repeat(labels, 3)
    assert largest_error(change(backend, PER_DEVICE, *shuffled), found) > 0.1
    few, many = (difference(backend, PER_DEVICE, 3 * rows) for rows in (8, 128))
    assert few > 2 * many > 1e-3


def test_synchronising_costs_two_allreduces_of_two_sums(backend: Backend) -> None:
    result = parallel_core.run_batch_norm(backend, rows=20, rounds=1)
    assert result.series["rows"] == (8, 16)
    assert result.metrics["synchronising_allreduces"] == 2
    there_and_back, others, units, item = 2, 2, 128, 4
    assert result.metrics["synchronising_bytes"] == 2 * there_and_back * others * 2 * units * item
    assert result.metrics["synchronised_difference_fraction"] < 1e-6 < result.metrics["per_device_difference_fraction"]
    assert result.metrics["per_device_difference_fraction"] == result.series["difference"][-1]
    assert all(len(case.bare_seconds) == len(case.seconds) for case in result.cases)
    medians = {case.name: case.median for case in result.cases}
    assert [result.bands[f"{kind}_difference_fraction"] for kind in ("per_device", "synchronised")] == [
        "different",
        "rounding",
    ]
    assert result.metrics["synchronising_cost"] == pytest.approx(
        medians["synchronised statistics, 16 rows"] / medians["statistics per device, 16 rows"]
    )


@pytest.mark.parametrize(
    ("wrong", "error"),
    [((SYNCHRONISED, 24, 1), 1e-3), ((SYNCHRONISED, 26, 1), float("nan")), ((PER_DEVICE, 24, 3), 1e-3)],
)
def test_a_step_that_is_wrong_makes_the_result_invalid(
    backend: Backend, wrong: tuple[object, int, int], error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretended(_: Backend, way: object, rows: int, devices: int = 1) -> float:
        return error if (way, rows, devices) == wrong else 0.0

    monkeypatch.setattr(batch_norm, "difference", pretended)
    (problem,) = parallel_core.run_batch_norm(backend, rows=8, rounds=1).problems
    assert problem.startswith("changes of the parameters differ from NumPy's by ")
