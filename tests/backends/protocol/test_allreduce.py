"""The sum is right, and it is on every device."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import Array, Backend, BackendError, ComputationError
from tests.backends.protocol.arrays import Load, assert_equal, drawn, full, products


def test_the_book_s_bug_of_rebinding_list_items_stays_out(backend: Backend) -> None:
    # The terms are 1, 2 and 3.
    terms = [full(backend, device + 1, 1, 2, device=device) for device in range(3)]
    terms_before = list(terms)
    for total in backend.allreduce(terms):
        assert_equal(backend, total, [[6, 6]])
    for term, term_before in zip(terms, terms_before, strict=True):
        assert term is term_before


@pytest.mark.parametrize(("length", "dtype"), [(1, "float32"), (2, "float64")])
def test_unequal_arrays_are_an_error_rather_than_broadcast(
    backend: Backend, length: int, dtype: str
) -> None:
    unequal = backend.asarray(np.ones(length, dtype), backend.devices[1])
    with pytest.raises(ComputationError, match="equal arrays"):
        for total in backend.allreduce([full(backend, 1, 2), unequal]):
            backend.wait(total)


# Backends may sum long arrays in another way than short ones: in shards, a piece on every device.
LONG = 600_001


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_long_arrays_are_summed_on_every_device(backend: Backend, count: int, dtype: str) -> None:
    generator = np.random.default_rng(count)
    terms, loaded_terms = [], []
    for device in backend.devices[:count]:
        term = generator.uniform(-100, 100, LONG).astype(dtype)
        terms.append(term)
        loaded_terms.append(backend.asarray(term, device))
    expected = np.sum(terms, axis=0)
    for total in backend.allreduce(loaded_terms):
        np.testing.assert_allclose(backend.to_numpy(total), expected, rtol=1e-5, atol=1e-4)


@settings(max_examples=6)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 5, 1000, 65_536, 262_145]), min_size=1, max_size=5)
)
def test_a_long_tuple_is_summed_array_by_array(backend: Backend, lengths: list[int]) -> None:
    arrays = tuple(np.arange(length, dtype=np.float32) % 1000 for length in (*lengths, LONG))
    terms = [backend.asarray(arrays, device) for device in backend.devices]
    for sums_on_device in backend.allreduce(terms):
        for total, array in zip(backend.to_numpy(sums_on_device), arrays, strict=True):
            np.testing.assert_array_equal(total, 3 * array)


def test_results_of_convolutions_are_summed_in_the_right_order(backend: Backend) -> None:
    # MXNet keeps channels in multiples of 16 in blocks, so the memory is not in the array's order.
    arguments = drawn((16, 64, 28, 28), (64, 64, 3, 3), (64,), low=-2)
    results = []
    for device in backend.devices:
        loaded = [backend.asarray(x, device) for x in arguments]
        results.append(backend.launch(backend.ops.conv2d, *loaded))
    # The sum takes the memory of the results, so one of them is copied before.
    copy_of_result = backend.launch(backend.ops.add, results[0], 0.0)
    expected = 3 * backend.to_numpy(copy_of_result)
    for total in backend.allreduce(results):
        np.testing.assert_allclose(backend.to_numpy(total), expected, rtol=1e-4, atol=1e-3)


def test_who_still_reads_a_long_array_reads_it_before_it_is_summed(backend: Backend) -> None:
    def copy_behind(y: Array, _: Array) -> Array:
        return backend.ops.add(y, 0.0)

    terms, copies = [], []
    for device in range(3):
        term = full(backend, 1, LONG, device=device)
        last_product = products(backend, full(backend, 1 / 700, 700, 700, device=device))
        # The copy stands behind all products of its device.
        copies.append(backend.launch(copy_behind, term, last_product))
        terms.append(term)

    sums = backend.allreduce(terms)

    for copy, total in zip(copies, sums, strict=True):
        assert_equal(backend, copy, np.ones(LONG))
        assert_equal(backend, total, np.full(LONG, 3))


@pytest.mark.parametrize("length", [2, LONG])
def test_sums_are_separate_memory_and_can_be_summed_again_and_again(
    backend: Backend, length: int
) -> None:
    values = tuple(full(backend, 1, length, device=device) for device in range(3))
    for _ in range(5):
        # Each sum over three devices makes the numbers three times as large.
        values = backend.allreduce(values)
    for total in values:
        assert_equal(backend, total, np.full(length, 3**5))


WITHOUT_SUM: dict[str, tuple[str, Callable[[Array, Array], list[Array]]]] = {
    "arrays of bool": ("bool", lambda x, y: [x, y]),
    "one array for two sums": ("float32", lambda x, y: [(x, x), (y, y)]),
    "one array for two devices": ("float32", lambda x, _: [x, x]),
}
"""The dtype of two arrays, and two values made of them that cannot be summed."""


@pytest.mark.parametrize("length", [2, 3_000_001])
@pytest.mark.parametrize("name", WITHOUT_SUM)
def test_what_has_no_sum_is_refused(load: Load, name: str, length: int) -> None:
    backend = load(2)
    dtype, values_of = WITHOUT_SUM[name]
    with pytest.raises(BackendError, match=backend.name):
        x, y = (backend.asarray(np.ones(length, dtype), device) for device in backend.devices)
        _, second_sum = backend.allreduce(values_of(x, y))
        backend.wait(second_sum)


@pytest.mark.parametrize("length", [3, LONG])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_integers_are_summed_if_the_framework_has_them(
    backend: Backend, dtype: str, length: int
) -> None:
    largest = np.iinfo(dtype).max
    parts = [np.full(length, number, dtype) for number in (largest, 2, largest)]
    try:
        terms = list(map(backend.asarray, parts, backend.devices))
    except BackendError:
        pytest.skip(f"{backend.name} has no {dtype}")
    # A sum beyond the largest number begins again at 0.
    expected = parts[0] + parts[1] + parts[2]
    for total in backend.allreduce(terms):
        assert backend.to_numpy(total).dtype == expected.dtype
        assert_equal(backend, total, expected)
