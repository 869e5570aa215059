"""Failures: any class of exception is one, it names the device that failed, and its traceback stays short."""

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import backends
from backends import Array, Backend, ComputationError
from backends.devices import Device
from backends.torch.streams.future import Failure
from backends.torch.streams.worker import WorkerStream, submit_collective

FIRST, SECOND = Device("cpu", 1), Device("cpu", 2)


@pytest.fixture(autouse=True)
def torch_is_there(require: Callable[[str], None]) -> None:
    require("torch")


def ones(backend: Backend, device: int = 0) -> Array:
    return backend.asarray(np.ones(3, dtype=np.float32), backend.devices[device])


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("verb", ["wait", "waitall", "to_numpy"])
def test_a_failure_names_the_device_that_failed(verb: str, workers: int) -> None:
    backend = backends.load("torch", 3, "cpu", "async", 1, workers)
    x = backend.launch(raising(ValueError("no")), ones(backend, 1))
    for device in (2, 0):
        x = backend.copy_to(x, backend.devices[device])
        x = backend.launch(backend.ops.add, x, ones(backend, device))
    with pytest.raises(ComputationError, match="torch on cpu:2: ValueError: no"):
        getattr(backend, verb)(*() if verb == "waitall" else (x,))


def test_thousands_of_dependents_make_no_long_traceback() -> None:
    backend = backends.load("torch", 2, "cpu", "async", 1)
    x = backend.launch(raising(ValueError("no")), ones(backend))
    for number in range(5000):
        x = backend.copy_to(x, backend.devices[1]) if number % 500 == 0 else backend.launch(backend.ops.add, x, 1.0)
    with pytest.raises(ComputationError) as caught:
        backend.waitall()
    assert len("".join(traceback.format_exception(caught.value)).splitlines()) < 60


def test_what_is_no_array_cannot_be_read(engine: str) -> None:
    backend = backends.load("torch", 1, "cpu", engine, 1)
    with pytest.raises(ComputationError, match="no attribute"):
        backend.to_numpy(backend.launch(lambda _: 1.0, ones(backend)))


def test_a_worker_that_cannot_be_prepared_fails_its_tasks() -> None:
    broken = WorkerStream(FIRST, "broken", set(), raising(OSError("no such core")))
    sound = WorkerStream(SECOND, "sound", set(), lambda: None)
    futures = [broken.submit(int), *submit_collective([sound, broken], lambda *_: None, (1, 2))]
    for future in futures:
        with pytest.raises(Failure, match="no such core") as caught:
            future.result()
        assert caught.value.device == FIRST
    broken.barrier()()
    sound.barrier()()
