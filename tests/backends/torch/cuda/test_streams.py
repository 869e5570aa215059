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
    return backend.asarray(VECTOR, device)


def issue(backend: Backend, cuda: Any, what: str, x: Array) -> Array:
    """Launch what the made-up GPUs call `what` in their notes, and have in their queues then."""
    result = backend.launch({"pow": lambda y: y.pow(2), "exp": lambda y: y.exp()}[what], x)
    assert what in cuda.issued()
    return result


def until_issued(cuda: Any, what: str) -> None:
    """Block until it is issued: a CPU device's thread copies from there."""
    deadline = monotonic() + 20
    while what not in cuda.issued():
        assert monotonic() < deadline, f"{what} was never issued"
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
        ("gpu:1,gpu:0", 0, 1),
        ("gpu:1,gpu:0", 0, 0),
        ("gpu:0/0,gpu:0/1", 0, 1),
        ("cpu:1,gpu:0", 0, 1),
        ("cpu:1,gpu:0", 1, 0),
        ("gpu:0", HOST, 0),
        ("gpu:0", 0, HOST),
    ],
)
@pytest.mark.parametrize("into", ["buffer", "new memory"])
def test_a_copy_and_what_is_computed_beside_it_do_not_wait_for_each_other(
    on_made_up_gpus: Load, names: str, source: int | Device, target: int | Device, into: str
) -> None:
    backend, cuda = on_made_up_gpus(names)
    start, there = (
        place if isinstance(place, Device) else backend.devices[place] for place in (source, target)
    )
    on_gpus = [device for device in backend.devices if device.kind == "gpu"]
    x, out, *others = (backend.wait(ones(backend, device)) for device in (start, there, *on_gpus))
    cuda.forget()
    for other in others:
        issue(backend, cuda, "pow", other)
    out = backend.wait(backend.copy_to(x, there, out=out if into == "buffer" else None))
    assert "pow" in cuda.unfinished()
    assert "copy_" not in cuda.unfinished()
    backend.waitall()
    cuda.forget()
    copy = backend.copy_to(x, there, out=out if into == "buffer" else None)
    until_issued(cuda, "copy_")
    backend.wait(tuple(issue(backend, cuda, "exp", other) for other in others))
    assert "exp" not in cuda.unfinished()
    # A thread that copies from or to ordinary memory may have issued nothing yet, or have
    # waited for the copy itself.
    is_by_thread = any(place.kind == "cpu" and place != HOST for place in (start, there))
    assert "copy_" in cuda.unfinished() or is_by_thread
    backend.wait(copy)
    assert "copy_" not in cuda.unfinished()
    assert cuda.races == []


@pytest.mark.parametrize(
    ("names", "awaited"),
    [
        ("gpu:1,gpu:0", "reader"),
        ("gpu:0/0,gpu:0/1", "reader"),
        ("gpu:1,gpu:0", "source"),
        ("gpu:0/0,gpu:0/1", "source"),
        ("gpu:0,cpu:1", "source"),
    ],
)
def test_a_copy_waits_for_its_source_and_for_who_reads_its_buffer_alone(
    on_made_up_gpus: Load, names: str, awaited: str
) -> None:
    backend, cuda = on_made_up_gpus(names)
    source, target = backend.devices
    x, out, other = (
        ones(backend, d) for d in (source, target, target if awaited == "reader" else source)
    )
    computed = issue(backend, cuda, "exp", out if awaited == "reader" else x)
    issue(backend, cuda, "pow", other)
    if awaited == "reader":
        backend.wait(backend.copy_to(x, target, out=out))
    else:
        backend.wait(backend.copy_to(computed, target))
    assert "exp" not in cuda.unfinished()
    assert "pow" in cuda.unfinished()
    assert cuda.races == []


def test_waiting_for_all_is_for_loads_too(on_made_up_gpus: Load) -> None:
    backend, cuda = on_made_up_gpus("gpu:1,gpu:0")
    shards = backend.split_and_load(np.ones(4, dtype=np.float32), backend.devices)
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
    assert len({id(x.end._event) for x in kept}) == 10
    assert cuda.races == []


def test_gpus_alone_have_no_threads(on_made_up_gpus: Load) -> None:
    before = set(enumerate_threads())
    backend, _ = on_made_up_gpus("gpu:0/0,gpu:0/1")
    backend.waitall()
    assert set(enumerate_threads()) <= before


EVERYWHERE = pytest.mark.parametrize("names", ["gpu:0/0,gpu:0/1", "cpu:1,gpu:0", "gpu:1,gpu:0"])


def on_gpu_and_host(backend: Backend) -> tuple[Array, Array]:
    gpu = next(device for device in reversed(backend.devices) if device.kind == "gpu")
    return ones(backend, gpu), ones(backend, HOST)


REFUSED: dict[str, Callable[[Backend, Array], object]] = {
    "copy into memory elsewhere": lambda b, x: b.copy_to(x, HOST, out=ones(b, b.devices[0])),
    "copy of no array": lambda b, _: b.copy_to(1.0, b.devices[0]),
    "launch on a GPU and the host": lambda b, _: b.launch(b.ops.add, *on_gpu_and_host(b)),
    "launch on the host and a GPU": lambda b, _: b.launch(
        lambda pair: pair, on_gpu_and_host(b)[::-1]
    ),
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
        with pytest.raises(
            ComputationError, match=rf"^torch on {failing}: ZeroDivisionError: made up$"
        ):
            made = backend.launch(fail, ones(backend, failing))
            for device in (*backend.devices, HOST):
                made = backend.copy_to(made, device)
            backend.wait(made)
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
    between = "copy_to", "allreduce"
    named = "gpu:[01]" if verb in between and backend.devices[-1].kind == "gpu" else broken
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
    from tests.backends.torch.cuda import made_up_cuda

    def fail(_: object) -> None:
        raise RuntimeError("CUDA error: made up")

    backend, _ = on_made_up_gpus("gpu:1")
    backend.launch(backend.ops.add, ones(backend, backend.devices[0]), 1.0)
    monkeypatch.setattr(getattr(made_up_cuda, awaited), "synchronize", fail)
    with pytest.raises(
        ComputationError, match=r"^torch on gpu:1: RuntimeError: CUDA error: made up$"
    ):
        backend.waitall()
