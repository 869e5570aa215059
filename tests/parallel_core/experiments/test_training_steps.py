"""What a step launches on a device as one unit, the case of epochs, first losses, and what several
processes gain.
"""

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend, Device
from backends.process_groups import Group, GroupedBackend
from parallel_core import Result, run_data_parallel
from parallel_core.experiments import training_steps
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.experiments.training_on_multiple_gpus import process_scaling as scaling
from parallel_core.experiments.training_steps import (
    add_case_of_epochs,
    check_first_losses,
    first_losses,
    time_units,
)
from parallel_core.experiments.workloads import BESIDE, units_of_step
from parallel_core.measurement.progress import listening, tell
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.timing import repeatable
from parallel_core.training.batches import Epoch, Settings
from parallel_core.training.lenet import initial_parameters, start_of
from tests.backends.process_groups.threads import together
from tests.parallel_core.experiments.runner.pretended import case, pretended
from tests.parallel_core.experiments.small import made_up

MADE_UP = made_up()
SETTINGS = Settings(1, 10)
START = start_of(Settings(initial_scale=8.0))


def test_a_unit_launches_all_of_a_device_s_share_again(backend: Backend) -> None:
    first, second, _ = backend.devices
    launched_on: list[Device] = []
    recording = Recording(backend, on_launch=lambda device, *_: launched_on.append(device))
    add = backend.ops.add

    def step(backend: Backend) -> None:
        ones = backend.asarray(np.full(1, 1, np.float32), first)
        twos = backend.asarray(np.full(1, 2, np.float32), second)
        a = backend.launch(add, ones, ones)
        b = backend.launch(add, twos, backend.copy_to(a, second))
        sums = backend.allreduce([a, b])
        backend.launch(add, twos, sums[1])

    first_work, second_work = units_of_step(recording, step, times=2)
    assert first_work.times == second_work.times == 2
    launched_on.clear()
    # Each result is there: what is not, a compiler leaves out.
    assert recording.to_numpy(first_work.launch()) == (1 + 1,)
    assert recording.to_numpy(second_work.launch()) == (2 + 2, 2 + (2 + 4))
    assert launched_on == [first, second]


def test_a_step_s_units_are_timed_and_with_a_queue_the_first_beside_the_rest(
    backend: Backend,
) -> None:
    def timed_units(devices: int) -> list[str]:
        units = time_units(backend, devices, MADE_UP, SETTINGS, beside=True)
        for unit in units.values():
            assert min(unit.seconds) > 0
            # Where functions are compiled, a unit is compiled then.
            assert len(unit.warmup_seconds) == 1
        return list(units)

    units_of_devices = [f"device {number}, as one unit" for number in range(3)]
    has_queue = backend.engine == "async"
    assert timed_units(1) == units_of_devices[:1]
    assert timed_units(3) == ([*units_of_devices, BESIDE] if has_queue else units_of_devices)


@pytest.mark.parametrize(
    ("batch_size", "bare_seconds"),
    [
        # A smaller last batch counts by its images: 20 images are two and a half batches of 8.
        (8, (2.5, 10.0)),
        # The batch may be larger than the data.
        (80, (1.0, 4.0)),
    ],
)
def test_the_case_of_epochs_is_of_the_slowest(
    backend: Backend, batch_size: int, bare_seconds: tuple[float, ...]
) -> None:
    seconds_of_units = {"first": (1.0, 0.0), "second": (1.0, 2.0), "third": (1.0, 4.0)}
    units = {name: case(name, *seconds) for name, seconds in seconds_of_units.items()}
    units[BESIDE] = case(BESIDE, 9.0, 9.0)
    data, settings = made_up(train=20, test=1), Settings(1, batch_size)
    timed = [
        Epoch(1, seconds=9.0, dispatch_seconds=1.0, images=20, losses=(1.0,) * 8),
        Epoch(2, seconds=8.0, dispatch_seconds=2.0, images=20, losses=()),
    ]
    parameters = training_steps.placed(backend, START, 3)
    trial = Trial(backend, {})
    with repeatable():
        add_case_of_epochs(trial, "epoch", lambda: parameters, units, data, settings, timed, None)
    epochs = trial.cases["epoch"]
    assert (epochs.seconds, epochs.dispatch_seconds) == ((9.0, 8.0), (1.0, 2.0))
    assert epochs.bare_seconds == bare_seconds
    assert epochs.share == 5 / 8
    assert epochs.again is not None
    _, seconds_again = epochs.again()
    assert seconds_again > 0


