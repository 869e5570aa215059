"""Every algorithm gives NumPy's sum on every device, whatever the length, the dtype and the number of devices."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Array, Backend, ComputationError
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS, Allreduce
from tests.backends.protocol.test_errors import failing

algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
terms_drawn = st.tuples(
    st.sampled_from(["float32", "int64"]), st.integers(1, 4), st.integers(0, 40), st.integers(0, 2**32 - 1)
)


def load_all(backend: Backend, terms: list[np.ndarray]) -> list[Array]:
    return [backend.asarray(x, device) for x, device in zip(terms, backend.devices, strict=False)]


@pytest.fixture
def four(load_any: Callable[[int], Backend]) -> Backend:
    return load_any(4)


@algorithms
@given(drawn=terms_drawn)
def test_every_device_gets_numpy_s_sum(four: Backend, algorithm: Allreduce, drawn: tuple[str, int, int, int]) -> None:
    dtype, count, length, seed = drawn
    generator = np.random.default_rng(seed)
    terms = [generator.uniform(-100, 100, length).astype(dtype) for _ in range(count)]
    sums = algorithm(four, load_all(four, terms))
    assert len(sums) == count
    for found in map(four.to_numpy, sums):
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found, np.sum(terms, axis=0).astype(dtype), rtol=1e-5, atol=1e-4)


@algorithms
@pytest.mark.parametrize("count", [1, 3, 4])
def test_sums_can_be_overwritten_apart_from_each_other(four: Backend, algorithm: Allreduce, count: int) -> None:
    vectors = load_all(four, [np.arange(7, dtype=np.float32)] * count)
    given_vectors = list(vectors)
    sums = list(algorithm(four, vectors))
    # The caller's list is left alone.
    assert all(vector is given_one for vector, given_one in zip(vectors, given_vectors, strict=True))
    for i, device in enumerate(four.devices[:count]):
        sums[i] = four.copy_to(four.asarray(np.full(7, -1, dtype=np.float32), device), device, out=sums[i])
        four.wait(sums[i])
        for found in map(four.to_numpy, sums[i + 1 :]):
            np.testing.assert_array_equal(found, count * np.arange(7))


@algorithms
def test_sums_of_what_is_still_being_computed_are_the_next_one_s_vectors(four: Backend, algorithm: Allreduce) -> None:
    matrix = np.full((150, 150), 1 / 150, dtype=np.float32)
    made = []
    for device in four.devices:
        loaded = four.asarray(matrix, device)
        x = four.asarray(np.ones((150, 1), dtype=np.float32), device)
        for _ in range(20):
            x = four.launch(four.ops.matmul, loaded, x)
        made.append(four.launch(lambda y: y.reshape(-1), x))
    for _ in range(5):
        made = list(algorithm(four, made))
    for total in made:
        np.testing.assert_allclose(four.to_numpy(total), np.full(150, 4**5), rtol=1e-4)


@algorithms
@pytest.mark.parametrize("broken", [0, 2])
def test_a_vector_that_failed_is_an_error_and_no_hang(four: Backend, algorithm: Allreduce, broken: int) -> None:
    vectors = load_all(four, [np.ones(5, dtype=np.float32)] * 4)
    with pytest.raises(ComputationError, match=rf"{four.name}\b.*\w+Error"):
        vectors[broken] = four.launch(failing(four), vectors[broken])
        for total in algorithm(four, vectors):
            four.wait(total)


@algorithms
@pytest.mark.parametrize("other", [np.ones(1, dtype=np.float32), np.ones(4, dtype=np.int64)], ids=["length", "dtype"])
def test_unequal_vectors_are_an_error_rather_than_broadcast(
    four: Backend, algorithm: Allreduce, other: np.ndarray
) -> None:
    with pytest.raises(ComputationError, match="equal"):
        for total in algorithm(four, load_all(four, [np.ones(4, dtype=np.float32), other])):
            four.wait(total)
