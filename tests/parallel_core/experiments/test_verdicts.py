"""The sentences follow from the numbers: numbers that point the other way give the other sentence."""

import math
from typing import Any

import numpy as np
import pytest

import backends
from parallel_core.experiments.asynchronous_computation.asynchronous import verdict as answers
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.asynchronous_computation.ten_products import largest_error
from parallel_core.experiments.automatic_parallelism import overlap, parallel
from parallel_core.experiments.training_on_multiple_gpus.allreduce import verdict as about_allreduce
from parallel_core.experiments.training_on_multiple_gpus.data_parallel import explain
from parallel_core.measurement.result import Case
from parallel_core.training.loop import Epoch


@pytest.mark.parametrize(
    ("speedup", "sentence"),
    [
        (0.7, "got in each other's way"),
        (1.0, "took turns"),
        (1.3, "overlapped in part: 1.30 ×"),
        (1.9, "worked at the same time: together was 1.90 ×"),
    ],
)
def test_parallel(speedup: float, sentence: str) -> None:
    assert sentence in parallel.explain(speedup, 2)


def case(seconds: float) -> Case:
    return Case("any", (seconds,), (seconds,))


@pytest.mark.parametrize(
    ("efficiency", "sentence"),
    [
        (-0.5, "took longer than one after the other"),
        (0.0, "Nothing overlapped"),
        (0.5, "50% of the shorter part was hidden"),
        (0.95, "The overlap is real: 95%"),
    ],
)
def test_overlap(efficiency: float, sentence: str) -> None:
    assert sentence in overlap.explain(efficiency, case(1), case(1))


def test_overlap_of_unequal_parts_is_called_so() -> None:
    assert "unequal" in overlap.explain(0.5, case(1), case(3))
    assert "unequal" not in overlap.explain(0.5, case(1), case(1.5))


@pytest.mark.parametrize(
    ("fraction", "sentence"), [(0.01, "Python ran ahead: "), (0.5, "ran ahead in part"), (0.99, "Nothing was queued")]
)
def test_dispatch(fraction: float, sentence: str) -> None:
    assert sentence in answers.explain(fraction, 3.0)


@pytest.mark.parametrize(
    ("fraction", "sentence"), [(0.1, "the rest went on meanwhile"), (1.0, "nothing went on meanwhile")]
)
def test_barriers(fraction: float, sentence: str) -> None:
    assert sentence in answers.about_barriers(fraction)


@pytest.mark.parametrize(
    ("t1", "t2", "sentence"),
    [
        (1e-6, 5e-6, "the device is the slower side, as the book assumes"),
        (5e-6, 1e-6, "Python is the slower side, against the book's assumption"),
        (5e-6, 1e-9, "until control returns, which contains computing it"),
    ],
)
def test_the_cost_model(t1: float, t2: float, sentence: str) -> None:
    numbers = {
        "t1_seconds": t1,
        "t2_seconds": t2,
        "measured_once_seconds": 0.1,
        "predicted_once_seconds": 0.05,
        "book_predicted_once_seconds": 0.04,
    }
    told = answers.about_model(numbers, 10_000)
    assert sentence in told
    assert "(−50%)" in told


def test_the_cost_model_repeats_the_slower_side() -> None:
    device_bound, python_bound = CostModel(1, 3, 2), CostModel(3, 1, 2)
    assert device_bound.waiting_once(10) == device_bound.waiting_once_by_the_book(10) == 1 + 10 * 3 + 2
    assert python_bound.waiting_once(10) == 10 * 3 + 1 + 2
    assert device_bound.waiting_each(10) == python_bound.waiting_each(10) == 60


@pytest.mark.parametrize(("cost", "sentence"), [(1e-8, "less than 0.5 μs"), (4e-6, "costs 4.00 μs a call")])
def test_launch_cost(cost: float, sentence: str) -> None:
    assert sentence in answers.about_launch(cost)


@pytest.mark.parametrize(("dropped", "sentence"), [(1e6, "costs little memory"), (3e8, "deep costs memory")])
def test_queue_memory(dropped: float, sentence: str) -> None:
    numbers = {"peak_bytes_dropped_waiting_every_100": dropped, "peak_bytes_kept_waiting_every_100": 4e8}
    assert sentence in answers.about_memory(numbers)


def test_queue_memory_that_was_not_measured_is_not_spoken_of() -> None:
    assert answers.about_memory({}) == ""


