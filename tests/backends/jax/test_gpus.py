"""JAX on GPUs that are made up: clients on CPUs, which have the same memories and copy in the same
calls.

Nothing here shows that a GPU would copy while it computes.
"""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

import backends
from backends import HOST, Backend, BackendError
from backends.conformance.drawing import draw_program
from backends.jax import gpus
from parallel_core import run_overlap
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.loop import train
from parallel_core.training.step import get_params
from tests.backends.conformance.in_this_process import fault_in
from tests.backends.protocol.test_aliases import *  # noqa: F403
from tests.backends.protocol.test_allreduce import *  # noqa: F403
from tests.backends.protocol.test_dtypes import *  # noqa: F403
from tests.backends.protocol.test_memory import *  # noqa: F403
from tests.backends.protocol.test_units import *  # noqa: F403
from tests.backends.protocol.test_verbs import *  # noqa: F403

OnGpus = Callable[..., Backend]


@pytest.fixture
def on_gpus(monkeypatch: pytest.MonkeyPatch, require: Callable[[str], None], engine: str) -> OnGpus:
    """Return a function that loads JAX for devices where there are some made-up GPUs."""
    require("jax")
    from backends.jax.kernels import device_with_pool

    def load(devices: int | str, kind: str = "auto", there: int = 4) -> Backend:
        made_up = [
            device_with_pool(100 + index, frozenset(), 2, engine == "async")
            for index in range(there)
        ]
        monkeypatch.setattr(gpus, "found_by", lambda _: made_up)
        return backends.load("jax", devices, kind, engine, 1)

    # JAX was imported for CPUs by other tests.
    as_imported = gpus.settings_with(False)
    monkeypatch.setattr(gpus, "may_be_used", lambda *_: True)
    monkeypatch.setattr(gpus, "settings_with", lambda _: as_imported)
    monkeypatch.setattr("backends.jax.backend.reason_against", lambda *_: "")
    return load


@pytest.fixture
def load(on_gpus: OnGpus) -> Callable[[int], Backend]:
    return lambda devices: on_gpus(devices, "gpu")


@pytest.mark.parametrize("devices", ["gpu:0", "gpu:1,gpu:0"])
@pytest.mark.parametrize("into", [False, True])
def test_a_copy_goes_to_the_host_and_back_through_its_page_locked_memory(
    on_gpus: OnGpus, devices: str, into: bool
) -> None:
    backend = on_gpus(devices)
    for device in backend.devices:
        x = backend.asarray(np.float32([1, 2]), device)
        out = backend.asarray(np.zeros(2, np.float32), HOST) if into else None
        on_host = backend.copy_to(backend.launch(backend.ops.add, x, 1.0), HOST, out=out)
        assert on_host.sharding.memory_kind == "pinned_host"
        assert backend.device_of(on_host) == HOST  # type: ignore[attr-defined]
        back = backend.copy_to(on_host, backend.devices[-1])
        assert back.sharding.memory_kind == "device"
        for found in (on_host, back):
            np.testing.assert_array_equal(backend.to_numpy(found), [2, 3])
        with pytest.raises(BackendError, match="copy to a GPU first"):
            backend.launch(backend.ops.add, on_host, 1.0)


def test_experiments_run_there_as_they_are(on_gpus: OnGpus) -> None:
    backend = on_gpus("gpu:0")
    result = run_overlap(backend, size=200, copies=1, rounds=2)
    assert result.problems == ()
    assert result.backend["devices"] == ["gpu:0"]
    data = synthetic("a test needs no more", train=60, test=10)
    losses = [
        epoch.losses
        for one in (on_gpus("gpu:0,gpu:1"), backends.load("numpy", 2))
        for params in [[get_params(one, device) for device in one.devices]]
        for epoch in train(one, params, data, Settings(1, 30))
    ]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.parametrize("number", range(30))
def test_random_programs_give_numpy_s_numbers(on_gpus: OnGpus, number: int) -> None:
    devices = 1 + number % 3
    program = draw_program(Random(f"0/{number}"), devices)
    assert fault_in(program, on_gpus(devices, "gpu")) is None


@pytest.mark.parametrize(
    ("devices", "kind", "refused"),
    [
        ("gpu:0/0,gpu:0/1", "auto", "one program at a time on a GPU, so there is no gpu:0/1"),
        ("gpu:0/1", "auto", "so there is no gpu:0/1"),
        (2, "gpu", "so there is no gpu:0/1"),
        ("cpu:1,gpu:0", "auto", "devices of one kind"),
        ("gpu:1", "auto", "no gpu:1"),
    ],
)
def test_parts_of_a_gpu_and_two_kinds_are_refused_in_a_line(
    on_gpus: OnGpus, devices: int | str, kind: str, refused: str
) -> None:
    with pytest.raises(BackendError, match=refused) as error:
        on_gpus(devices, kind, there=1)
    assert "\n" not in str(error.value)


def test_two_devices_are_cpus_where_there_is_one_gpu_and_that_is_said(on_gpus: OnGpus) -> None:
    backend = on_gpus(2, there=1)
    assert [str(device) for device in backend.devices] == ["cpu:1", "cpu:2"]
    assert "one program at a time" in backend.scheduler


def test_gpus_are_asked_for_only_where_a_package_finds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for there in (False, True):
        monkeypatch.setattr(gpus, "find_spec", lambda _, there=there: there or None)
        asked = [
            gpus.may_be_used(*wanted)
            for wanted in ((1, "auto"), (1, "gpu"), ((backends.Device("gpu", 0),), "auto"))
        ]
        assert asked == [there] * 3
        for only_cpus in ((1, "cpu"), ((backends.Device("cpu", 1),), "auto")):
            assert not gpus.may_be_used(*only_cpus)
