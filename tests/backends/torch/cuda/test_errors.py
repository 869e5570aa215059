"""What is refused, what fails, and where, on made-up GPUs: in one line, and never without an error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends import HOST, Array, Backend, ComputationError, Device
from backends.devices import parse_device
from tests.backends.protocol.test_errors import refuse

pytestmark = pytest.mark.parametrize("engine", ["async"])

Load = Callable[..., tuple[Backend, Any]]
EVERYWHERE = pytest.mark.parametrize("names", ["gpu:0/0,gpu:0/1", "cpu:1,gpu:0", "gpu:1,gpu:0"])
VECTOR = np.float32([1, 2])


def on_gpu_and_host(backend: Backend) -> tuple[Array, Array]:
    gpu = next(device for device in reversed(backend.devices) if device.kind == "gpu")
    return backend.asarray(VECTOR, gpu), backend.asarray(VECTOR, HOST)


REFUSED: dict[str, Callable[[Backend, Array], object]] = {
    "copy into memory elsewhere": lambda b, x: b.copy_to(x, HOST, out=b.asarray(VECTOR, b.devices[0])),
    "copy of no array": lambda b, _: b.copy_to(1.0, b.devices[0]),
    "launch on a GPU and the host": lambda b, _: b.launch(b.ops.add, *on_gpu_and_host(b)),
    "launch on the host and a GPU": lambda b, _: b.launch(lambda pair: pair, on_gpu_and_host(b)[::-1]),
    "sum of a value of several devices": lambda b, x: b.allreduce([on_gpu_and_host(b), (x, x)]),
}
"""What the protocol's tests do not ask."""


@EVERYWHERE
@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_request_is_refused_in_one_line_and_the_backend_goes_on(
    on_made_up_gpus: Load, names: str, what: str
) -> None:
    backend, _ = on_made_up_gpus(names)
    refuse(backend, REFUSED[what])


@EVERYWHERE
def test_an_error_names_the_device_that_failed(on_made_up_gpus: Load, names: str) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("made up")

    for place in range(len(names.split(","))):
        backend, _ = on_made_up_gpus(names)
        failing = backend.devices[place]
        made = backend.launch(fail, backend.asarray(VECTOR, failing))
        for device in (*backend.devices, HOST):
            made = backend.copy_to(made, device)
        with pytest.raises(ComputationError, match=rf"^torch on {failing}: ZeroDivisionError: made up$"):
            backend.wait(made)
        with pytest.raises(ComputationError, match="refuses further work"):
            backend.waitall()


VERBS: dict[str, Callable[[Backend, Array], object]] = {
    "wait": lambda backend, x: backend.wait(x),
    "waitall": lambda backend, x: backend.waitall(),
    "to_numpy": lambda backend, x: backend.to_numpy(x),
    "asarray": lambda backend, x: backend.asarray(VECTOR, parse_device("gpu:1")),
    "copy_to": lambda backend, x: backend.wait(backend.copy_to(x, backend.devices[-1])),
    "launch": lambda backend, x: backend.wait(backend.launch(backend.ops.add, x, 1.0)),
    "overwriting": lambda backend, x: backend.wait(backend.copy_to(x, x.device, out=x)),
    "allreduce": lambda backend, x: backend.wait(
        backend.allreduce([x, backend.asarray(VECTOR, backend.devices[-1])])[1]
    ),
}


@pytest.mark.parametrize("names", ["gpu:1,gpu:0", "gpu:1,cpu:1"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_gpu_that_breaks_down_is_named(on_made_up_gpus: Load, names: str, verb: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    broken: Device = backend.devices[0]
    x = backend.launch(backend.ops.add, backend.asarray(VECTOR, broken), 1.0)
    backend.wait(x)
    # A kernel's error is found by whoever asks next, whatever that is.
    cuda.broken.add(broken.index)
    # If a copy between GPUs fails, CUDA does not say on which of them.
    between = "copy_to", "allreduce"
    named = "gpu:[01]" if verb in between and backend.devices[-1].kind == "gpu" else broken
    with pytest.raises(ComputationError, match=rf"^torch on {named}: RuntimeError: CUDA error: made up$"):
        VERBS[verb](backend, x)
    with pytest.raises(ComputationError, match="refuses further work"):
        backend.waitall()


@pytest.mark.parametrize("awaited", ["MadeUpEvent", "MadeUpStream"])
def test_a_gpu_that_breaks_down_while_all_is_awaited_is_named(
    on_made_up_gpus: Load, monkeypatch: pytest.MonkeyPatch, awaited: str
) -> None:
    from tests.backends.torch.cuda import made_up_cuda

    def fail(_: object) -> None:
        raise RuntimeError("CUDA error: made up")

    backend, _ = on_made_up_gpus("gpu:1")
    backend.launch(backend.ops.add, backend.asarray(VECTOR, backend.devices[0]), 1.0)
    monkeypatch.setattr(getattr(made_up_cuda, awaited), "synchronize", fail)
    with pytest.raises(ComputationError, match=r"^torch on gpu:1: RuntimeError: CUDA error: made up$"):
        backend.waitall()


def test_memory_forgets_readers_that_are_done(on_made_up_gpus: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.torch.cuda.streams.FORGET_FROM", 20)
    backend, cuda = on_made_up_gpus("gpu:0/0,gpu:0/1")
    for _ in range(200):
        x = backend.asarray(VECTOR, backend.devices[0])
        backend.wait(backend.copy_to(backend.launch(backend.ops.add, x, 1.0), backend.devices[1]))
    assert len(backend.readers._ends) < 200
    assert cuda.races == []
