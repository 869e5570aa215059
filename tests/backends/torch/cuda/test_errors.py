"""What is refused, what fails, and where, on made-up GPUs: in one line, and never without an error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends import HOST, Array, Backend, BackendError, ComputationError, Device
from backends.devices import parse_device

Load = Callable[..., tuple[Backend, Any]]
EVERYWHERE = pytest.mark.parametrize("names", ["gpu:0/0,gpu:0/1", "cpu:1,gpu:0", "gpu:1,gpu:0"])
VECTOR = np.float32([1, 2])


@pytest.fixture(autouse=True)
def asynchronous(engine: str) -> None:
    if engine == "sync":
        pytest.skip("the sync engine has tests of its own")


def load_on_each(backend: Backend, x: Any = VECTOR) -> list[Array]:
    return [backend.asarray(x, device) for device in backend.devices]


REFUSED = {
    "asarray on a foreign GPU": lambda b, x: b.asarray(VECTOR, parse_device("gpu:7")),
    "asarray on a foreign CPU": lambda b, x: b.asarray(VECTOR, parse_device("cpu:7")),
    "split_and_load on a foreign GPU": lambda b, x: b.split_and_load(VECTOR, [parse_device("gpu:7")]),
    "copy to a foreign GPU": lambda b, x: b.copy_to(x, parse_device("gpu:7")),
    "copy to a foreign CPU": lambda b, x: b.copy_to(x, parse_device("cpu:7")),
    "copy into memory elsewhere": lambda b, x: b.copy_to(x, HOST, out=b.asarray(VECTOR, b.devices[0])),
    "launch without arrays": lambda b, x: b.launch(b.ops.add, 1.0, 2.0),
    "copy of no array": lambda b, x: b.copy_to(1.0, b.devices[0]),
    "allreduce of nothing": lambda b, x: b.allreduce([]),
    "allreduce of two on a device": lambda b, x: b.allreduce([x, b.asarray(VECTOR, b.devices[0])]),
    "text": lambda b, x: b.asarray(np.array(["a"]), b.devices[0]),
    "objects": lambda b, x: b.asarray(np.array([object()]), b.devices[0]),
}


@EVERYWHERE
@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_request_is_refused_in_a_line_and_the_backend_goes_on(
    on_made_up_gpus: Load, names: str, what: str
) -> None:
    backend, _ = on_made_up_gpus(names)
    x = backend.asarray(VECTOR, backend.devices[0])
    with pytest.raises(BackendError) as refused:
        REFUSED[what](backend, x)
    assert len(str(refused.value).splitlines()) == 1
    backend.waitall()
    np.testing.assert_array_equal(backend.to_numpy(backend.launch(backend.ops.add, x, 1.0)), VECTOR + 1)


@EVERYWHERE
@pytest.mark.parametrize(
    "out", [np.float32([[7, 7]]), np.float32([7]), np.float64([7, 7]), (np.float32([7, 7]),)], ids=lambda out: str(out)
)
def test_memory_of_another_shape_or_dtype_is_not_overwritten(on_made_up_gpus: Load, names: str, out: Any) -> None:
    for place in range(len(names.split(",")) + 1):
        backend, _ = on_made_up_gpus(names)
        there = (*backend.devices, HOST)[place]
        with pytest.raises(ComputationError, match="torch on"):
            backend.wait(backend.copy_to(load_on_each(backend)[0], there, out=backend.asarray(out, there)))


@EVERYWHERE
def test_a_value_that_holds_the_same_memory_twice_is_not_overwritten(on_made_up_gpus: Load, names: str) -> None:
    pair = lambda x: (x, x)  # noqa: E731
    for place in range(len(names.split(","))):
        backend, _ = on_made_up_gpus(names)
        there = backend.devices[place]
        out = backend.launch(pair, backend.asarray(VECTOR, there))
        with pytest.raises(ComputationError, match="torch on"):
            backend.wait(backend.copy_to(backend.asarray((VECTOR, VECTOR), backend.devices[0]), there, out=out))
        backend, _ = on_made_up_gpus(names)
        with pytest.raises(ComputationError, match="torch on"):
            backend.wait(tuple(backend.allreduce([backend.launch(pair, x) for x in load_on_each(backend)])))


@EVERYWHERE
@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration, SystemExit, GeneratorExit])
def test_an_error_names_the_device_that_failed(on_made_up_gpus: Load, names: str, error: type[BaseException]) -> None:
    def fail(_: object) -> None:
        raise error("made up")

    for place in range(len(names.split(","))):
        backend, _ = on_made_up_gpus(names)
        failing = backend.devices[place]
        made = backend.launch(fail, backend.asarray(VECTOR, failing))
        for device in (*backend.devices, HOST):
            made = backend.copy_to(made, device)
        with pytest.raises(ComputationError, match=rf"^torch on {failing}: {error.__name__}: made up$"):
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


@EVERYWHERE
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])
def test_arrays_of_any_order_keep_dtype_and_numbers(on_made_up_gpus: Load, names: str, dtype: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    plain = np.arange(6).reshape(2, 3).astype(dtype)
    fixed = plain.copy()
    fixed.flags.writeable = False
    for x in (plain, plain[::-1], plain.T, plain[:, ::2], fixed, plain[:0], plain[0, 0], plain.reshape(1, 2, 1, 3)):
        for device in (*backend.devices, HOST):
            loaded = backend.asarray(x, device)
            for there in (*backend.devices, HOST):
                found = backend.to_numpy(backend.copy_to(loaded, there))
                assert found.dtype == x.dtype
                np.testing.assert_array_equal(found, x)
                found[...] = 0
    assert cuda.races == []


@EVERYWHERE
def test_workers_that_cannot_begin_say_so(on_made_up_gpus: Load, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.backends.torch.cuda.made_up_cuda import Cuda

    def fail(_: Cuda, stream: object) -> None:
        raise RuntimeError(f"CUDA error: made up for {type(stream).__name__}")

    monkeypatch.setattr(Cuda, "set_stream", fail)
    backend, _ = on_made_up_gpus(names)
    device = next(device for device in backend.devices if device.kind == "gpu")
    x = backend.copy_to(backend.asarray(VECTOR, HOST), device)
    with pytest.raises(ComputationError, match=rf"^torch on {device}: RuntimeError: CUDA error: made up"):
        backend.wait(backend.launch(backend.ops.add, x, 1.0))


def test_memory_forgets_readers_that_are_done(on_made_up_gpus: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.torch.cuda.streams.FORGET_FROM", 20)
    backend, cuda = on_made_up_gpus("gpu:0/0,gpu:0/1")
    for _ in range(200):
        x = backend.asarray(VECTOR, backend.devices[0])
        backend.wait(backend.copy_to(backend.launch(backend.ops.add, x, 1.0), backend.devices[1]))
    assert len(backend._readers._ends) < 200
    assert cuda.races == []