@given(weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=5), budget=st.floats(1, 100))
def test_points_that_take_their_shares_spend_the_budget(
    weights: list[float], budget: float
) -> None:
    trial = Trial(backends.load("numpy", 1), {}, 1, budget)
    spent_shares: list[float] = []
    progress: list[float] = []
    points = range(len(weights))
    with (
        pytest.MonkeyPatch.context() as patch,
        listening(lambda _, share: progress.append(share)),
    ):
        patch.setattr(Trial, "run", lambda _, share: spent_shares.append(share))
        for point in training_steps.swept(trial, points, weights):
            # What a body registers is timed when it ends.
            assert len(spent_shares) == point
            tell("begun", 0.0)
            tell("done", 1.0)
    expected_shares = [TIMED_SHARE * weight / sum(weights) for weight in accumulate(weights)]
    assert spent_shares == pytest.approx(expected_shares)
    assert progress == pytest.approx(sorted(progress))
    assert [progress[0], progress[-1]] == pytest.approx([0, 1])


def test_a_single_first_loss_that_differs_is_enough() -> None:
    backend = backends.load("numpy", 1)
    expected = first_losses(backend, 1, MADE_UP, SETTINGS, START)
    assert len(set(expected)) == training_steps.CHECKED_BATCHES
    trial = Trial(backend, {})
    *others, _ = expected
    check_first_losses(trial, MADE_UP, SETTINGS, START, expected, (*others, 7.0))
    assert trial.errors["first losses"] > 1e-2


def test_first_losses_that_numpy_did_not_reach_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = Trial(backends.load("numpy", 1), {})
    reached = first_losses(trial.backend, 1, MADE_UP, SETTINGS, START, seconds=0.0)
    assert reached == first_losses(trial.backend, 1, MADE_UP, SETTINGS, START)[:1]
    monkeypatch.setattr(training_steps, "NUMPY_SECONDS", 0.0)
    check_first_losses(trial, MADE_UP, SETTINGS, START, (*reached, 7.0, 7.0))
    assert trial.errors == {"first losses": 0}


# Two batches of 32: fewer than the steps that are asked for.
DATA = made_up(train=40)


def trained(processes: int, calls: list[int]) -> list[Result]:
    """Train on some ranks, and return their results; `calls` are what progress was reported."""

    def train(group: Group) -> Result:
        local = backends.load("numpy", 1, threads_per_device=1)
        backend = GroupedBackend(local, group, (1,) * processes, calls.append)
        return run_data_parallel(backend, data=DATA, settings=Settings(epochs=1, batch_size=32))

    return together(processes, train)


def test_every_rank_has_the_first_one_s_figures_of_the_steps_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train_epoch = scaling.train_epoch

    def train_with_steps_of_a_second(*arguments: Any, **options: Any) -> Epoch:
        epoch = train_epoch(*arguments, **options)
        assert len(epoch.losses) <= 2
        return replace(epoch, seconds=float(len(epoch.losses)))

    monkeypatch.setattr(scaling, "train_epoch", train_with_steps_of_a_second)
    monkeypatch.setattr(scaling, "TIMED_SECONDS", 0)
    calls: list[int] = []
    first, second = trained(2, calls)
    bytes_of_parameters = sum(array.nbytes for array in initial_parameters())
    expected = {
        "step_seconds": 1,
        "lone_step_seconds": 1,
        "scaling_efficiency": 0.5,
        "exposed_exchange_seconds": 0,
        "exchanged_bytes": 2 * bytes_of_parameters,
    }
    for result in (first, second):
        assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
        assert result.parameters["processes"] == 2
    assert first.metric_intervals["exchange_seconds"] == second.metric_intervals["exchange_seconds"]
    # Two ranks of the same program report to one list, and are never apart by more than one
    # exchange.
    assert all(later >= earlier - 1 for earlier, later in pairwise(calls))


def test_a_single_process_has_no_scaling_efficiency() -> None:
    (result,) = trained(1, [])
    assert "scaling_efficiency" not in result.metrics
    assert result.problems == ()


@pytest.mark.parametrize(
    ("together", "without_exchange", "one_process", "exchange_only", "bands"),
    [
        (0.06, 0.03, 0.1, 0.1, ["faster", "partly"]),
        (0.2, 0.2, 0.1, 0.3, ["slower", "hidden"]),
        (0.1, 0.07, 0.101, 0.03, [None, "exposed"]),
        (0.1, 0.05, 0.19, 0.05, ["scaled", "exposed"]),
        (0.4, 0.1, 0.6, 0.1, ["faster", "waiting"]),
    ],
)
def test_what_the_seconds_of_a_step_mean(
    together: float,
    without_exchange: float,
    one_process: float,
    exchange_only: float,
    bands: list[str | None],
) -> None:
    def rounds(seconds: float) -> list[float]:
        return [seconds, 1.001 * seconds, 0.999 * seconds] * 2

    timed = {
        "together": rounds(together),
        "without exchange": rounds(without_exchange),
        "one process": rounds(one_process),
        "exchange only": rounds(exchange_only),
    }
    trial = Trial(backends.load("numpy", 1), {})
    scaling.find_figures(trial, timed, 2)
    result = pretended(trial, *scaling.SCALING)
    exposed_seconds = together - without_exchange
    assert result.metrics["exposed_exchange_seconds"] == pytest.approx(exposed_seconds)
    assert list(result.bands.values()) == bands
