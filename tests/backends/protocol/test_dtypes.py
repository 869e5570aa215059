"""Every verb keeps an array's dtype, shape and numbers, in whatever order they lie; what it cannot
keep it refuses.
"""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends import Backend, BackendError, ComputationError

SUMMED = ("float32", "float64", "int32", "int64", "uint8")
DTYPES = (*SUMMED, "bool")

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
Order = Callable[[np.ndarray], np.ndarray]
ORDERS: list[Order] = [
    np.ascontiguousarray,
    np.asfortranarray,
    np.transpose,
    lambda x: x[(slice(None, None, -1),) * x.ndim],
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
    lambda x: np.broadcast_to(x, x.shape),
    lambda x: x.astype(x.dtype.newbyteorder()),
    # A number of NumPy, if it has no dimensions.
    lambda x: x[()],
]
orders = st.sampled_from(ORDERS)


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Make an array of small numbers, which are negative at first if the dtype has a sign."""
    count = np.prod(shape, dtype=int)
    small_numbers = np.arange(count).reshape(shape) % 7
    has_sign = dtype.startswith(("f", "i"))
    if has_sign:
        small_numbers = small_numbers - 1
    return small_numbers.astype(dtype)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Assert that an array is NumPy's, with the dtype, shape and numbers expected."""
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (expected.dtype.newbyteorder("="), expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_arrays_of_every_order_are_loaded(backend: Backend) -> None:
    # The other tests draw only a few of these pairs.
    for order in ORDERS:
        for shape in ((), (1,), (3,), (2, 3), (0, 3)):
            x = order(numbers("int32", shape))
            assert_same(backend.to_numpy(backend.asarray(x, backend.devices[0])), x)


@given(dtype=st.sampled_from(DTYPES), shape=shapes, order=orders)
def test_arrays_are_loaded_copied_and_read(
    backend: Backend, dtype: str, shape: tuple[int, ...], order: Order
) -> None:
    x = order(numbers(dtype, shape))
    first, second, _ = backend.devices
    loaded = backend.asarray((x, (x,)), first)
    buffer = backend.asarray(np.zeros(x.shape, dtype), second)
    copied = backend.copy_to(loaded, second)
    copied_to_buffer = backend.copy_to(loaded[0], second, out=buffer)
    for value in (loaded[0], copied[1][0], copied_to_buffer):
        assert_same(backend.to_numpy(value), x)
    # NumPy's array is separate memory: to write to it changes nothing.
    in_numpy = backend.to_numpy(loaded[0])
    in_numpy[...] = 0
    assert_same(backend.to_numpy(loaded[0]), x)


@given(dtype=st.sampled_from(SUMMED), shape=shapes, order=orders, count=st.integers(1, 3))
def test_arrays_are_summed(
    backend: Backend, dtype: str, shape: tuple[int, ...], order: Order, count: int
) -> None:
    x = order(numbers(dtype, shape))
    factors = range(1, count + 1)
    terms = []
    for factor, device in zip(factors, backend.devices, strict=False):
        multiple = np.asarray(factor * x).astype(dtype)
        terms.append(backend.asarray((x, multiple), device))
    sums = backend.allreduce(terms)
    assert len(sums) == count
    for total in sums:
        sum_of_x, sum_of_multiples = backend.to_numpy(total)
        assert_same(sum_of_x, (count * x).astype(dtype))
        assert_same(sum_of_multiples, (sum(factors) * x).astype(dtype))


@example(dtype="int32", shape=(5,), order=np.ascontiguousarray, count=3)
@given(
    dtype=st.sampled_from(DTYPES), shape=shapes.filter(bool), order=orders, count=st.integers(1, 3)
)
def test_rows_are_divided(
    backend: Backend, dtype: str, shape: tuple[int, ...], order: Order, count: int
) -> None:
    x = order(numbers(dtype, shape))
    loaded = backend.split_and_load(x, backend.devices[:count])
    shards = [backend.to_numpy(shard) for shard in loaded]
    fewest_rows, extra_rows = divmod(len(x), count)
    expected_lengths = [fewest_rows + 1] * extra_rows + [fewest_rows] * (count - extra_rows)
    assert [len(shard) for shard in shards] == expected_lengths
    assert_same(np.concatenate(shards), x)


@pytest.mark.parametrize(
    "x", [np.array([None]), np.array(["text"]), np.array(["2026-11-22"], dtype="datetime64[D]")]
)
def test_arrays_of_anything_but_numbers_are_refused_in_one_line(
    backend: Backend, x: np.ndarray
) -> None:
    device = backend.devices[0]
    message = f"{re.escape(backend.name)}.*{re.escape(str(x.dtype))}"
    with pytest.raises(BackendError, match=message) as refused:
        backend.asarray((np.ones(2), x), device)
    assert "\n" not in str(refused.value)
    assert not isinstance(refused.value, ComputationError)
    assert_same(backend.to_numpy(backend.asarray(np.ones(2), device)), np.ones(2))


@pytest.mark.parametrize(
    "dtype", ["float16", "int8", "int16", "uint16", "uint32", "uint64", "complex64", "complex128"]
)
def test_a_dtype_that_not_every_framework_has_is_kept_or_refused(
    backend: Backend, dtype: str
) -> None:
    x = np.arange(3).astype(dtype)
    first, second, _ = backend.devices
    refusal = None
    try:
        loaded = backend.asarray(x, first)
    except BackendError as error:
        refusal = error
        # The backend goes on.
        x = np.arange(3, dtype=np.float32)
        loaded = backend.asarray(x, first)
    assert refusal is None or dtype in str(refusal)
    assert not isinstance(refusal, ComputationError)
    assert_same(backend.to_numpy(backend.copy_to(loaded, second)), x)


VECTOR = np.ones(3)
MATRIX = np.ones((2, 3))


@pytest.mark.parametrize(
    ("out", "x"),
    [
        (MATRIX, VECTOR),
        (MATRIX, VECTOR[None]),
        (MATRIX.ravel(), MATRIX),
        (VECTOR[:1], np.ones(())),
        (VECTOR[:2], np.ones(())),
        (MATRIX[:0], VECTOR[None]),
        (VECTOR, VECTOR.astype("float32")),
        (VECTOR.astype("int32"), VECTOR.astype("float32")),
        (VECTOR.astype("uint8"), VECTOR.astype("bool")),
        ((VECTOR, VECTOR), (VECTOR, VECTOR[:2])),
        ((VECTOR, VECTOR), (VECTOR,)),
        ((VECTOR, VECTOR), MATRIX),
        (MATRIX, (VECTOR, VECTOR)),
    ],
    ids=lambda value: "tuple" if isinstance(value, tuple) else f"{value.shape} {value.dtype}",
)
def test_a_buffer_of_another_shape_or_dtype_is_an_error(
    backend: Backend, out: np.ndarray, x: np.ndarray
) -> None:
    first, second, _ = backend.devices
    target, source = backend.asarray(out, second), backend.asarray(x, first)
    with pytest.raises(BackendError, match=backend.name):
        backend.wait(backend.copy_to(source, second, out=target))
