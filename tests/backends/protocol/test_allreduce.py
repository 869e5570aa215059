"""The sum is right, and it is on every device."""

from collections.abc import Callable
from operator import is_

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import Array, Backend, BackendError, ComputationError
from tests.backends.protocol.arrays import Load, assert_equal, full, products


def test_the_book_s_bug_of_rebinding_list_items_stays_out(backend: Backend) -> None:
    mine = [full(backend, place + 1, 1, 2, device=place) for place in range(3)]
    before = list(mine)
    for total in backend.allreduce(mine):
        assert_equal(backend, total, [[6, 6]])
    assert all(map(is_, mine, before))


def test_results_still_being_computed_are_summed(backend: Backend) -> None:
    # Each multiplication makes the numbers 20 times as large.
    made = [products(backend, full(backend, 0.1, 200, 200, device=place)) for place in range(3)]
    for total in backend.allreduce(made):
        np.testing.assert_allclose(
            backend.to_numpy(total), np.full((200, 200), 0.3 * 20.0**10), rtol=1e-4
        )


@pytest.mark.parametrize(
    "other",
    [np.ones((1,), dtype=np.float32), np.ones((2,), dtype=np.float64)],
    ids=["shape", "dtype"],
)
def test_unequal_arrays_are_an_error_rather_than_broadcast(
    backend: Backend, other: np.ndarray
) -> None:
    terms = [np.ones((2,), dtype=np.float32), other]
    with pytest.raises(ComputationError, match="equal arrays"):
        for total in backend.allreduce(
            [backend.asarray(x, d) for x, d in zip(terms, backend.devices, strict=False)]
        ):
            backend.wait(total)


# Backends may sum long arrays in another way than short ones: in shards, a piece on every device.
LONG = 600_001


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_long_arrays_are_summed_on_every_device(backend: Backend, count: int, dtype: str) -> None:
    generator = np.random.default_rng(count)
    terms = [generator.uniform(-100, 100, LONG).astype(dtype) for _ in range(count)]
    loaded = [backend.asarray(x, device) for x, device in zip(terms, backend.devices, strict=False)]
    for found in map(backend.to_numpy, backend.allreduce(loaded)):
        np.testing.assert_allclose(found, np.sum(terms, axis=0), rtol=1e-5, atol=1e-4)


@settings(max_examples=10)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 5, 1000, 65_536, 262_145]), min_size=1, max_size=5)
)
def test_a_long_tuple_is_summed_array_by_array(backend: Backend, lengths: list[int]) -> None:
    lengths = [*lengths, LONG]
    terms = tuple(np.arange(length, dtype=np.float32) % 1000 for length in lengths)
    for total in backend.allreduce([backend.asarray(terms, device) for device in backend.devices]):
        for found, term in zip(backend.to_numpy(total), terms, strict=True):
            np.testing.assert_array_equal(found, 3 * term)


def test_results_of_convolutions_are_summed_in_the_right_order(backend: Backend) -> None:
    # With channels in multiples of 16 MXNet keeps them in blocks; a view of that memory is not the
    # array.
    generator = np.random.default_rng(0)
    shapes = (16, 64, 28, 28), (64, 64, 3, 3)
    images, weight = (generator.standard_normal(shape, np.float32) for shape in shapes)
    bias = np.zeros(64, dtype=np.float32)
    made = [
        backend.launch(
            backend.ops.conv2d, *(backend.asarray(x, device) for x in (images, weight, bias))
        )
        for device in backend.devices
    ]
    alone = backend.to_numpy(backend.launch(backend.ops.add, made[0], 0.0))
    for total in backend.allreduce(made):
        np.testing.assert_allclose(backend.to_numpy(total), 3 * alone, rtol=1e-4, atol=1e-3)


def test_arrays_that_share_their_memory_are_summed(backend: Backend) -> None:
    x = np.arange(2 * LONG, dtype=np.float32) % 1000
    halves = [
        backend.launch(
            lambda whole: backend.ops.split(whole, (LONG, LONG)), backend.asarray(x, device)
        )
        for device in backend.devices
    ]
    for total in backend.allreduce(halves):
        np.testing.assert_array_equal(np.concatenate(backend.to_numpy(total)), 3 * x)


def test_who_still_reads_a_long_array_reads_it_before_it_is_summed(backend: Backend) -> None:
    loaded = [full(backend, 1, LONG, device=place) for place in range(3)]
    busy = [products(backend, full(backend, 1 / 700, 700, 700, device=place)) for place in range(3)]
    # Behind the products, in the order of the device.
    copies = [
        backend.launch(lambda y, _: backend.ops.add(y, 0.0), *pair)
        for pair in zip(loaded, busy, strict=True)
    ]
    for copy, total in zip(copies, backend.allreduce(loaded), strict=True):
        assert_equal(backend, copy, np.ones(LONG))
        assert_equal(backend, total, np.full(LONG, 3))


@pytest.mark.parametrize("length", [2, LONG])
def test_sums_are_separate_memory_and_can_be_summed_again_and_again(
    backend: Backend, length: int
) -> None:
    values = tuple(full(backend, 1, length, device=place) for place in range(3))
    for _ in range(5):
        values = backend.allreduce(values)
    for total in values:
        assert_equal(backend, total, np.full(length, 3**5))


WITHOUT_SUM: dict[str, tuple[type, Callable[[Array, Array], list[Array]]]] = {
    "arrays of bool": (bool, lambda x, y: [x, y]),
    "one array for two sums": (np.float32, lambda x, y: [(x, x), (y, y)]),
    "one array for two devices": (np.float32, lambda x, _: [x, x]),
}


@pytest.mark.parametrize("length", [2, 3_000_001])
@pytest.mark.parametrize("what", WITHOUT_SUM)
def test_what_has_no_sum_is_refused(load: Load, what: str, length: int) -> None:
    dtype, values = WITHOUT_SUM[what]
    backend = load(2)
    with pytest.raises(BackendError, match=backend.name):
        xs = [backend.asarray(np.ones(length, dtype), device) for device in backend.devices]
        backend.wait(backend.allreduce(values(*xs))[1])
