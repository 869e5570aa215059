"""Who waits for whom on GPUs, and for no more, and what fails where; on made-up GPUs, which know
what is not done.
"""

from collections.abc import Callable
from threading import enumerate as enumerate_threads
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from backends import HOST, Array, Backend, ComputationError, Device
from backends.devices import parse_device
from tests.backends.protocol.test_errors import refuse

pytestmark = pytest.mark.parametrize("engine", ["async"])

Load = Callable[..., tuple[Backend, Any]]
VECTOR = np.ones(2, np.float32)


def ones(backend: Backend, device: Device) -> Array:
    """Load two ones on a device."""
    return backend.asarray(VECTOR, device)


OPERATORS: dict[str, Callable[[Any], Any]] = {"pow": lambda y: y.pow(2), "exp": lambda y: y.exp()}


def issue(backend: Backend, cuda: Any, operator: str, x: Array) -> Array:
    """Launch an operator, and return its result when it is in a GPU's queue."""
    result = backend.launch(OPERATORS[operator], x)
    assert operator in cuda.issued()
    return result


def until_issued(cuda: Any, operator: str) -> None:
    """Block until an operator is issued: copies from a CPU device are issued by its thread."""
    deadline = monotonic() + 20
    while operator not in cuda.issued():
        assert monotonic() < deadline, f"{operator} was never issued"
        sleep(0.001)


def test_waiting_is_for_the_value_alone(on_made_up_gpus: Load) -> None:
    backend, cuda = on_made_up_gpus("gpu:0")
    x = ones(backend, backend.devices[0])
    first = issue(backend, cuda, "exp", x)
    later = issue(backend, cuda, "pow", x)
    backend.wait(first)
    assert "exp" not in cuda.unfinished()
    assert "pow" in cuda.unfinished()
    backend.wait(later)
    assert "pow" not in cuda.unfinished()


@pytest.mark.parametrize(
    ("names", "source", "target"),
    [
        ("gpu:1,gpu:0", "gpu:1", "gpu:0"),
        ("gpu:1,gpu:0", "gpu:1", "gpu:1"),
        ("gpu:0/0,gpu:0/1", "gpu:0/0", "gpu:0/1"),
        ("cpu:1,gpu:0", "cpu:1", "gpu:0"),
        ("cpu:1,gpu:0", "gpu:0", "cpu:1"),
        ("gpu:0", str(HOST), "gpu:0"),
        ("gpu:0", "gpu:0", str(HOST)),
    ],
)
@pytest.mark.parametrize("into", ["buffer", "new memory"])
def test_a_copy_and_what_is_computed_beside_it_do_not_wait_for_each_other(
    on_made_up_gpus: Load, names: str, source: str, target: str, into: str
) -> None:
    backend, cuda = on_made_up_gpus(names)
    by_name = {str(device): device for device in (*backend.devices, HOST)}
    source_device, target_device = by_name[source], by_name[target]
    gpus = [device for device in backend.devices if device.kind == "gpu"]
    x = backend.wait(ones(backend, source_device))
    buffer = backend.wait(ones(backend, target_device)) if into == "buffer" else None
    beside = [backend.wait(ones(backend, gpu)) for gpu in gpus]

    # The copy is waited for, and what is computed beside it is not done.
    cuda.forget()
    for y in beside:
        issue(backend, cuda, "pow", y)
    copy = backend.wait(backend.copy_to(x, target_device, out=buffer))
    assert "pow" in cuda.unfinished()
    assert "copy_" not in cuda.unfinished()

    # What is computed beside the copy is waited for, and the copy is not done.
    backend.waitall()
    cuda.forget()
    copy = backend.copy_to(x, target_device, out=copy if into == "buffer" else None)
    until_issued(cuda, "copy_")
    computed = [issue(backend, cuda, "exp", y) for y in beside]
    backend.wait(tuple(computed))
    assert "exp" not in cuda.unfinished()
    # A thread that copies from or to ordinary memory may have issued nothing yet, or have
    # waited for the copy itself.
    is_by_thread = "cpu:1" in (source, target)
    assert "copy_" in cuda.unfinished() or is_by_thread
    backend.wait(copy)
    assert "copy_" not in cuda.unfinished()
    assert cuda.races == []


