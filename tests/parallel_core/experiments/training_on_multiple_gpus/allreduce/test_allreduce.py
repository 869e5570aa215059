"""`allreduce` has a figure for each size and algorithm.

Every algorithm gives NumPy's sum on every device, whatever the length, the dtype and the number of
devices.
"""

import math
from collections.abc import Callable
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
import parallel_core
from backends import Array, Backend, ComputationError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.trial import Trial
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
from parallel_core.measurement.timing import Timing
from parallel_core.system.formatting import parse_sizes, write_size
from tests.backends.protocol.test_errors import failing


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
    names = ("plain copy", "star", "ring")
    assert [case.name for case in result.cases] == [
        f"{name}, {size}" for size in ("4 B", "4 KiB") for name in names
    ]
    medians = {case.name: case.median for case in result.cases}
    for name in names[1:]:
        assert result.series[f"algbw_gb_per_s {name}"][1] == pytest.approx(
            4096 / medians[f"{name}, 4 KiB"] / 1e9
        )
        share = medians["plain copy, 4 B"] / medians[f"{name}, 4 B"]
        assert result.series[f"share_of_copy_bound {name}"][0] == pytest.approx(share)
    # Of the last algorithm, for native was not asked for; three devices have a factor of 4/3.
    assert result.metrics["algbw_gb_per_s"] == pytest.approx(
        result.series["algbw_gb_per_s ring"][1]
    )
    assert result.metrics["busbw_gb_per_s"] == pytest.approx(
        result.metrics["algbw_gb_per_s"] * 4 / 3
    )
    assert result.bands == {}
    assert result.answer is not None
    assert "without --algorithm" in result.answer.would_change


def test_a_comparison_times_the_allreduce_that_it_names() -> None:
    described = EXPERIMENTS["allreduce"]
    for options in described.options.values():
        timed = {f"native, {write_size(size)}" for size in parse_sizes(str(options["sizes"]))}
        assert {described.case, described.queued_case} <= timed


def test_each_sum_has_the_bare_time_of_its_additions(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stall does not make it too long to be repeated.
    monkeypatch.setattr(sums, "LONG_SECONDS", math.inf)
    asked = {"algorithms": ("star", "native"), "rounds": 2}
    # On zero elements, too, and on fewer than there are devices.
    assert parallel_core.run_allreduce(backend, **asked, sizes=(4,)).cases[1].bare_seconds
    result = parallel_core.run_allreduce(backend, **asked, sizes=(4096,))
    copy, star, native = result.cases
    assert copy.bare_seconds == ()
    assert len(star.bare_seconds) == 2
    assert star.bare_seconds == pytest.approx(native.bare_seconds)
    assert star.repeats > 1
    assert result.metrics["native_speedup_over_star"] == pytest.approx(star.median / native.median)
    # A unit is of many additions, and a sum of one.
    assert [work.times for work in additions(backend, 7, 5)] == [1 / 5] * 3


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 50), st.booleans())
def test_a_sweep_ends_with_the_budget_unless_sizes_are_asked_for(
    slow: list[int], budget: float, in_full: bool
) -> None:
    sizes, left, done = [4**place for place in range(len(slow))], [budget], list[int]()
    trial = Trial(backends.load("numpy", 1), {}, 1, budget)
    for size, seconds in swept_sizes(trial, sizes, in_full, lambda: left[-1]):
        assert seconds == left[-1] / 2
        left.append(left[-1] - slow[sizes.index(size)])
        done.append(size)
    assert done == sizes[: len(done)]
    assert in_full <= (done == sizes)
    spent = list(accumulate(slow, initial=0))
    for place in range(1, len(sizes)):
        fits = 4 * slow[place - 1] <= budget - spent[place]
        assert (sizes[place] in done) == (in_full or (fits and sizes[place - 1] in done))
    assert len(trial.notes) == (done != sizes)
    assert all(f"{write_size(done[-1])} of {write_size(sizes[-1])}" in note for note in trial.notes)


@pytest.mark.parametrize(
    ("seconds", "asked", "rounds"), [(0.0, 5, 3), (0.0, 2, 2), (6.1, 9, 5), (60.0, 9, 9)]
)
def test_rounds_fit_the_budget_but_for_the_fewest(seconds: float, asked: int, rounds: int) -> None:
    trial = Trial(backends.load("numpy", 1), {}, asked)
    takes = {"one": lambda repeats: (0.5, 1.0), "short": lambda repeats: (0.0, 1e-4 * repeats)}
    time_repeated(trial, takes, 4, seconds)
    assert len(trial.cases["one, 4 B"].seconds) == rounds
    assert [case.repeats for case in trial.cases.values()] == [1, 20]
    assert trial.cases["short, 4 B"].seconds == pytest.approx((1e-4,) * rounds)


