"""Numbers of devices, the batches that belong to them, and first losses that are NumPy's on any number of devices."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend
from parallel_core import Settings
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import on_some_devices
from parallel_core.experiments.training_on_multiple_gpus.on_some_devices import FIXED, SCALED, device_counts, plans
from parallel_core.training.dataset import synthetic

MADE_UP = synthetic("a test needs no more", train=300, test=10)
SETTINGS, START = Settings(1, 10), on_some_devices.enlarged_start(0, 8)
first_losses, check_first_losses = on_some_devices.first_losses, on_some_devices.check_first_losses


@given(st.integers(1, 1000))
def test_devices_double_up_to_all_of_them(loaded: int) -> None:
    counts = device_counts(loaded)
    assert (counts[0], counts[-1]) == (1, loaded)
    assert all(before < after <= 2 * before for before, after in pairwise(counts))
    assert all(after == 2 * before for before, after in pairwise(counts[:-1]))


@given(st.integers(1, 100), st.integers(1, 64))
def test_every_device_beyond_the_first_has_both_kinds_of_batch(batch_size: int, loaded: int) -> None:
    planned = plans(batch_size, loaded)
    counts = device_counts(loaded)
    assert planned.keys() == {(FIXED, count) for count in counts} | {(SCALED, count) for count in counts[1:]}
    assert all(batch == batch_size * (count if kind == SCALED else 1) for (kind, count), batch in planned.items())
    assert len({on_some_devices.case_name(*plan, loaded) for plan in planned}) == len(planned)


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
    monkeypatch.setattr(on_some_devices, "NUMPY_SECONDS", 0.0)
    # What NumPy did not reach is not compared.
    check_first_losses(trial, MADE_UP, SETTINGS, START, (*expected[:1], 7.0, 7.0))
    assert trial.errors == {"first losses": 0}
