"""What a step launches on a device as one unit, the case of epochs, first losses, and what several
processes gain.
"""

from dataclasses import replace
from itertools import accumulate, pairwise

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
from parallel_core.experiments.training_steps import add_case_of_epochs, time_units
from parallel_core.experiments.workloads import BESIDE, units_of_step
from parallel_core.measurement.progress import listening, tell
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.timing import repeatable
from parallel_core.training.batches import Epoch, Settings
from parallel_core.training.lenet import initial_parameters
from tests.backends.process_groups.threads import together
from tests.parallel_core.experiments.runner.pretended import case, pretended
from tests.parallel_core.experiments.small import made_up

MADE_UP = made_up()
SETTINGS, START = Settings(1, 10), training_steps.enlarged_start(0, 8)
first_losses, check_first_losses = training_steps.first_losses, training_steps.check_first_losses


def test_a_unit_launches_all_of_a_device_s_share_again(backend: Backend) -> None:
    first, second, _ = backend.devices
    launched: list[Device] = []
    recording = Recording(backend, on_launch=lambda device, *_: launched.append(device))
    add = backend.ops.add

    def step(backend: Backend) -> None:
        x, y = (
            backend.asarray(np.full(3, value, np.float32), device)
            for value, device in ((1, first), (2, second))
        )
        a = backend.launch(add, x, x)
        b = backend.launch(add, y, backend.copy_to(a, second))
        sums = backend.allreduce([a, b])
        backend.launch(add, y, sums[1])

    works = units_of_step(recording, step, times=2)
    assert [work.times for work in works] == [2, 2]
    launched.clear()
    made = [recording.to_numpy(work.launch()) for work in works]
    assert launched == [first, second]
    # b is 2 + a, of 1 + 1, and c is 2 + the sum of both. Each result is there: what is not, a
    # compiler leaves out.
    assert [[value.tolist() for value in values] for values in made] == [
        [[2, 2, 2]],
        [[4, 4, 4], [8, 8, 8]],
    ]


def test_a_step_s_units_are_timed_and_with_a_queue_the_first_beside_the_rest(
    backend: Backend,
) -> None:
    def names(devices: int) -> list[str]:
        units = time_units(backend, devices, MADE_UP, SETTINGS, beside=True)
        assert all(min(unit.seconds) > 0 for unit in units.values())
        # Where functions are compiled, a unit is compiled then.
        assert all(len(unit.warmup_seconds) == 1 for unit in units.values())
        return list(units)

    alone = [f"device {number}, as one unit" for number in range(3)]
    assert names(1) == alone[:1]
    assert names(3) == alone + [BESIDE] * (backend.engine == "async")


# A smaller last batch counts by its images; the batch may be larger than the data.
@pytest.mark.parametrize(("batch_size", "bare"), [(8, (2.5, 10.0)), (80, (1.0, 4.0))])
def test_the_case_of_epochs_is_of_the_slowest(
    backend: Backend, batch_size: int, bare: tuple[float, ...]
) -> None:
    units = {
        name: case(name, 1.0, 2.0 * place)
        for place, name in enumerate(("first", "second", "third"))
    }
    units[BESIDE] = case(BESIDE, 9.0, 9.0)
    data = made_up(train=20, test=1)
    epochs = [
        Epoch(1, seconds=9.0, dispatch_seconds=1.0, images=20, losses=(1.0,) * 8),
        Epoch(2, 8.0, 2.0, 20, ()),
    ]
    params = training_steps.placed(backend, training_steps.enlarged_start(0, 8), 3)
    trial = Trial(backend, {})
    with repeatable():
        add_case_of_epochs(
            trial, "epoch", lambda: params, units, data, Settings(1, batch_size), epochs, None
        )
    found = trial.cases["epoch"]
    assert (found.seconds, found.dispatch_seconds, found.bare_seconds) == (
        (9.0, 8.0),
        (1.0, 2.0),
        bare,
    )
    assert found.share == 5 / 8
    assert found.again is not None
    assert found.again()[1] > 0


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.floats(1, 100))
def test_points_that_take_their_shares_spend_the_budget(
    weights: list[float], budget: float
) -> None:
    trial, told, shares = Trial(backends.load("numpy", 1), {}, 1, budget), [], []
    with pytest.MonkeyPatch.context() as patch, listening(lambda _, share: told.append(share)):
        patch.setattr(Trial, "run", lambda _, share: shares.append(share))
        for place, point in enumerate(training_steps.swept(trial, range(len(weights)), weights)):
            # What a body registers is timed when it ends.
            assert (point, len(shares)) == (place, place)
            tell("begun", 0.0)
            tell("done", 1.0)
    assert shares == pytest.approx(
        [TIMED_SHARE * spent / sum(weights) for spent in accumulate(weights)]
    )
    assert told == pytest.approx(sorted(told))
    assert (told[0], told[-1]) == pytest.approx((0, 1))