def test_wrong_sums_of_parts_make_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = sums.CHECKED[sums.ONE_ROOT]
    # Without the last device's.
    monkeypatch.setitem(
        sums.CHECKED, sums.ONE_ROOT, lambda backend, x: (*right(backend, x[:-1]), x[-1])
    )
    result = parallel_core.run_allreduce(
        backend, algorithms=("sharded", "native"), sizes=(64,), rounds=1
    )
    assert result.problems[0].startswith("sums differ from NumPy's by ")


@pytest.mark.parametrize(("largest", "size"), [(2**24, "4 KiB"), (40, "40 B"), (4, "40 B")])
def test_the_parts_of_sharded_sums_are_timed_beside_them_at_a_size_that_spares_the_budget(
    backend: Backend, largest: int, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "LARGEST", largest)
    asked = {"algorithms": ("sharded", "native"), "sizes": (40, 4096), "rounds": 2}
    result = parallel_core.run_allreduce(backend, **asked)
    timed = {one.name: one.median for one in result.cases}
    assert result.metrics["spread_roots_speedup"] == pytest.approx(
        timed[f"parts on one root, {size}"] / timed[f"parts on spread roots, {size}"]
    )
    for part in ("dividing", "copying", "adding", "joining"):
        assert result.metrics[f"{part}_alone_seconds"] == pytest.approx(
            timed[f"{part} alone, {size}"]
        )
    assert result.metrics["share_of_copy_bound"] == pytest.approx(
        result.series["share_of_copy_bound native"][-1]
    )
    assert result.bands.keys() == {"spread_roots_speedup"}


def test_additions_are_counted_in_vectors_whose_length_is_not_that_of_the_timed_ones(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[int] = []
    measure_each = sums.measure_each

    def measure_and_note(backend: Backend, operation: sums.Operation, repeats: int) -> Timing:
        added.append(sum(backend.to_numpy(part).nbytes for part in operation()))
        return measure_each(backend, operation, repeats)

    monkeypatch.setattr(sums, "COUNTED_BYTES", 2**16)
    monkeypatch.setattr(sums, "measure_each", measure_and_note)
    trial = Trial(backend, {})
    sums.prepare_count(trial)
    trial.takes[sums.COUNTED_CASE]()
    # The parts of all devices make one whole sum.
    assert added == [2**16]
    assert trial.cases == {}


def test_devices_add_at_the_same_time_where_they_have_queues(
    load_any: Callable[[int], Backend],
) -> None:
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
    in_queues = backend.engine == "async"
    assert result.bands[ADDED.name] == ("parallel" if in_queues else "serial")
    assert in_queues or counted.count == 0


def test_a_fifth_of_the_additions_beside_another_device_is_no_turn_taking() -> None:
    codes = [ADDED.band(seen, 10).code for seen in (0, 1, 2, 10)]
    assert codes == ["serial", "serial", "parallel", "parallel"]


algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
terms_drawn = st.tuples(
    st.sampled_from(["float32", "int64"]), st.integers(1, 4), st.integers(0, 40), st.integers(0, 9)
)


def load_all(backend: Backend, terms: list[np.ndarray]) -> list[Array]:
    return [backend.asarray(x, device) for x, device in zip(terms, backend.devices, strict=False)]


@pytest.fixture
def four(load_any: Callable[[int], Backend]) -> Backend:
    return load_any(4)


@algorithms
@given(drawn=terms_drawn)
def test_every_device_gets_numpy_s_sum(
    four: Backend, algorithm: Allreduce, drawn: tuple[str, int, int, int]
) -> None:
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
def test_sums_can_be_overwritten_apart_from_each_other(
    four: Backend, algorithm: Allreduce, count: int
) -> None:
    vectors = load_all(four, [np.arange(7, dtype=np.float32)] * count)
    given_vectors = list(vectors)
    sums = list(algorithm(four, vectors))
    # The caller's list is left alone.
    assert all(
        vector is given_one for vector, given_one in zip(vectors, given_vectors, strict=True)
    )
    for i, device in enumerate(four.devices[:count]):
        sums[i] = four.copy_to(
            four.asarray(np.full(7, -1, dtype=np.float32), device), device, out=sums[i]
        )
        four.wait(sums[i])
        for found in map(four.to_numpy, sums[i + 1 :]):
            np.testing.assert_array_equal(found, count * np.arange(7))


@algorithms
def test_sums_of_what_is_still_being_computed_are_the_next_one_s_vectors(
    four: Backend, algorithm: Allreduce
) -> None:
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