def allreduce(size: int = 2**20, **seconds: float) -> dict[int, dict[str, Case]]:
    return {size: {name.replace("_", " "): case(taken) for name, taken in seconds.items()}}


@pytest.mark.parametrize(
    ("star", "sharded", "native", "sentences"),
    [
        (4e-3, 2e-3, 1e-3, ["At 1 MiB native was the fastest (1.05 GB/s, 4.00 × as fast as the star)."]),
        (1e-3, 2e-3, 4e-3, ["At 1 MiB star was the fastest (1.05 GB/s).", "native took 4.00 × as long", "(25% of"]),
        (2e-3, 1e-3, 1.01e-3, ["sharded and native were the fastest, within the noise (1.05 GB/s, 2.00 × as fast"]),
        (1e-3, 1.01e-3, 2e-3, ["star and sharded were the fastest, within the noise (1.05 GB/s)."]),
        (1e-3, 1e-3, 1.01e-3, ["no algorithm was faster than another", "native took as long as copying", "(99% of"]),
        (4e-3, 2e-3, 5e-4, ["native took less time than copying every vector once (200% of its speed)"]),
    ],
)
def test_allreduce(star: float, sharded: float, native: float, sentences: list[str]) -> None:
    told = about_allreduce.explain(allreduce(plain_copy=1e-3, star=star, sharded=sharded, native=native), "native")
    for sentence in sentences:
        assert sentence in told
    assert told.count("At 1 MiB") == 1


def test_allreduce_speaks_of_the_largest_size_first_and_of_its_bound() -> None:
    small = allreduce(4096, plain_copy=1e-5, star=1e-5, native=2e-5)
    large = allreduce(plain_copy=1e-3, star=3e-3, native=2e-3)
    assert about_allreduce.explain(small | large, "native") == (
        "At 1 MiB native was the fastest (0.524 GB/s, 1.50 × as fast as the star). There native took 2.00 × as long as "
        "copying every vector once, which is the least that must be read and written (50% of its speed). "
        "At 4 KiB star was the fastest (0.41 GB/s)."
    )


def test_allreduce_by_one_algorithm_alone() -> None:
    told = about_allreduce.explain(allreduce(plain_copy=1e-3, ring=2e-3), "ring")
    assert told.startswith("At 1 MiB ring summed 0.524 GB/s. There ring took 2.00 ×")


@pytest.mark.parametrize(
    ("sharded", "sentence"),
    [
        (1e-3, "was 2.00 × as fast as adding all up on the first (star) at 1 MiB: sharing out the work paid"),
        (2e-3, "was 1.00 × as fast as adding all up on the first (star) at 1 MiB: no difference beyond the noise"),
        (4e-3, "was 0.50 × as fast as adding all up on the first (star) at 1 MiB: dividing and joining the vectors"),
    ],
)
def test_the_book_s_question_is_answered_by_the_numbers(sharded: float, sentence: str) -> None:
    (told,) = about_allreduce.about_sharding(allreduce(plain_copy=1e-3, star=2e-3, sharded=sharded))
    assert sentence in told


def test_the_book_s_question_needs_both_ways() -> None:
    assert about_allreduce.about_sharding(allreduce(plain_copy=1e-3, star=2e-3)) == ()


def epoch(number: int, accuracy: float) -> Epoch:
    fields: dict[str, Any] = {"seconds": 2.0, "dispatch_seconds": 1.0, "images": 1000, "losses": (1.0,)}
    return Epoch(number=number, accuracy=accuracy, **fields)


def test_training() -> None:
    plateau = explain([epoch(1, 0.1), epoch(2, 0.8), epoch(3, 0.7)], [epoch(1, 0.1), epoch(2, 0.8), epoch(3, 0.7)], 2)
    assert "On 2 devices, training ran at 500 images/s to a test accuracy of 0.700" in plateau
    assert "best: 0.800 after epoch 2" in plateau
    assert "after epoch 1 it was still at chance" in plateau
    assert "chance" not in explain([epoch(1, 0.6), epoch(2, 0.8)], [epoch(1, 0.6), epoch(2, 0.8)], 1)
    assert "train for longer" in explain([epoch(1, 0.1)], [epoch(1, 0.1)], 1)


def test_a_nan_behind_right_values_is_the_largest_error() -> None:
    drawn = [np.eye(2, dtype=np.float32)] * 3
    loaded = [drawn[0], np.full((2, 2), np.nan, dtype=np.float32), drawn[2]]
    assert math.isnan(largest_error(backends.load("numpy", devices=1), loaded, drawn))
