"""The sentences follow from the numbers: numbers that point the other way give the other sentence."""

from typing import Any

import pytest

from parallel_core.experiments import overlap, parallel
from parallel_core.experiments.asynchronous import answers
from parallel_core.experiments.asynchronous.increments import CostModel
from parallel_core.experiments.data_parallel import explain
from parallel_core.result import Case
from parallel_core.training import Epoch


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
    assert "(-50%)" in told


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


def epoch(number: int, accuracy: float) -> Epoch:
    fields: dict[str, Any] = {"seconds": 2.0, "dispatch_seconds": 1.0, "images": 1000, "losses": (1.0,)}
    return Epoch(number=number, accuracy=accuracy, **fields)


def test_training() -> None:
    plateau = explain([epoch(1, 0.1), epoch(2, 0.8), epoch(3, 0.7)], 2)
    assert "On 2 devices, training ran at 500 images/s to a test accuracy of 0.700" in plateau
    assert "best: 0.800 after epoch 2" in plateau
    assert "after epoch 1 it was still at chance" in plateau
    assert "chance" not in explain([epoch(1, 0.6), epoch(2, 0.8)], 1)
    assert "train for longer" in explain([epoch(1, 0.1)], 1)
