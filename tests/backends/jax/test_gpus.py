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
from tests.backends.conformance.in_this_process import fault_in
from tests.backends.protocol.arrays import assert_equal
from tests.backends.protocol.test_aliases import *  # noqa: F403
from tests.backends.protocol.test_allreduce import *  # noqa: F403
from tests.backends.protocol.test_dtypes import *  # noqa: F403
from tests.backends.protocol.test_memory import *  # noqa: F403
from tests.backends.protocol.test_units import *  # noqa: F403
from tests.backends.protocol.test_verbs import *  # noqa: F403
from tests.backends.protocol.training import losses

OnGpus = Callable[..., Backend]


@pytest.fixture
def on_gpus(monkeypatch: pytest.MonkeyPatch, require: Callable[[str], None], engine: str) -> OnGpus:
    """Return a function that loads JAX for devices, on a machine with some made-up GPUs."""
    require("jax")
    from backends.jax.kernels import device_with_pool

    def load(devices: int | str, kind: str = "auto", gpu_count: int = 4) -> Backend:
        # Each is a client on CPUs, with a number that no other test uses.
        made_up = [
            device_with_pool(100 + index, frozenset(), 2, engine == "async")
            for index in range(gpu_count)
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
@pytest.mark.parametrize("into_buffer", [False, True])
def test_a_copy_goes_to_the_host_and_back_through_its_page_locked_memory(
    on_gpus: OnGpus, devices: str, into_buffer: bool
) -> None:
    backend = on_gpus(devices)
    for device in backend.devices:
        x = backend.asarray(np.float32([1, 2]), device)
        increased = backend.launch(backend.ops.add, x, 1.0)
        buffer = backend.asarray(np.zeros(2, np.float32), HOST) if into_buffer else None

        on_host = backend.copy_to(increased, HOST, out=buffer)
        copy_back = backend.copy_to(on_host, backend.devices[-1])

        assert on_host.sharding.memory_kind == "pinned_host"
        assert backend.device_of(on_host) == HOST  # type: ignore[attr-defined]
        assert copy_back.sharding.memory_kind == "device"
        assert_equal(backend, on_host, [2, 3])
        assert_equal(backend, copy_back, [2, 3])
        with pytest.raises(BackendError, match="copy to a GPU first"):
            backend.launch(backend.ops.add, on_host, 1.0)


def test_an_experiment_runs_there_as_it_is(on_gpus: OnGpus) -> None:
    result = run_overlap(on_gpus("gpu:0"), size=200, copies=1, rounds=2)
    assert result.problems == ()
    assert result.backend["devices"] == ["gpu:0"]


def test_training_there_gives_numpy_s_losses(on_gpus: OnGpus) -> None:
    on_two_gpus = losses(on_gpus("gpu:0,gpu:1"), 60, Settings(1, 30))
    in_numpy = losses(backends.load("numpy", 2), 60, Settings(1, 30))
    np.testing.assert_allclose(on_two_gpus, in_numpy, rtol=1e-4)


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
        on_gpus(devices, kind, gpu_count=1)
    assert "\n" not in str(error.value)


def test_two_devices_are_cpus_where_there_is_one_gpu_and_that_is_said(on_gpus: OnGpus) -> None:
    backend = on_gpus(2, gpu_count=1)
    assert [str(device) for device in backend.devices] == ["cpu:1", "cpu:2"]
    assert "one program at a time" in backend.scheduler


@pytest.mark.parametrize("is_installed", [False, True])
def test_gpus_are_asked_for_only_where_a_package_finds_them(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    monkeypatch.setattr(gpus, "find_spec", lambda _: is_installed or None)
    gpu, cpu = backends.Device("gpu", 0), backends.Device("cpu", 1)
    for devices, kind in ((1, "auto"), (1, "gpu"), ((gpu,), "auto")):
        assert gpus.may_be_used(devices, kind) == is_installed
    for devices, kind in ((1, "cpu"), ((cpu,), "auto")):
        assert not gpus.may_be_used(devices, kind)
