"""The sum is right, and it is on every device."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Backend, ComputationError

arrays = st.tuples(
    st.sampled_from(["float32", "float64", "int32", "int64"]),
    st.lists(st.integers(0, 9), min_size=0, max_size=3),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)


@given(drawn=arrays)
def test_every_device_gets_numpy_s_sum(backend: Backend, drawn: tuple[str, list[int], int, int]) -> None:
    dtype, shape, count, seed = drawn
    generator = np.random.default_rng(seed)
    terms = [np.asarray(generator.uniform(-100, 100, shape)).astype(dtype) for _ in range(count)]
    devices = backend.devices[:count]
    sums = backend.allreduce([backend.asarray(x, device) for x, device in zip(terms, devices, strict=True)])
    assert len(sums) == count
    for found in map(backend.to_numpy, sums):
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found, np.sum(terms, axis=0).astype(dtype), rtol=1e-5, atol=1e-4)


def test_the_book_s_bug_of_rebinding_list_items_stays_out(backend: Backend) -> None:
    mine = [backend.asarray(np.full((1, 2), i + 1, dtype=np.float32), d) for i, d in enumerate(backend.devices)]
    given_items = list(mine)
    sums = backend.allreduce(mine)
    assert all(item is given for item, given in zip(mine, given_items, strict=True))
    for total in sums:
        np.testing.assert_array_equal(backend.to_numpy(total), [[6, 6]])


def test_sums_on_different_devices_are_different_memory(backend: Backend) -> None:
    ones = np.ones(2, dtype=np.float32)
    sums = backend.allreduce([backend.asarray((ones,), device) for device in backend.devices])
    step = backend.asarray((ones,), backend.devices[0])
    backend.wait(backend.launch(backend.ops.sgd, sums[0], step, 1.0))
    np.testing.assert_array_equal(backend.to_numpy(sums[1])[0], [3, 3])


def test_tuples_are_summed_array_by_array(backend: Backend) -> None:
    parameters = (np.ones((2, 2), dtype=np.float32), np.arange(3, dtype=np.float32))
    sums = backend.allreduce([backend.asarray(parameters, device) for device in backend.devices])
    for total in sums:
        weight, bias = backend.to_numpy(total)
        np.testing.assert_array_equal(weight, 3 * parameters[0])
        np.testing.assert_array_equal(bias, 3 * parameters[1])


def test_results_still_being_computed_are_summed(backend: Backend) -> None:
    x = np.full((200, 200), 0.1, dtype=np.float32)
    made = []
    for device in backend.devices:
        y = loaded = backend.asarray(x, device)
        for _ in range(10):
            y = backend.launch(backend.ops.matmul, y, loaded)
        made.append(y)
    expected = x
    for _ in range(10):
        expected = expected @ x
    for total in backend.allreduce(made):
        np.testing.assert_allclose(backend.to_numpy(total), 3 * expected, rtol=1e-4)


@pytest.mark.parametrize(
    "other", [np.ones((1,), dtype=np.float32), np.ones((2,), dtype=np.float64)], ids=["shape", "dtype"]
)
def test_unequal_arrays_are_an_error_rather_than_broadcast(backend: Backend, other: np.ndarray) -> None:
    terms = [np.ones((2,), dtype=np.float32), other]
    with pytest.raises(ComputationError, match="equal arrays"):
        for total in backend.allreduce([backend.asarray(x, d) for x, d in zip(terms, backend.devices, strict=False)]):
            backend.wait(total)
