"""`allreduce` has a figure for each size and algorithm.

Every algorithm gives NumPy's sum on every device, whatever the length, the dtype and the number of
devices.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
import parallel_core
from backends import Array, Backend, ComputationError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.trial import Trial, budget_ended
from parallel_core.experiments.training_on_multiple_gpus.allreduce import ADDED, sums
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import (
    ALGORITHMS,
    Allreduce,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.sums import (
    additions,
    swept_sizes,
    time_repeated,
)
from parallel_core.measurement.checks import values_differ
from parallel_core.measurement.timing import Timing
from parallel_core.system.formatting import parse_sizes, write_size
from tests.backends.protocol.test_errors import failing

COUNTED_BYTES = sums.COUNTED_BYTES


@pytest.fixture(autouse=True)
def _little_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count additions of little, which a profiler sees as well."""
    monkeypatch.setattr(sums, "COUNTED_BYTES", 2**16)


def test_it_has_a_figure_for_each_size_and_algorithm(backend: Backend) -> None:
    result = parallel_core.run_allreduce(
        backend, algorithms=("star", "ring"), sizes=(4097, 6, 4096, 1), rounds=2
    )
    # Sizes are whole elements, once each, in order.
    assert result.series["bytes"] == (4, 4096)
    assert result.parameters == {
        "algorithms": "star,ring",
        "sizes": "4B,4KiB",
        "rounds": 2,
        "budget": 15,
    }
    medians = {case.name: case.median for case in result.cases}
    assert list(medians) == [
        f"{name}, {size}" for size in ("4 B", "4 KiB") for name in ("plain copy", "star", "ring")
    ]
    for name in ("star", "ring"):
        gigabytes_per_second = 4096 / medians[f"{name}, 4 KiB"] / 1e9
        _, at_4_kib = result.series[f"algbw_gb_per_s {name}"]
        assert at_4_kib == pytest.approx(gigabytes_per_second)
        share_of_copy_bound = medians["plain copy, 4 B"] / medians[f"{name}, 4 B"]
        at_4_bytes, _ = result.series[f"share_of_copy_bound {name}"]
        assert at_4_bytes == pytest.approx(share_of_copy_bound)
    # Without the native algorithm the last one's bandwidth counts; three devices have a factor of
    # 4/3.
    assert result.metrics["algbw_gb_per_s"] == pytest.approx(at_4_kib)
    assert result.metrics["busbw_gb_per_s"] == pytest.approx(at_4_kib * 4 / 3)
    assert result.bands == {}
    assert result.answer is not None
    assert "without --algorithm" in result.answer.would_change


def test_a_comparison_times_the_allreduce_that_it_names() -> None:
    experiment = EXPERIMENTS["allreduce"]
    for options in experiment.options.values():
        sizes = parse_sizes(str(options["sizes"]))
        timed_cases = {f"native, {write_size(size)}" for size in sizes}
        assert {experiment.case, experiment.queued_case} <= timed_cases


