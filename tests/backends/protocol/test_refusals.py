"""What is seen to be wrong at the call is refused in one line, and the backend goes on; nothing wrong is computed."""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Array, Backend, BackendError, ComputationError, Device

ONES = np.ones(2, np.float32)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda backend: backend.asarray(np.ones(2, complex), backend.devices[0]),
        lambda backend: backend.asarray((ONES, np.array([None, "x"])), backend.devices[0]),
        lambda backend: backend.asarray(np.array(["a", "b"]), backend.devices[0]),
        lambda backend: backend.asarray(ONES, Device("cpu", 99)),
        lambda backend: backend.split_and_load(ONES, [Device("cpu", 99)]),
        lambda backend: backend.copy_to(backend.asarray(ONES, backend.devices[0]), Device("gpu", 0)),
        lambda backend: backend.launch(lambda: 1),
        lambda backend: backend.launch(lambda *_: 1, 1.0, (2, ())),
        lambda backend: backend.allreduce([]),
    ],
    ids=["complex", "objects", "strings", "load", "split", "copy", "nothing", "no arrays", "no sums"],
)
def test_a_request_that_cannot_be_met_is_refused_and_the_backend_goes_on(
    backend: Backend, request_of: Callable[[Backend], object]
) -> None:
    with pytest.raises(BackendError) as raised:
        request_of(backend)
    assert not isinstance(raised.value, ComputationError)
    assert "\n" not in str(raised.value)
    x = backend.asarray(ONES, backend.devices[0])
    np.testing.assert_array_equal(backend.to_numpy(backend.launch(backend.ops.add, x, 1.0)), 2 * ONES)


@pytest.mark.parametrize("length", [2, 600_001])
def test_two_sums_on_one_device_are_refused(load: Callable[[int], Backend], length: int) -> None:
    backend = load(1)
    x, y = (backend.asarray(np.ones(length, np.float32), backend.devices[0]) for _ in range(2))
    with pytest.raises(BackendError):
        backend.allreduce([x, y])
    np.testing.assert_array_equal(backend.to_numpy(x), np.ones(length))


@pytest.mark.parametrize("length", [2, 3_000_001])
def test_sums_of_bool_are_refused(load: Callable[[int], Backend], length: int) -> None:
    backend = load(2)
    with pytest.raises(BackendError):
        sums = backend.allreduce([backend.asarray(np.ones(length, bool), device) for device in backend.devices])
        backend.wait(sums[1])


@pytest.mark.parametrize("length", [2, 600_001])
def test_one_array_is_not_replaced_by_two_sums(load: Callable[[int], Backend], length: int) -> None:
    backend = load(2)
    with pytest.raises(BackendError):
        pairs = [(x, x) for x in (backend.asarray(np.ones(length, np.float32), device) for device in backend.devices)]
        backend.wait(backend.allreduce(pairs)[1])


