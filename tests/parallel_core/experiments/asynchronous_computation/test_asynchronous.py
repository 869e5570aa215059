"""`async` answers all its questions, and its sentences follow from the numbers."""

from typing import Any

import pytest

import parallel_core
from backends import Backend
from parallel_core.experiments.asynchronous_computation.asynchronous import verdicts as answers

SMALL: dict[str, Any] = {"size": 40, "steps": 30, "rounds": 2, "budget": 600.0}


@pytest.mark.parametrize(
    ("fraction", "sentence"), [(0.01, "Python ran ahead: "), (0.5, "ran ahead in part"), (0.99, "Nothing was queued")]
)
def test_dispatch(fraction: float, sentence: str) -> None:
    assert sentence in answers.verdict(fraction, 3.0)


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


@pytest.mark.parametrize(("cost", "sentence"), [(1e-8, "less than 0.5 μs"), (4e-6, "costs 4.00 μs a call")])
def test_launch_cost(cost: float, sentence: str) -> None:
    assert sentence in answers.about_launch(cost)


@pytest.mark.parametrize(("dropped", "sentence"), [(1e6, "costs little memory"), (3e8, "deep costs memory")])
def test_queue_memory(dropped: float, sentence: str) -> None:
    numbers = {"peak_bytes_dropped_waiting_every_100": dropped, "peak_bytes_kept_waiting_every_100": 4e8}
    assert sentence in answers.about_memory(numbers)


def test_queue_memory_that_was_not_measured_is_not_spoken_of() -> None:
    assert answers.about_memory({}) == ""


def test_the_async_experiment_answers_all_its_questions(backend: Backend) -> None:
    result = parallel_core.run_async(backend, **SMALL)
    assert {case.name for case in result.cases} == {
        "10 products in NumPy",
        "10 products",
        "wait for one result",
        "waitall",
        "product, to NumPy",
        "product, to a number",
        "product, to text",
        "increments, waiting each time",
        "increments, waiting once",
        "increments in one launch",
    }
    memory = {f"peak_bytes_{kept}_waiting_every_{n}" for kept in ("kept", "dropped") for n in (1, 10, 100)}
    assert memory < set(result.metrics)
    # A hundred arrays of 4 MiB: those that are kept must be there.
    assert result.metrics["peak_bytes_kept_waiting_every_100"] > 0.8 * 100 * 2**22
    assert len(result.notes) == 5
