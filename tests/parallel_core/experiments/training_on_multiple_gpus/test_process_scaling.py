"""What several processes cost and gain is said of what was trained, however little that was."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import backends
from backends.process_groups import Group, GroupedBackend
from parallel_core import run_data_parallel
from parallel_core.experiments.training_on_multiple_gpus import process_scaling as scaling
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import with_scaling
from parallel_core.measurement.result import Result
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters
from tests.backends.process_groups.threads import together

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
