"""The first losses are NumPy's, on any number of devices."""

import numpy as np
import pytest

import backends
from backends import Backend
from parallel_core import Settings
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import first_losses as checked
from parallel_core.experiments.training_on_multiple_gpus.first_losses import (
    check_first_losses,
    enlarged_start,
    first_losses,
    numpy_losses,
)
from parallel_core.training.dataset import synthetic

MADE_UP = synthetic("a test needs no more", train=300, test=10)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_training_on_the_first_devices_gives_numpy_s_losses(backend: Backend, devices: int) -> None:
    settings, start = Settings(1, 10), enlarged_start(0, 8)
    found = first_losses(backend, devices, MADE_UP, settings, start)
    np.testing.assert_allclose(found, numpy_losses(MADE_UP, settings, start), rtol=1e-4)
    assert len(set(found)) == 3


def test_numpy_ends_early_where_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, start = Settings(1, 10), enlarged_start(0, 8)
    expected = numpy_losses(MADE_UP, settings, start)
    monkeypatch.setattr(checked, "NUMPY_SECONDS", 0.0)
    assert numpy_losses(MADE_UP, settings, start) == expected[:1]
    # What NumPy did not reach is not compared.
    trial = Trial(backends.load("numpy", 1), {})
    check_first_losses(trial, MADE_UP, settings, (*expected[:1], 7.0, 7.0), start)
    assert trial.errors == {"first losses": 0}
