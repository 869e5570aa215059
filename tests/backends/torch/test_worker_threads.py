"""PyTorch on CPUs: worker threads make a queue of an eager framework, and failures name a device
and stay short.
"""

import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import backends
from backends import Array, Backend, ComputationError
from tests.backends.protocol.arrays import assert_equal, computed, full, wait_by


@pytest.fixture(autouse=True)
def torch_is_there(require: Callable[[str], None]) -> None:
    require("torch")


def test_nothing_waits_for_what_it_does_not_need(gate: threading.Event) -> None:
    def wait_for_gate(x: Array) -> Array:
        gate.wait()
        return x

    backend = backends.load("torch", 2, "cpu", "async", 1)
    x, y = full(backend, 1, 2), full(backend, 1, 2, device=1)

    # The first device is blocked, and the second one computes.
    blocked = backend.launch(wait_for_gate, x)
    assert_equal(backend, backend.launch(backend.ops.add, y, 1.0), [2, 2])

    # Both devices are blocked, and a copy goes from one to the other.
    backend.launch(wait_for_gate, y)
    assert_equal(backend, backend.copy_to(x, backend.devices[1]), [1, 1])

    assert not gate.is_set()
    gate.set()
    assert_equal(backend, blocked, [1, 1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", ["async", "sync"])
def test_every_thread_that_computes_keeps_to_its_share_of_cores(threads: int, engine: str) -> None:
    import torch

    backend = backends.load("torch", 2, "cpu", engine, threads)
    if engine == "async":
        # PyTorch gives a thread that has yet to compute the number that was set last, anywhere.
        backends.load("torch", 2, "cpu", engine, threads + 1)

    def multiply_by_threads(x: Array) -> Array:
        return x * torch.get_num_threads()

    for device in range(2):
        x = full(backend, 1, 2, device=device)
        assert_equal(backend, backend.launch(multiply_by_threads, x), [threads, threads])


@pytest.mark.parametrize("workers", [1, 2])
def test_dropping_a_backend_ends_its_threads(workers: int) -> None:
    devices = 2
    threads_before = set(threading.enumerate())
    backend: Backend | None = backends.load("torch", devices, "cpu", "async", 1, workers)
    assert backend is not None
    backend.wait(full(backend, 1, 2))
    started = set(threading.enumerate()) - threads_before
    # Beside its workers each device has a thread that copies.
    assert len(started) == devices * (workers + 1)
    del backend
    for thread in started:
        thread.join(timeout=60)
        assert not thread.is_alive()


def fail(*_: Any) -> Any:
    """Fail, whatever the arguments are."""
    raise ValueError("no")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("verb", ["wait", "waitall", "to_numpy"])
def test_a_failure_names_the_device_that_failed(verb: str, workers: int) -> None:
    backend = backends.load("torch", 3, "cpu", "async", 1, workers)
    x = backend.launch(fail, full(backend, 1, 2, device=1))
    # What other devices compute from the failed value fails too.
    for device in (2, 0):
        copy = backend.copy_to(x, backend.devices[device])
        x = backend.launch(backend.ops.add, copy, 1.0)
    with pytest.raises(ComputationError, match="torch on cpu:2: ValueError: no"):
        wait_by(backend, verb, x)


def test_thousands_of_dependents_make_no_long_traceback() -> None:
    backend = backends.load("torch", 2, "cpu", "async", 1)
    x = backend.launch(fail, full(backend, 1, 2))
    for number in range(5000):
        if number % 500 == 0:
            x = backend.copy_to(x, backend.devices[1])
        else:
            x = backend.launch(backend.ops.add, x, 1.0)
    with pytest.raises(ComputationError) as caught:
        backend.waitall()
    text = "".join(traceback.format_exception(caught.value))
    assert len(text.splitlines()) < 60


def test_what_is_no_array_cannot_be_read(engine: str) -> None:
    backend = backends.load("torch", 1, "cpu", engine, 1)
    with pytest.raises(ComputationError, match="no attribute"):
        computed(backend, lambda _: 1.0, full(backend, 1, 2))
