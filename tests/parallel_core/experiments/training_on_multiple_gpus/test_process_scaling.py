"""What several processes cost and gain is said of what was trained, however little that was."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import backends
from backends.process_groups import Group, GroupedBackend
from parallel_core import run_data_parallel
from parallel_core.experiments.training_on_multiple_gpus import process_scaling as scaling
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import verdicts, with_scaling
from parallel_core.measurement.result import Result
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters
from tests.backends.process_groups.threads import together
from tests.parallel_core.experiments.bounds import without_bounds

DATA = synthetic("a test needs no more", train=40, test=10)
BYTES = sum(array.nbytes for array in initial_parameters())


def scaled(trained: int, calls: list[int]) -> list[Result]:
    """Train on two ranks, 2 batches, and return their results; `calls` are what progress was reported."""

    def program(group: Group) -> Result:
        local = backends.load("numpy", 1, threads_per_device=1)
        backend = GroupedBackend(local, group, (1, 1), calls.append)
        settings = Settings(epochs=1, batch_size=32)
        result = run_data_parallel(backend, DATA, settings)
        return with_scaling(result, backend, DATA, settings, trained)

    return together(2, program)


def test_bytes_are_of_the_steps_that_were_trained_here() -> None:
    results = scaled(trained=2, calls=[])
    assert [result.metrics["exchanged_bytes"] for result in results] == [2 * BYTES] * 2


def test_a_step_s_time_is_of_the_batches_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    # 40 images are 2 batches of 32, fewer than the steps that are asked for.
    epochs: list[float] = []
    real = scaling.train_epoch

    def of_known_length(*args: object, **named: object) -> object:
        epoch = real(*args, **named)  # type: ignore[arg-type]
        epochs.append(len(epoch.losses))
        return replace(epoch, seconds=float(len(epoch.losses)))

    monkeypatch.setattr(scaling, "train_epoch", of_known_length)
    for result in scaled(trained=2, calls=[]):
        assert result.metrics["step_seconds"] == 1
    assert np.max(epochs) == 2


def test_the_count_of_exchanges_never_goes_back() -> None:
    calls: list[int] = []

    scaled(trained=2, calls=calls)
    # Two ranks of the same program report to one list, and are never apart by more than one exchange.
    assert all(later >= earlier - 1 for earlier, later in pairwise(calls))


def test_a_single_process_is_left_as_it_is() -> None:
    def program(group: Group) -> bool:
        local = backends.load("numpy", 1, threads_per_device=1)
        backend = GroupedBackend(local, group, (1,), lambda _: None)
        result = run_data_parallel(backend, DATA, Settings(epochs=1, batch_size=32))
        return with_scaling(result, backend, DATA, Settings(epochs=1), 2) is result

    assert together(1, program) == [True]


def test_every_rank_has_the_first_one_s_figures_with_bounds_around_them() -> None:
    first, second = scaled(trained=2, calls=[])
    assert first.metric_intervals == second.metric_intervals
    for name in ("scaling_efficiency", "step_seconds", "lone_step_seconds", "exposed_exchange_seconds"):
        low, high = first.metric_intervals[name]
        assert low <= first.metrics[name] == second.metrics[name] <= high
    assert first.answer is not None
    assert first.answer.sentences[0] == first.explanation
    assert len(first.answer.sentences) == 3


def timed(together: float, silent: float, alone: float, exchange: float) -> dict[str, list[float]]:
    ways = {"together": together, "without exchange": silent, "alone": alone, "exchange alone": exchange}
    return {name: [seconds, 1.001 * seconds, 0.999 * seconds] * 2 for name, seconds in ways.items()}


@pytest.mark.parametrize(
    ("together", "alone", "sentence"),
    [
        (0.06, 0.1, "which is 1.67 × as fast of 2 × at most: they are worth more than one."),
        (0.2, 0.1, "which is 0.50 × as fast of 2 × at most: a single process is faster."),
        (0.1, 0.101, "that they are worth more than one is not shown."),
    ],
)
def test_processes_are_worth_more_than_one_only_if_that_is_shown(together: float, alone: float, sentence: str) -> None:
    intervals = verdicts.intervals_of(timed(together, 0.05, alone, 0.01), 2)
    assert without_bounds(verdicts.about_speed(intervals, 2)).endswith(sentence)


@pytest.mark.parametrize(
    ("silent", "exchange", "sentence"),
    [
        (0.07, 0.06, "the step 30.00 ms more than without it: a part of the exchange hides under computing."),
        (0.07, 0.01, "more than without it: besides the exchange, processes wait for each other."),
        (0.07, 0.03, "more than without it: the step waits for it."),
        (0.0999, 0.03, "more than without it: no difference is shown."),
        (0.15, 0.03, "it was the faster one, so the exchange is not what takes long."),
    ],
)
def test_an_exchange_is_called_exposed_only_if_that_is_shown(silent: float, exchange: float, sentence: str) -> None:
    found = timed(0.1, silent, 0.15, exchange)
    told = verdicts.about_exchange(found, verdicts.intervals_of(found, 2), 1_000_000)
    assert without_bounds(told).endswith(sentence)


def test_what_would_change_it_is_an_exchange_that_is_exposed_or_the_hosts() -> None:
    exposed, hidden = (verdicts.intervals_of(timed(0.1, silent, 0.15, 0.03), 2) for silent in (0.07, 0.0999))
    assert verdicts.what_would_change(exposed, Settings(), 1).startswith("Sums of gradients during the backward pass")
    assert verdicts.what_would_change(exposed, Settings(exchange="during"), 2).startswith("A faster network")
    assert verdicts.what_would_change(hidden, Settings(), 1).startswith("Hosts of their own")