@pytest.mark.parametrize("names", ["gpu:1,gpu:0", "gpu:0/0,gpu:0/1"])
def test_a_copy_waits_for_who_reads_its_buffer_alone(on_made_up_gpus: Load, names: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    source, target = backend.devices
    x, buffer, other = ones(backend, source), ones(backend, target), ones(backend, target)
    issue(backend, cuda, "exp", buffer)
    issue(backend, cuda, "pow", other)
    backend.wait(backend.copy_to(x, target, out=buffer))
    assert "exp" not in cuda.unfinished()
    assert "pow" in cuda.unfinished()
    assert cuda.races == []


@pytest.mark.parametrize("names", ["gpu:1,gpu:0", "gpu:0/0,gpu:0/1", "gpu:0,cpu:1"])
def test_a_copy_waits_for_its_source_alone(on_made_up_gpus: Load, names: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    source, target = backend.devices
    x, other = ones(backend, source), ones(backend, source)
    computed = issue(backend, cuda, "exp", x)
    issue(backend, cuda, "pow", other)
    backend.wait(backend.copy_to(computed, target))
    assert "exp" not in cuda.unfinished()
    assert "pow" in cuda.unfinished()
    assert cuda.races == []


def test_waiting_for_all_is_for_loads_too(on_made_up_gpus: Load) -> None:
    backend, cuda = on_made_up_gpus("gpu:1,gpu:0")
    shards = backend.split_and_load(np.ones(4, np.float32), backend.devices)
    assert "copy_" in cuda.unfinished()
    backend.waitall()
    assert cuda.unfinished() == set()
    del shards


def test_events_serve_again_when_nothing_waits_for_them_any_more(on_made_up_gpus: Load) -> None:
    backend, cuda = on_made_up_gpus("gpu:0/0,gpu:0/1")
    for _ in range(200):
        x = ones(backend, backend.devices[0])
        backend.copy_to(backend.launch(backend.ops.add, x, 1.0), backend.devices[1])
    kept = [ones(backend, backend.devices[0]) for _ in range(10)]
    assert 10 <= cuda.events < 30
    events_of_kept = {id(x.end._event) for x in kept}
    assert len(events_of_kept) == 10
    assert cuda.races == []


def test_gpus_alone_have_no_threads(on_made_up_gpus: Load) -> None:
    before = set(enumerate_threads())
    backend, _ = on_made_up_gpus("gpu:0/0,gpu:0/1")
    backend.waitall()
    assert set(enumerate_threads()) <= before


EVERYWHERE = pytest.mark.parametrize("names", ["gpu:0/0,gpu:0/1", "cpu:1,gpu:0", "gpu:1,gpu:0"])


def on_gpu_and_host(backend: Backend) -> tuple[Array, Array]:
    """Load ones on the last GPU and on the host."""
    *_, last_gpu = (device for device in backend.devices if device.kind == "gpu")
    return ones(backend, last_gpu), ones(backend, HOST)


REFUSED: dict[str, Callable[[Backend, Array], object]] = {
    "copy into memory elsewhere": lambda b, x: b.copy_to(x, HOST, out=ones(b, b.devices[0])),
    "launch on a GPU and the host": lambda b, _: b.launch(b.ops.add, *on_gpu_and_host(b)),
    "launch on the host and a GPU": lambda b, _: b.launch(tuple, on_gpu_and_host(b)[::-1]),
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

    for position in range(2):
        backend, _ = on_made_up_gpus(names)
        failing = backend.devices[position]
        with pytest.raises(
            ComputationError, match=rf"^torch on {failing}: ZeroDivisionError: made up$"
        ):
            value = backend.launch(fail, ones(backend, failing))
            for device in (*backend.devices, HOST):
                value = backend.copy_to(value, device)
            backend.wait(value)
        with pytest.raises(ComputationError, match="refuses further work"):
            backend.waitall()


VERBS: dict[str, Callable[[Backend, Array], object]] = {
    "wait": lambda b, x: b.wait(x),
    "waitall": lambda b, x: b.waitall(),
    "to_numpy": lambda b, x: b.to_numpy(x),
    "asarray": lambda b, x: ones(b, parse_device("gpu:1")),
    "copy_to": lambda b, x: b.wait(b.copy_to(x, b.devices[-1])),
    "launch": lambda b, x: b.wait(b.launch(b.ops.add, x, 1.0)),
    "overwriting": lambda b, x: b.wait(b.copy_to(x, x.device, out=x)),
    "allreduce": lambda b, x: b.wait(b.allreduce([x, ones(b, b.devices[-1])])[1]),
}


@pytest.mark.parametrize("names", ["gpu:1,gpu:0", "gpu:1,cpu:1"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_gpu_that_breaks_down_is_named(on_made_up_gpus: Load, names: str, verb: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    broken: Device = backend.devices[0]
    x = backend.launch(backend.ops.add, ones(backend, broken), 1.0)
    backend.wait(x)

    # A kernel's error is found by whoever asks next, whatever that is.
    cuda.broken.add(broken.index)

    # If a copy between GPUs fails, CUDA does not say on which of them.
    is_between_gpus = verb in ("copy_to", "allreduce") and names == "gpu:1,gpu:0"
    named = "gpu:[01]" if is_between_gpus else "gpu:1"
    with pytest.raises(
        ComputationError, match=rf"^torch on {named}: RuntimeError: CUDA error: made up$"
    ):
        VERBS[verb](backend, x)
    with pytest.raises(ComputationError, match="refuses further work"):
        backend.waitall()


@pytest.mark.parametrize("awaited", ["MadeUpEvent", "MadeUpStream"])
def test_a_gpu_that_breaks_down_while_all_is_awaited_is_named(
    on_made_up_gpus: Load, monkeypatch: pytest.MonkeyPatch, awaited: str
) -> None:
    """The error comes when the end of the last launch is awaited, or later, when the stream is."""

    def fail(_: object) -> None:
        raise RuntimeError("CUDA error: made up")

    backend, _ = on_made_up_gpus("gpu:1")
    backend.launch(backend.ops.add, ones(backend, backend.devices[0]), 1.0)
    monkeypatch.setattr(f"tests.backends.torch.cuda.made_up_cuda.{awaited}.synchronize", fail)
    with pytest.raises(
        ComputationError, match=r"^torch on gpu:1: RuntimeError: CUDA error: made up$"
    ):
        backend.waitall()
