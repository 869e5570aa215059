"""PyTorch on GPUs, whole, beside CPU devices, and as several streams: who waits for whom, on made-up GPUs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends import HOST, Array, Backend, ComputationError
from backends.devices import same_memory

PLACES = ("gpu:0/0,gpu:0/1", "cpu:1,gpu:0", "gpu:1,cpu:2,gpu:0/0,gpu:0/1,cpu:1", "gpu:0", "gpu:1,gpu:0")
NAMES = st.sampled_from(PLACES)

Loaded = tuple[Backend, Any]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "copy", "overwrite", "sum", "drop", "wait", "load"]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    max_size=30,
)


# A copy still reads what is overwritten, on streams that nothing else connects: rarely found by chance.
@example("gpu:1,gpu:0", [("copy", 0, 1), ("overwrite", 2, 0)], 1, ())
@settings(max_examples=60)
@given(NAMES, STEPS, st.integers(0, 99), st.sampled_from([(), ("copy-on-compute-queue",)]))
def test_random_programs_have_no_races_and_give_numpy_s_numbers(
    on_made_up_gpus: Callable[..., Loaded],
    names: str,
    steps: list[tuple[str, int, int]],
    seed: int,
    variants: tuple[str, ...],
) -> None:
    backend, cuda = on_made_up_gpus(names, seed, variants if "cpu" not in names else ())
    places = [*backend.devices, HOST]
    values = [
        (device, backend.asarray(np.float32([k, 1]), device), np.float32([k, 1])) for k, device in enumerate(places)
    ]
    for what, i, j in steps:
        device, x, plain = values[i % len(values)]
        other = places[j % len(places)]
        match what:
            case "load":
                values.append((other, backend.asarray(np.float32([i, j]), other), np.float32([i, j])))
            case "add":
                near = [(y, also) for there, y, also in values if same_memory(there, device)]
                y, also = near[j % len(near)]
                values.append((device, backend.launch(backend.ops.add, x, y), plain + also))
            case "copy":
                values.append((other, backend.copy_to(x, other), plain))
            case "overwrite" if i % len(values) != j % len(values):
                there, out, _ = values[j % len(values)]
                values[j % len(values)] = (there, backend.copy_to(x, there, out=out), plain)
            case "sum":
                firsts = [next(k for k, (at, *_) in enumerate(values) if at == device) for device in backend.devices]
                total = sum(values[k][2] for k in firsts)
                for k, x in zip(firsts, backend.allreduce([values[k][1] for k in firsts]), strict=True):
                    values[k] = (values[k][0], x, total)
            case "drop" if i % len(values) >= len(places):
                del values[i % len(values)]
            case "wait":
                backend.wait(x)
    for _, x, plain in values:
        np.testing.assert_allclose(backend.to_numpy(x), plain)
    backend.waitall()
    assert cuda.races == []


def test_a_value_is_let_go_when_its_readers_are_done(on_made_up_gpus: Callable[..., Loaded]) -> None:
    backend, cuda = on_made_up_gpus("gpu:0/0,gpu:0/1")
    first, second = backend.devices
    for step in range(20):
        x = backend.asarray(np.full(3, step, dtype=np.float32), first)
        y = backend.copy_to(backend.launch(backend.ops.add, x, 1.0), second)
        backend.launch(backend.ops.add, y, 1.0)
    del x, y
    backend.waitall()
    left = sum(cuda.users[memory] > 0 for memory in cuda.allocated_on)
    assert left < 40
    assert cuda.races == []


@pytest.mark.parametrize("names", PLACES)
def test_large_arrays_cross_in_pieces(on_made_up_gpus: Callable[..., Loaded], names: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    x = np.arange(2**20 + 3, dtype=np.float32)
    for device in backend.devices:
        for other in (*backend.devices, HOST):
            there = backend.copy_to(backend.asarray(x, device), other)
            np.testing.assert_array_equal(backend.to_numpy(backend.copy_to(there, device)), x)
    assert cuda.races == []


@pytest.mark.parametrize("names", PLACES)
def test_an_error_on_a_gpu_reaches_who_waits(on_made_up_gpus: Callable[..., Loaded], names: str) -> None:
    backend, _ = on_made_up_gpus(names)
    device = next(device for device in backend.devices if device.kind == "gpu")
    with pytest.raises(ComputationError, match=r"torch .*: ZeroDivisionError"):
        x = backend.launch(lambda _: 1 / 0, backend.asarray(np.ones(2, dtype=np.float32), device))
        backend.wait(backend.copy_to(x, backend.devices[-1]))


def test_items_and_tuples_cross(on_made_up_gpus: Callable[..., Loaded]) -> None:
    backend, cuda = on_made_up_gpus("cpu:1,gpu:0")
    pairs: list[Array] = [
        backend.asarray((np.float32([k]), np.float32([k, 2])), device) for k, device in enumerate(backend.devices)
    ]
    made = [backend.launch(lambda pair: (pair[0] + 1, pair[1] * 2), pair) for pair in pairs]
    totals = backend.allreduce([(pair[1], pair[0]) for pair in made])
    for total in totals:
        first, second = backend.to_numpy(total)
        assert (first.tolist(), second.tolist()) == ([2, 8], [3])
    assert cuda.races == []


def test_gradients_on_a_stream_are_numpy_s(on_made_up_gpus: Callable[..., Loaded]) -> None:
    backend, _ = on_made_up_gpus("gpu:0/0,gpu:0/1")
    a, b = np.float32([[1, 2], [3, 4]]), np.float32([[1, 1], [0, 1]])

    def loss(parameters: tuple[Array, ...], x: Array) -> Array:
        return backend.ops.total(backend.ops.matmul(x, parameters[0]))

    for device in backend.devices:
        parameters = backend.asarray((a,), device)
        step = backend.launch(backend.ops.value_and_grad(loss), parameters, backend.asarray(b, device))
        np.testing.assert_allclose(backend.to_numpy(step[1][0]), b.T @ np.ones((2, 2)))


def test_memory_shared_by_a_view_is_let_go_when_its_readers_are_done(on_made_up_gpus: Callable[..., Loaded]) -> None:
    backend, cuda = on_made_up_gpus("gpu:0")
    (device,) = backend.devices
    for step in range(5):
        x = backend.asarray(np.arange(4, dtype=np.float32) + step, device)
        half = backend.launch(lambda both: backend.ops.split(both, (2, 2))[1], x)
        y = backend.launch(backend.ops.multiply, half, 2.0)
        del x, half
        np.testing.assert_array_equal(backend.to_numpy(y), np.float32([4, 6]) + 2 * step)
    assert cuda.races == []


def test_overwritten_memory_is_let_go_when_its_readers_are_done(on_made_up_gpus: Callable[..., Loaded]) -> None:
    backend, cuda = on_made_up_gpus("gpu:1,gpu:0")
    first = backend.devices[0]
    for step in range(5):
        x, y = (backend.asarray(np.full(2, step, dtype=np.float32), device) for device in backend.devices)
        out = backend.copy_to(y, first, out=backend.launch(backend.ops.add, x, 1.0))
        z = backend.copy_to(out, first)
        del x, y, out
        np.testing.assert_array_equal(backend.to_numpy(z), np.full(2, step, dtype=np.float32))
    assert cuda.races == []