def test_all_first_losses_are_compared_as_far_as_numpy_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = Trial(backends.load("numpy", 1), {})
    expected = first_losses(trial.backend, 1, MADE_UP, SETTINGS, START)
    assert len(set(expected)) == 3
    # One that differs is enough.
    differing = Trial(trial.backend, {})
    check_first_losses(differing, MADE_UP, SETTINGS, START, expected, (*expected[:2], 7.0))
    assert differing.errors["first losses"] > 1e-2
    assert first_losses(trial.backend, 1, MADE_UP, SETTINGS, START, seconds=0.0) == expected[:1]
    monkeypatch.setattr(training_steps, "NUMPY_SECONDS", 0.0)
    # What NumPy did not reach is not compared.
    check_first_losses(trial, MADE_UP, SETTINGS, START, (*expected[:1], 7.0, 7.0))
    assert trial.errors == {"first losses": 0}


# Two batches of 32: fewer than the steps that are asked for.
DATA = made_up(train=40)


def trained(processes: int, calls: list[int]) -> list[Result]:
    """Train on some ranks, and return their results; `calls` are what progress was reported."""

    def program(group: Group) -> Result:
        local = backends.load("numpy", 1, threads_per_device=1)
        backend = GroupedBackend(local, group, (1,) * processes, calls.append)
        return run_data_parallel(backend, data=DATA, settings=Settings(epochs=1, batch_size=32))

    return together(processes, program)


def test_every_rank_has_the_first_one_s_figures_of_the_steps_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = scaling.train_epoch

    def of_known_length(*args: object, **named: object) -> object:
        epoch = real(*args, **named)  # type: ignore[arg-type]
        assert len(epoch.losses) <= 2
        return replace(epoch, seconds=float(len(epoch.losses)))

    monkeypatch.setattr(scaling, "train_epoch", of_known_length)
    monkeypatch.setattr(scaling, "TIMED_SECONDS", 0)
    calls: list[int] = []
    first, second = trained(2, calls)
    size = sum(array.nbytes for array in initial_parameters())
    for result in (first, second):
        assert (
            result.metrics["step_seconds"]
            == result.metrics["lone_step_seconds"]
            == pytest.approx(1)
        )
        assert result.metrics["scaling_efficiency"] == pytest.approx(0.5)
        assert result.metrics["exposed_exchange_seconds"] == 0
        assert result.metrics["exchanged_bytes"] == 2 * size
        assert result.parameters["processes"] == 2
    assert first.metric_intervals["exchange_seconds"] == second.metric_intervals["exchange_seconds"]
    # Two ranks of the same program report to one list, and are never apart by more than one
    # exchange.
    assert all(later >= earlier - 1 for earlier, later in pairwise(calls))


def test_a_single_process_has_no_such_figures() -> None:
    (result,) = trained(1, [])
    assert "scaling_efficiency" not in result.metrics
    assert result.problems == ()


@pytest.mark.parametrize(
    ("seconds", "bands"),
    [
        ((0.06, 0.03, 0.1, 0.1), ("faster", "partly")),
        ((0.2, 0.2, 0.1, 0.3), ("slower", "hidden")),
        ((0.1, 0.07, 0.101, 0.03), (None, "exposed")),
        ((0.1, 0.05, 0.19, 0.05), ("scaled", "exposed")),
        ((0.4, 0.1, 0.6, 0.1), ("faster", "waiting")),
    ],
)
def test_what_the_times_of_a_step_mean(
    seconds: tuple[float, ...], bands: tuple[str | None, ...]
) -> None:
    ways = dict(
        zip(("together", "without exchange", "one process", "exchange only"), seconds, strict=True)
    )
    timed = {name: [one * near for near in (1, 1.001, 0.999) * 2] for name, one in ways.items()}
    trial = Trial(backends.load("numpy", 1), {})
    scaling.find_figures(trial, timed, 2)
    found = pretended(trial, *scaling.SCALING)
    assert found.metrics["exposed_exchange_seconds"] == pytest.approx(seconds[0] - seconds[1])
    assert tuple(found.bands.values()) == bands