def test_each_sum_has_the_bare_time_of_its_additions(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stall does not make it too long to be repeated.
    monkeypatch.setattr(sums, "LONG_SECONDS", math.inf)
    # At first there are fewer elements than devices.
    result = parallel_core.run_allreduce(
        backend, algorithms=("star", "native"), rounds=2, sizes=(4, 4096)
    )
    _, short_star, _, copy, star, native = result.cases
    assert short_star.bare_seconds
    assert copy.bare_seconds == ()
    assert len(star.bare_seconds) == 2
    assert star.bare_seconds == pytest.approx(native.bare_seconds)
    assert star.repeats > 1
    assert result.metrics["native_speedup_over_star"] == pytest.approx(star.median / native.median)


def test_a_unit_is_of_many_additions_and_a_sum_of_a_single_one(backend: Backend) -> None:
    works = additions(backend, 7, 5)
    assert [work.times for work in works] == [1 / 5] * 3


@given(
    seconds_of_sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    budget=st.floats(0, 50),
    in_full=st.booleans(),
)
def test_a_sweep_ends_with_the_budget_unless_sizes_are_asked_for(
    seconds_of_sizes: list[int], budget: float, in_full: bool
) -> None:
    seconds_of = {4**power: seconds for power, seconds in enumerate(seconds_of_sizes)}
    sizes = list(seconds_of)
    trial = Trial(backends.load("numpy", 1), {}, 1, budget)
    swept: list[int] = []

    def seconds_left(done: Sequence[int]) -> float:
        return budget - sum(seconds_of[size] for size in done)

    for size, seconds in swept_sizes(trial, sizes, in_full, lambda: seconds_left(swept)):
        assert seconds == seconds_left(swept) / 2
        swept.append(size)

    # A size is swept if four times the seconds of the one before fit what is left.
    expected = sizes[:1]
    for size, next_size in pairwise(sizes):
        if in_full or 4 * seconds_of[size] <= seconds_left(expected):
            expected.append(next_size)
        else:
            break
    assert swept == expected
    done = f"{write_size(swept[-1])} of {write_size(sizes[-1])}"
    assert trial.notes == ([] if swept == sizes else [budget_ended("the sweep", done)])


@pytest.mark.parametrize(
    ("budget", "asked_rounds", "rounds"), [(0.0, 5, 3), (0.0, 2, 2), (6.1, 9, 5), (60.0, 9, 9)]
)
def test_rounds_fit_the_budget_but_for_the_fewest(
    budget: float, asked_rounds: int, rounds: int
) -> None:
    trial = Trial(backends.load("numpy", 1), {}, asked_rounds)
    takes = {"long": lambda repeats: (0.5, 1.0), "short": lambda repeats: (0.0, 1e-4 * repeats)}
    time_repeated(trial, takes, 4, budget)
    long, short = trial.cases["long, 4 B"], trial.cases["short, 4 B"]
    assert len(long.seconds) == rounds
    assert long.repeats == 1
    assert short.repeats == 20
    assert short.seconds == pytest.approx((1e-4,) * rounds)


def test_wrong_sums_of_parts_make_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sum_on_one_root = sums.CHECKED[sums.ONE_ROOT]

    def without_last_device(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
        *summed, last = vectors
        return (*sum_on_one_root(backend, summed), last)

    monkeypatch.setitem(sums.CHECKED, sums.ONE_ROOT, without_last_device)
    result = parallel_core.run_allreduce(
        backend, algorithms=("sharded", "native"), sizes=(64,), rounds=1
    )
    assert result.problems[0] == values_differ("sums", result.checks["max_relative_error"])


@pytest.mark.parametrize(("largest_bytes", "size"), [(2**24, "4 KiB"), (40, "40 B"), (4, "40 B")])
def test_sums_on_spread_roots_and_on_one_are_timed_at_a_size_that_spares_the_budget(
    backend: Backend, largest_bytes: int, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "LARGEST", largest_bytes)
    result = parallel_core.run_allreduce(
        backend, algorithms=("sharded", "native"), sizes=(40, 4096), rounds=2
    )
    medians = {case.name: case.median for case in result.cases}
    on_single_root = medians[f"parts on one root, {size}"]
    speedup = on_single_root / medians[f"parts on spread roots, {size}"]
    assert result.metrics["spread_roots_speedup"] == pytest.approx(speedup)
    native_share = result.series["share_of_copy_bound native"][-1]
    assert result.metrics["share_of_copy_bound"] == pytest.approx(native_share)
    assert result.bands.keys() == {"spread_roots_speedup"}


def test_additions_are_counted_in_vectors_whose_length_is_not_that_of_the_timed_ones(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    added_bytes: list[int] = []

    def note_bytes(backend: Backend, operation: sums.Operation, _: int) -> Timing:
        added_bytes.append(sum(backend.to_numpy(part).nbytes for part in operation()))
        return 0.0, 0.0

    monkeypatch.setattr(sums, "measure_each", note_bytes)
    trial = Trial(backend, {})
    sums.prepare_count(trial)
    trial.takes[sums.COUNTED_CASE]()
    # The parts of all devices make one whole sum.
    assert added_bytes == [2**16]
    assert trial.cases == {}


@pytest.mark.usefixtures("threads_watched")
def test_devices_add_at_the_same_time_where_they_have_queues(
    load_any: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "COUNTED_BYTES", COUNTED_BYTES)
    backend = load_any(2)
    result = EXPERIMENTS["allreduce"].run(
        backend, algorithms=("sharded", "native"), sizes=(40,), rounds=2
    )
    assert sums.COUNTED_CASE not in {case.name for case in result.cases}
    if backend.name == "numpy":
        assert result.counts == {}
        return
    counted = result.counts[ADDED.name]
    assert counted.of == sums.COUNTED_SUMS
    has_queue = backend.engine == "async"
    assert result.bands[ADDED.name] == ("parallel" if has_queue else "serial")
    assert has_queue or counted.count == 0


@pytest.mark.parametrize(
    ("beside", "code"), [(0, "serial"), (1, "serial"), (2, "parallel"), (10, "parallel")]
)
def test_a_fifth_of_the_additions_beside_another_device_is_no_turn_taking(
    beside: int, code: str
) -> None:
    assert ADDED.band(beside, 10).code == code


algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


def load_all(backend: Backend, vectors: list[np.ndarray]) -> list[Array]:
    """Load a vector on each of the first devices."""
    return [
        backend.asarray(vector, device)
        for vector, device in zip(vectors, backend.devices, strict=False)
    ]


@pytest.fixture
def four(load_any: Callable[[int], Backend]) -> Backend:
    """A backend with four devices."""
    return load_any(4)


@algorithms
@given(
    dtype=st.sampled_from(["float32", "int64"]),
    devices=st.integers(1, 4),
    length=st.integers(0, 40),
    seed=st.integers(0, 9),
)
def test_every_device_gets_numpy_s_sum(
    four: Backend, algorithm: Allreduce, dtype: str, devices: int, length: int, seed: int
) -> None:
    drawn = np.random.default_rng(seed).uniform(-100, 100, (devices, length))
    vectors = list(drawn.astype(dtype))
    expected = np.sum(vectors, axis=0)
    totals = algorithm(four, load_all(four, vectors))
    assert len(totals) == devices
    for total in map(four.to_numpy, totals):
        assert total.dtype == np.dtype(dtype)
        np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-4)


@algorithms
@pytest.mark.parametrize("devices", [1, 3, 4])
def test_sums_can_be_overwritten_apart_from_each_other(
    four: Backend, algorithm: Allreduce, devices: int
) -> None:
    vectors = load_all(four, [np.arange(7, dtype=np.float32)] * devices)
    vectors_before = list(vectors)
    totals = list(algorithm(four, vectors))
    # The caller's list is left alone.
    for vector, vector_before in zip(vectors, vectors_before, strict=True):
        assert vector is vector_before
    for number, device in enumerate(four.devices[:devices], 1):
        other_values = four.asarray(np.full(7, -1, dtype=np.float32), device)
        four.wait(four.copy_to(other_values, device, out=totals.pop(0)))
        assert len(totals) == devices - number
        for untouched in map(four.to_numpy, totals):
            np.testing.assert_array_equal(untouched, devices * np.arange(7))


@algorithms
def test_sums_of_what_is_still_being_computed_are_the_next_one_s_vectors(
    four: Backend, algorithm: Allreduce
) -> None:
    vectors = load_all(four, [np.ones(100_000, dtype=np.float32)] * 4)
    for _ in range(20):
        vectors = [four.launch(four.ops.multiply, vector, 1.0) for vector in vectors]
    for _ in range(5):
        vectors = list(algorithm(four, vectors))
    for total in vectors:
        np.testing.assert_array_equal(four.to_numpy(total), 4**5)


@algorithms
@pytest.mark.parametrize("broken", [0, 2])
def test_a_vector_that_failed_is_an_error_and_no_hang(
    four: Backend, algorithm: Allreduce, broken: int
) -> None:
    vectors = load_all(four, [np.ones(5, dtype=np.float32)] * 4)
    with pytest.raises(ComputationError, match=rf"{four.name}\b.*\w+Error"):
        vectors[broken] = four.launch(failing(four), vectors[broken])
        for total in algorithm(four, vectors):
            four.wait(total)


@algorithms
@pytest.mark.parametrize(
    "other", [np.ones(1, dtype=np.float32), np.ones(4, dtype=np.int64)], ids=["length", "dtype"]
)
def test_unequal_vectors_are_an_error_not_broadcast(
    four: Backend, algorithm: Allreduce, other: np.ndarray
) -> None:
    with pytest.raises(ComputationError, match="equal"):
        for total in algorithm(four, load_all(four, [np.ones(4, dtype=np.float32), other])):
            four.wait(total)
