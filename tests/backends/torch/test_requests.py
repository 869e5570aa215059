"""What PyTorch's backend is asked for: any layout of an array is loaded; what cannot be had is refused in one line."""

from collections.abc import Callable

import numpy as np
import pytest

import backends
from backends import HOST, Array, Backend, BackendError, ComputationError
from backends.devices import Device


@pytest.fixture
def backend(require: Callable[[str], None], engine: str) -> Backend:
    require("torch")
    return backends.load("torch", 2, "cpu", engine, 1)


def read_only(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


LAYOUTS = {
    "backwards": np.arange(6.0)[::-1],
    "every other": np.arange(12.0)[::-2],
    "transposed": np.arange(6).reshape(2, 3).T,
    "mirrored": np.arange(6).reshape(2, 3)[:, ::-1],
    "by columns": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "read only": read_only(np.arange(3)),
    "broadcast": np.broadcast_to(np.float32(2), (2, 3)),
    "one, backwards": np.ones(1)[::-1],
    "another order of bytes": np.arange(3, dtype=">i4"),
    "no dimensions": np.array(3, np.int64),
    "a number of NumPy": np.float32(3),
    "a truth of NumPy": np.bool_(True),
    "no rows, backwards": np.zeros((0, 3), np.uint8)[::-1],
    "16 bits": np.arange(3, dtype=np.int16),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_any_layout_are_loaded(backend: Backend, layout: str) -> None:
    x = LAYOUTS[layout]
    found = backend.to_numpy(backend.copy_to(backend.asarray(x, backend.devices[0]), backend.devices[1]))
    assert (found.dtype, found.shape) == (x.dtype.newbyteorder("="), x.shape)
    np.testing.assert_array_equal(found, x)
    found[...] = 0
    assert found.flags.writeable


def ones(backend: Backend, device: int = 0, shape: tuple[int, ...] = (2,)) -> Array:
    return backend.asarray(np.ones(shape, np.float32), backend.devices[device])


REQUESTS: dict[str, Callable[[Backend], object]] = {
    "strings": lambda backend: backend.asarray(np.array(["a"]), backend.devices[0]),
    "objects": lambda backend: backend.asarray(np.array([None]), backend.devices[0]),
    "one of a tuple": lambda backend: backend.asarray((np.zeros(2), np.array(["a"])), backend.devices[0]),
    "load elsewhere": lambda backend: backend.asarray(np.zeros(2), Device("cpu", 9)),
    "split elsewhere": lambda backend: backend.split_and_load(np.zeros(2), [backend.devices[0], Device("cpu", 9)]),
    "copy elsewhere": lambda backend: backend.copy_to(ones(backend), Device("gpu", 0)),
    "copy to the host": lambda backend: backend.copy_to(ones(backend), HOST),
    "sum nothing": lambda backend: backend.allreduce([]),
    "sum too many": lambda backend: backend.allreduce([ones(backend, place % 2) for place in range(3)]),
    "launch nothing": lambda backend: backend.launch(lambda: 1),
    "launch numbers": lambda backend: backend.launch(backend.ops.relu, 1.0),
    "launch NumPy's": lambda backend: backend.launch(backend.ops.relu, np.ones(2)),
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_wrong_request_is_refused_and_the_backend_works_on(backend: Backend, request_: str) -> None:
    with pytest.raises(BackendError) as caught:
        REQUESTS[request_](backend)
    assert not isinstance(caught.value, ComputationError)
    assert len(str(caught.value).splitlines()) == 1
    assert backend.to_numpy(backend.launch(backend.ops.add, ones(backend), 1.0)).tolist() == [2, 2]


def test_two_values_of_one_device_have_no_sum(backend: Backend, engine: str) -> None:
    if engine == "sync":
        pytest.skip("eager tensors do not know their device")
    with pytest.raises(BackendError, match="one value per device, not of cpu:1, cpu:1"):
        backend.allreduce([ones(backend), ones(backend)])
    assert backend.to_numpy(backend.allreduce([ones(backend), ones(backend, 1)])[0]).tolist() == [2, 2]


@pytest.mark.parametrize("other", [np.ones((1, 2), np.float32), np.ones(1, np.float32), np.ones(2, np.float64)])
@pytest.mark.parametrize("deep", [False, True])
def test_out_must_be_like_what_is_copied(backend: Backend, other: np.ndarray, deep: bool) -> None:
    x, out = ones(backend), backend.asarray(other, backend.devices[1])
    if deep:
        x, out = (ones(backend), x), (ones(backend, 1), out)
    with pytest.raises(ComputationError, match="equal arrays"):
        backend.wait(backend.copy_to(x, backend.devices[1], out=out))


def test_out_may_be_what_is_copied(backend: Backend) -> None:
    x = ones(backend)
    assert backend.to_numpy(backend.copy_to(x, backend.devices[0], out=x)).tolist() == [1, 1]


@pytest.mark.parametrize("overlap", ["swapped", "twice", "shifted", "transposed"])
def test_out_must_not_hold_what_is_still_to_be_read(backend: Backend, overlap: str) -> None:
    x, y, long = ones(backend), ones(backend), ones(backend, shape=(3,))
    with pytest.raises(ComputationError, match="share"):
        views = backend.launch(lambda z, w: (z[:2], z[1:], w, w.T), long, ones(backend, shape=(2, 2)))
        parts = [views[place] for place in range(4)]
        pairs = {"swapped": ((x, y), (y, x)), "twice": ((x, x), (y, y)), "shifted": parts[:2], "transposed": parts[2:]}
        source, out = pairs[overlap]
        backend.wait(backend.copy_to(source, backend.devices[0], out=out))


@pytest.mark.parametrize("length", [2, 600_000])
@pytest.mark.parametrize("overlap", ["the same twice", "a view beside it", "two devices, one memory"])
def test_values_that_share_memory_have_no_sum(backend: Backend, overlap: str, length: int) -> None:
    x, other = ones(backend, 0, (length,)), ones(backend, 1, (length,))
    with pytest.raises(ComputationError, match="share memory"):
        if overlap == "the same twice":
            values = [(x, x), (other, ones(backend, 1, (length,)))]
        elif overlap == "a view beside it":
            values = [
                backend.launch(lambda y: (y, backend.ops.flatten(y)), backend.launch(lambda y: y.view(-1, 1), x)),
                (ones(backend, 1, (length, 1)), ones(backend, 1, (length, 1))),
            ]
        else:
            values = [x, backend.launch(lambda y, z: z, other, x)]
        for total in backend.allreduce(values):
            backend.wait(total)


def test_truths_have_no_sum(backend: Backend) -> None:
    values = [backend.asarray(np.array([True]), device) for device in backend.devices]
    with pytest.raises(ComputationError, match="bool"):
        for total in backend.allreduce(values):
            backend.wait(total)
