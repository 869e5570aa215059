"""Where the host launches a step's work; its numbers are tested with the experiment."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends import Backend
from backends.host import core_numbers
from parallel_core.training.step import get_params, guards, train_batch


@pytest.mark.parametrize("devices", [1, 2])
def test_the_host_launches_on_each_device_s_cores_if_it_has_none_of_its_own(
    load: Callable[[int], Backend], devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, launched_on = load(devices), []
    launch = backend.launch

    def noting(*args: Any) -> Any:
        launched_on.append(set(core_numbers()))
        return launch(*args)

    params = [get_params(backend, device) for device in backend.devices]
    guarded = guards(backend, params)
    everywhere = set(core_numbers())
    monkeypatch.setattr(backend, "launch", noting)
    train_batch(backend, params, np.zeros((2, 1, 28, 28), np.float32), np.zeros(2, np.int32), 0.1, guarded)
    backend.waitall()
    crowded = devices > 1 and everywhere and set().union(*backend.cores) == everywhere
    cores = backend.cores if crowded else [everywhere] * devices
    # Gradients, then updates: the host ends where the next step begins.
    assert launched_on[:devices] == [*cores]
    assert launched_on[-devices:] == [*reversed(cores)]
    assert set(core_numbers()) == everywhere
