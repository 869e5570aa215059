"""An experiment chooses its sizes in the quietest moment, and takes a smaller one if too few rounds
fit.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import backends
from backends import Backend
from parallel_core import Case, Result, run_parallel
from parallel_core.experiments import EXPERIMENTS, workloads
from parallel_core.experiments.automatic_parallelism import parallel
from parallel_core.experiments.runner import declaration, parameters
from parallel_core.experiments.runner import trial as runner_trial
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement import timing
from parallel_core.measurement.timing import TooSlowError
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.compare import made_up


@pytest.fixture(scope="module")
def numpy() -> Backend:
    return backends.load("numpy", 2, threads_per_device=1)


def run_in_two_rounds(backend: Backend, **options: Any) -> Result:
    """Run `parallel` in two rounds, with time for all tries and rounds on any machine."""
    return run_parallel(backend, rounds=2, budget=600.0, **options)


def test_what_was_chosen_in_the_quietest_moment_counts(
    numpy: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_shares = iter((0.3, 0.2, 0.4))
    sizes = iter((8, 16, 24))
    watch = MachineWatch(10.0, 2.0, 0.0, None, None, None, None)
    monkeypatch.setattr(
        parameters, "watched", lambda *_: replace(watch, others_share=next(others_shares))
    )
    monkeypatch.setattr(workloads, "size_for", lambda *_: next(sizes))
    assert run_in_two_rounds(numpy).parameters["size"] == 16
    assert next(others_shares, None) is None


def test_a_size_that_a_comparison_gives_counts_as_chosen(numpy: Backend) -> None:
    run = EXPERIMENTS["parallel"].run
    by_comparison = run(numpy, size=16, rounds=1, sizes_chosen=True)
    by_user = run(numpy, size=16, rounds=1)
    assert by_comparison.chosen_by == {"size": "comparison"}
    assert by_user.chosen_by == {}


@pytest.mark.parametrize(("chosen_by", "side"), [({"size": "rounds"}, 640), ({}, 64)])
def test_a_chosen_size_is_counted_with_matrices_that_outlast_turns_on_a_core(
    numpy: Backend, monkeypatch: pytest.MonkeyPatch, chosen_by: dict[str, str], side: int
) -> None:
    sides: list[int] = []
    multiplied = workloads.multiplied

    def recorded(trial: Trial, x: np.ndarray, count: int = 1) -> tuple[np.ndarray, ...]:
        sides.append(len(x))
        return multiplied(trial, x, count)

    monkeypatch.setattr(workloads, "multiplied", recorded)
    trial = Trial(numpy, {}, counted=[parallel.TOGETHER])
    trial.described["chosen_by"] = chosen_by
    parallel.program(trial, 64)
    trial.run(rounds=1)
    sides.clear()
    trial.takes[parallel.TOGETHER]()
    assert sides == [side, side]


@pytest.mark.parametrize(
    ("seconds_of_round", "seconds_left", "size"),
    [(2.25, 10.0, 800), (4.5, 10.0, 632), (2.25, 5.0, 632), (1.0, 10.0, 800), (1e9, 10.0, 8)],
)
def test_a_smaller_size_is_one_with_which_three_rounds_fit(
    numpy: Backend, seconds_of_round: float, seconds_left: float, size: int
) -> None:
    trial = Trial(numpy, {"size": 800}, rounds=5, budget=10.0)
    assert declaration._size_for_rounds(trial, seconds_of_round, seconds_left, 3) == size


def test_a_run_that_was_too_large_starts_again_with_less_unless_its_size_is_given(
    numpy: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewest_rounds: list[int] = []

    def interleave(*args: Any, fewest: int, **options: Any) -> tuple[Case, ...]:
        fewest_rounds.append(fewest)
        if fewest:
            raise TooSlowError(1e6)
        return timing.interleave(*args, **options)

    monkeypatch.setattr(workloads, "size_for", lambda *_: 24)
    monkeypatch.setattr(runner_trial, "interleave", interleave)
    smaller = run_in_two_rounds(numpy)
    assert smaller.parameters["size"] == 8
    assert smaller.chosen_by == {"size": "rounds"}
    given = run_in_two_rounds(numpy, size=32)
    assert given.parameters["size"] == 32
    assert given.chosen_by == {}
    # The first run starts again once, and then takes the rounds that fit.
    assert fewest_rounds == [2, 0, 0]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ((), {"size": 800, "products": 20, "copies": 7}),
        (("backend", "size", "copies"), {"products": 20}),
        (("size", "products", "copies"), {}),
    ],
)
def test_what_is_not_given_was_chosen(given: tuple[str, ...], chosen: dict[str, int]) -> None:
    parameters = {"size": 800, "products": 20, "copies": 7, "rounds": 5}
    result = made_up.result(made_up.parallel("torch"), {"run": 1.0}, parameters=parameters)
    assert EXPERIMENTS["overlap"].sizes_chosen_in(result, given) == chosen
