"""What a step launches on a device as one unit, a sweep's budget, the case of epochs, and first losses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend, Device
from parallel_core.experiments import training_steps
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.experiments.training_steps import add_case_of_epochs, time_units
from parallel_core.experiments.works import BESIDE, works_of_step
from parallel_core.measurement.progress import listening, tell
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.timing import repeatable
from parallel_core.training.batches import Epoch, Settings
from parallel_core.training.dataset import synthetic
from tests.parallel_core.experiments.runner.pretended import case

MADE_UP = synthetic("a test needs no more", train=300, test=10)
SETTINGS, START = Settings(1, 10), training_steps.enlarged_start(0, 8)
first_losses, check_first_losses = training_steps.first_losses, training_steps.check_first_losses


def test_a_unit_launches_all_of_a_device_s_share_again(backend: Backend) -> None:
    first, second, _ = backend.devices
    launched: list[Device] = []
    recording = Recording(backend, on_launch=lambda device, *_: launched.append(device))
    add = backend.ops.add

    def step(backend: Backend) -> None:
        x, y = (backend.asarray(np.full(3, value, np.float32), device) for value, device in ((1, first), (2, second)))
        a = backend.launch(add, x, x)
        b = backend.launch(add, y, backend.copy_to(a, second))
        sums = backend.allreduce([a, b])
        backend.launch(add, y, sums[1])

    works = works_of_step(recording, step, times=2)
    assert [work.times for work in works] == [2, 2]
    launched.clear()
    made = [recording.to_numpy(work.launch()) for work in works]
    assert launched == [first, second]
    # b is 2 + a, of 1 + 1, and c is 2 + the sum of both. Each result is there: what is not, a compiler leaves out.
    assert [[value.tolist() for value in values] for values in made] == [[[2, 2, 2]], [[4, 4, 4], [8, 8, 8]]]


def test_a_step_s_units_are_timed_and_the_first_one_s_beside_the_rest_where_there_is_a_queue(
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


# The batch may be larger than the data.
@pytest.mark.parametrize(("batch_size", "bare"), [(8, (2.5, 10.0)), (80, (1.0, 4.0))])
def test_the_case_of_epochs_has_the_slowest_device_s_steps_and_a_smaller_last_batch_counts_by_its_images(
    backend: Backend, batch_size: int, bare: tuple[float, ...]
) -> None:
    units = {name: case(name, 1.0, 2.0 * place) for place, name in enumerate(("first", "second", "third"))}
    units[BESIDE] = case(BESIDE, 9.0, 9.0)
    data = synthetic("a test needs no more", train=20, test=1)
    epochs = [Epoch(1, seconds=9.0, dispatch_seconds=1.0, images=20, losses=(1.0,) * 8), Epoch(2, 8.0, 2.0, 20, ())]
    params = training_steps.placed(backend, training_steps.enlarged_start(0, 8), 3)
    trial = Trial(backend, {})
    with repeatable():
        add_case_of_epochs(trial, "epoch", lambda: params, units, data, Settings(1, batch_size), epochs, None)
    found = trial.cases["epoch"]
    assert (found.seconds, found.dispatch_seconds, found.bare_seconds) == ((9.0, 8.0), (1.0, 2.0), bare)
    assert found.share == 5 / 8
    assert found.again is not None
    assert found.again()[1] > 0


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.floats(1, 100))
def test_points_that_take_their_shares_spend_the_budget(weights: list[float], budget: float) -> None:
    trial, told, shares = Trial(backends.load("numpy", 1), {}, 1, budget), [], []
    with pytest.MonkeyPatch.context() as patch, listening(lambda _, share: told.append(share)):
        patch.setattr(Trial, "run", lambda _, share: shares.append(share))
        for place, point in enumerate(training_steps.swept(trial, range(len(weights)), weights)):
            # What a body registers is timed when it ends.
            assert (point, len(shares)) == (place, place)
            tell("begun", 0.0)
            tell("done", 1.0)
    assert shares == pytest.approx(
        [TIMED_SHARE * sum(weights[:count]) / sum(weights) for count in range(1, len(weights) + 1)]
    )
    assert told == pytest.approx(sorted(told))
    assert (told[0], told[-1]) == pytest.approx((0, 1))


def test_training_on_the_first_devices_gives_numpy_s_losses(backend: Backend) -> None:
    found = [first_losses(backend, devices, MADE_UP, SETTINGS, START) for devices in (1, 2, 3)]
    trial = Trial(backend, {})
    check_first_losses(trial, MADE_UP, SETTINGS, START, *found)
    assert trial.errors["first losses"] < 1e-4
    assert [len(set(losses)) for losses in found] == [3, 3, 3]
    # One that differs is enough.
    check_first_losses(trial, MADE_UP, SETTINGS, START, *found, (*found[0][:2], 7.0))
    assert trial.errors["first losses"] > 1e-2


def test_numpy_ends_early_where_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(backends.load("numpy", 1), {})
    expected = first_losses(trial.backend, 1, MADE_UP, SETTINGS, START)
    assert first_losses(trial.backend, 1, MADE_UP, SETTINGS, START, seconds=0.0) == expected[:1]
    monkeypatch.setattr(training_steps, "NUMPY_SECONDS", 0.0)
    # What NumPy did not reach is not compared.
    check_first_losses(trial, MADE_UP, SETTINGS, START, (*expected[:1], 7.0, 7.0))
    assert trial.errors == {"first losses": 0}