@pytest.mark.parametrize(
    "other",
    [np.zeros((1, 2), np.float32), np.zeros(1, np.float32), np.zeros((), np.float32), np.zeros(2), np.zeros(2, "i4")],
    ids=["dimensions", "shape", "number", "float64", "int32"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_copy_is_not_cast_or_broadcast(load: Callable[[int], Backend], other: np.ndarray, turned: bool) -> None:
    backend = load(2)
    x, out = (other, ONES) if turned else (ONES, other)
    source, target = backend.asarray((x,), backend.devices[0]), backend.asarray((out,), backend.devices[1])
    with pytest.raises(BackendError):
        backend.wait(backend.copy_to(source, backend.devices[1], out=target))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("of_scores", ["float32", "float64"])
def test_labels_may_be_of_any_integer_dtype(backend: Backend, dtype: str, of_scores: str) -> None:
    x, y = (
        np.random.default_rng(9).standard_normal((9, 4)).astype(of_scores),
        np.array([0, 3, 1, 2, 0, 3, 3, 1, 2], dtype),
    )
    shifted = x - x.max(1, keepdims=True)
    expected = -(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))[np.arange(9), y].sum()
    loaded = [backend.asarray(value, backend.devices[1]) for value in (x, y)]
    found = backend.to_numpy(backend.launch(backend.ops.cross_entropy, *loaded))
    assert (found.shape, found.dtype) == ((), x.dtype)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    assert int(backend.to_numpy(backend.launch(backend.ops.count_correct, *loaded))) == (x.argmax(1) == y).sum()


@pytest.mark.parametrize(("dtype", "label"), [("uint8", 4), ("uint8", 255), ("int32", 4), ("int32", -1), ("int64", -4)])
def test_a_label_that_is_no_class_is_an_error_and_counts_as_wrong(
    load: Callable[[int], Backend], dtype: str, label: int
) -> None:
    backend = load(2)
    x, y = np.full((3, 4), -1, np.float32), np.array([0, label, 3], dtype)
    x[:, 0] = 1
    loaded = [backend.asarray(value, backend.devices[1]) for value in (x, y)]
    assert int(backend.to_numpy(backend.launch(backend.ops.count_correct, *loaded))) == 1
    differentiate = backend.ops.value_and_grad(lambda p, labels: backend.ops.cross_entropy(p[0], labels))
    with pytest.raises(ComputationError, match=r"\w*Error"):
        backend.wait(backend.launch(differentiate, (loaded[0],), loaded[1]))


def test_three_hundred_classes_are_told_apart(backend: Backend) -> None:
    x = np.zeros((2, 300), np.float32)
    x[0, 299] = x[1, 44] = 1
    loaded = [backend.asarray(value, backend.devices[0]) for value in (x, np.array([43, 44], np.uint8))]
    assert int(backend.to_numpy(backend.launch(backend.ops.count_correct, *loaded))) == 1


@pytest.mark.parametrize("shape", [(0, 3, 4), (0,), (0, 5), (2, 0, 4), (3,), (2, 3), (2, 3, 4), (2, 1, 2, 3)])
def test_rows_are_flattened_even_if_there_are_none(backend: Backend, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = backend.to_numpy(backend.launch(backend.ops.flatten, backend.asarray(x, backend.devices[1])))
    np.testing.assert_array_equal(found, x.reshape(shape[0], int(np.prod(shape[1:]))))
    assert found.shape == (shape[0], int(np.prod(shape[1:])))


def loads_of(x: np.ndarray) -> dict[str, np.ndarray]:
    read_only = x.copy()
    read_only.flags.writeable = False
    return {
        "backwards": x[::-1],
        "every other": x[:, ::2],
        "turned": x.T,
        "of Fortran": np.asfortranarray(x),
        "read-only": read_only,
        "broadcast": np.broadcast_to(x, (2, *x.shape)),
        "rows": x[:0],
        "number": x[1, 2],
        "other bytes": x.astype(x.dtype.newbyteorder()),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_arrays_may_lie_in_any_order(backend: Backend, dtype: str) -> None:
    x = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    for name, value in loads_of(x).items():
        value = np.asarray(value)
        found = backend.to_numpy(backend.asarray(value, backend.devices[2]))
        np.testing.assert_array_equal(found, value, err_msg=name)
        assert (found.dtype, found.shape) == (x.dtype, value.shape), name


def test_operands_of_two_dtypes_are_an_error(load: Callable[[int], Backend]) -> None:
    for name in ("add", "multiply", "matmul"):
        backend = load(1)
        x, y = (backend.asarray(np.ones((2, 2), dtype), backend.devices[0]) for dtype in ("f4", "f8"))
        with pytest.raises(ComputationError):
            backend.wait(backend.launch(getattr(backend.ops, name), x, y))


def test_lengths_that_are_not_the_vector_s_are_an_error(load: Callable[[int], Backend]) -> None:
    backend = load(1)

    def divide(x: Array) -> Array:
        return backend.ops.split(x, (1, 4))

    with pytest.raises(ComputationError):
        backend.wait(backend.launch(divide, backend.asarray(ONES, backend.devices[0])))
