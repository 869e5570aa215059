"""PyTorch on CPUs: worker threads make a queue of an eager framework. Decided by events, not by the clock."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

import backends
from backends import Array, Backend


@pytest.fixture
def torch_backend(require: Callable[[str], None]) -> Backend:
    require("torch")
    return backends.load("torch", 2, "cpu", "async", 1)


def ones(backend: Backend, device: int) -> Array:
    return backend.asarray(np.ones(2, dtype=np.float32), backend.devices[device])


def behind(gate: threading.Event) -> Callable[[Array], Array]:
    def identity(x: Array) -> Array:
        gate.wait()
        return x

    return identity


def test_launch_returns_before_the_computation(torch_backend: Backend, gate: threading.Event) -> None:
    y = torch_backend.launch(behind(gate), ones(torch_backend, 0))
    assert not gate.is_set()
    gate.set()
    assert torch_backend.to_numpy(y).sum() == 2


def test_waiting_for_one_device_is_not_waiting_for_another(torch_backend: Backend, gate: threading.Event) -> None:
    torch_backend.launch(behind(gate), ones(torch_backend, 0))
    y = torch_backend.launch(torch_backend.ops.add, ones(torch_backend, 1), 1.0)
    assert torch_backend.to_numpy(y).sum() == 4
    assert not gate.is_set()


def test_copies_go_on_while_both_devices_compute(torch_backend: Backend, gate: threading.Event) -> None:
    x = ones(torch_backend, 0)
    for device in (0, 1):
        torch_backend.launch(behind(gate), ones(torch_backend, device))
    assert torch_backend.to_numpy(torch_backend.copy_to(x, torch_backend.devices[1])).sum() == 2
    assert not gate.is_set()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", ["async", "sync"])
def test_every_thread_that_computes_keeps_to_its_share_of_cores(
    require: Callable[[str], None], threads: int, engine: str
) -> None:
    require("torch")
    backend = backends.load("torch", 2, "cpu", engine, threads)
    if engine == "async":
        # PyTorch gives a thread that has yet to compute the number that was set last, anywhere.
        backends.load("torch", 2, "cpu", engine, threads + 1)
    import torch

    for device in (0, 1):
        counted = backend.launch(lambda x: x * torch.get_num_threads(), ones(backend, device))
        np.testing.assert_array_equal(backend.to_numpy(counted), [threads, threads])


@pytest.mark.parametrize("workers", [1, 2])
def test_dropping_a_backend_ends_its_threads(require: Callable[[str], None], workers: int) -> None:
    require("torch")
    before = set(threading.enumerate())
    backend: Backend | None = backends.load("torch", 2, "cpu", "async", 1, workers)
    assert backend is not None
    backend.wait(backend.launch(backend.ops.relu, ones(backend, 0)))
    started = set(threading.enumerate()) - before
    assert len(started) == 2 * (workers + 1)
    del backend
    for thread in started:
        thread.join(timeout=60)
        assert not thread.is_alive()
