"""Who waits for whom on GPUs, and for no more than that; on made-up GPUs, which know what is not done yet."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from backends import HOST, Array, Backend, Device

pytestmark = pytest.mark.parametrize("engine", ["async"])

Load = Callable[..., tuple[Backend, Any]]
BETWEEN = pytest.mark.parametrize(
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
INTO = pytest.mark.parametrize("into", ["buffer", "new memory"])


def ones(backend: Backend, device: Device) -> Array:
    return backend.asarray(np.ones(2, dtype=np.float32), device)


def issue(backend: Backend, cuda: Any, what: str, x: Array) -> Array:
    """Launch what the made-up GPUs call `what` in their notes; return when the GPU has it in its queue."""
    result = backend.launch({"pow": lambda y: y.pow(2), "exp": lambda y: y.exp()}[what], x)
    until_issued(cuda, what)
    return result


def until_issued(cuda: Any, what: str) -> None:
    deadline = monotonic() + 20
    while what not in cuda.issued():
        assert monotonic() < deadline, f"{what} was never issued"
        sleep(0.001)


def prepared(
    backend: Backend, cuda: Any, source: int | Device, target: int | Device
) -> tuple[Array, Array, list[Array], Device]:
    """Return a value at the source, one at the target, one on each GPU, and the target; what made them is done."""
    start, there = (place if isinstance(place, Device) else backend.devices[place] for place in (source, target))
    on_gpus = [ones(backend, device) for device in backend.devices if device.kind == "gpu"]
    x, out, *others = (backend.wait(value) for value in (ones(backend, start), ones(backend, there), *on_gpus))
    cuda.forget()
    return x, out, others, there


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


@BETWEEN
@INTO
def test_a_copy_does_not_wait_for_what_is_computed_beside_it(
    on_made_up_gpus: Load, names: str, source: int | Device, target: int | Device, into: str
) -> None:
    backend, cuda = on_made_up_gpus(names)
    x, out, others, there = prepared(backend, cuda, source, target)
    for other in others:
        issue(backend, cuda, "pow", other)
    backend.wait(backend.copy_to(x, there, out=out if into == "buffer" else None))
    assert "pow" in cuda.unfinished()
    assert "copy_" not in cuda.unfinished()
    assert cuda.races == []


@BETWEEN
@INTO
def test_what_is_computed_later_does_not_wait_for_a_copy_beside_it(
    on_made_up_gpus: Load, names: str, source: int | Device, target: int | Device, into: str
) -> None:
    backend, cuda = on_made_up_gpus(names)
    x, out, others, there = prepared(backend, cuda, source, target)
    copy = backend.copy_to(x, there, out=out if into == "buffer" else None)
    until_issued(cuda, "copy_")
    backend.wait(tuple(issue(backend, cuda, "pow", other) for other in others))
    assert "pow" not in cuda.unfinished()
    # A worker that copies to the host's ordinary memory waits for the copy itself.
    assert "copy_" in cuda.unfinished() or (there.kind == "cpu" and there != HOST)
    backend.wait(copy)
    assert "copy_" not in cuda.unfinished()
    assert cuda.races == []


@pytest.mark.parametrize("names", ["gpu:1,gpu:0", "gpu:0/0,gpu:0/1"])
def test_an_overwriting_copy_waits_for_readers_alone(on_made_up_gpus: Load, names: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    source, target = backend.devices
    x, out, other = ones(backend, source), ones(backend, target), ones(backend, target)
    issue(backend, cuda, "exp", out)
    issue(backend, cuda, "pow", other)
    backend.wait(backend.copy_to(x, target, out=out))
    assert "exp" not in cuda.unfinished()
    assert "pow" in cuda.unfinished()
    assert cuda.races == []


@pytest.mark.parametrize("names", ["gpu:1,gpu:0", "gpu:0/0,gpu:0/1", "gpu:0,cpu:1"])
def test_a_copy_waits_for_its_source_and_not_for_what_is_computed_after_it(on_made_up_gpus: Load, names: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    source, target = backend.devices
    x = issue(backend, cuda, "exp", ones(backend, source))
    issue(backend, cuda, "pow", ones(backend, source))
    backend.wait(backend.copy_to(x, target))
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
