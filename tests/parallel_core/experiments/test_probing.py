"""Sizes that a run chooses stay within bounds, whatever an engine lets it measure."""

import time

import numpy as np
import pytest

from backends import Backend
from parallel_core.experiments import copying, probing, workloads
from parallel_core.experiments.runner.trial import Trial
from tests.parallel_core.labs.solution import MyEngine

GIGABYTE = 10**9


class EarlyWaitall(MyEngine):
    """An engine whose `waitall` returns at once."""

    def waitall(self) -> None:
        """Return before anything is done."""


@pytest.fixture
def doing_nothing(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Return a trial on two cores whose multiplications take no time, with a usual budget."""
    monkeypatch.setattr(probing, "measure", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(probing, "usable_cores", lambda: 2.0)
    monkeypatch.setattr(probing, "free_memory", lambda: 100 * GIGABYTE)
    return Trial(backend, {}, budget=15.0)


def test_no_multiplication_is_taken_to_be_faster_than_any_core(doing_nothing: Trial) -> None:
    # Two cores do 1e12 operations a second at the most, so 2e9 take 2 ms.
    assert workloads.seconds_of_one(doing_nothing, 1000) == pytest.approx(0.002)
    # 25 multiplications of 2 · 1584³ operations take 0.2 s then.
    assert workloads.size_for(doing_nothing, 0.2, 25) == 1584


def test_chosen_matrices_take_a_tenth_of_the_free_memory(
    doing_nothing: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "free_memory", lambda: GIGABYTE)
    matrices = 4 + 60 * len(doing_nothing.devices)
    size = workloads.size_for(doing_nothing, 0.2, 25)
    assert size == probing.largest_size(doing_nothing)
    assert 4 * size**2 * matrices <= 0.1 * GIGABYTE < 4 * (size + 8) ** 2 * matrices
    # The smallest matrices remain where nothing is free.
    monkeypatch.setattr(probing, "free_memory", lambda: 0)
    assert workloads.size_for(doing_nothing, 0.2, 25) == 8


def test_matrices_that_are_copied_keep_to_the_same_bound(
    doing_nothing: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(doing_nothing.devices) == 1:
        pytest.skip("a single CPU copies to no other device")
    monkeypatch.setattr(probing, "free_memory", lambda: GIGABYTE)
    # A copy takes far longer than a multiplication, which asks for larger matrices.
    monkeypatch.setattr(copying, "_seconds_of_a_copy", lambda *_: (31e-6, 1.0))
    size_to_copy, *_ = copying.chosen_to_copy(copying.destination, 6)
    assert size_to_copy.how is not None
    choice = size_to_copy.how(doing_nothing)
    assert choice == (probing.largest_size(doing_nothing), "largest")


def test_what_is_done_after_an_early_waitall_is_part_of_a_probe() -> None:
    engine = EarlyWaitall(2, "cpu", None, 1)
    trial = Trial(engine, {})

    def slow_matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        time.sleep(0.02)
        return x @ y

    x = trial.normal(8, trial.devices[0])
    _, done = probing.median_timing(trial, lambda: engine.launch(slow_matmul, x, x))
    assert done > 0.01
