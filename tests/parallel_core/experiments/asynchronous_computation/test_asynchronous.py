"""`async` answers all its questions, and its sentences follow from the numbers."""

from typing import Any

import pytest

import parallel_core
from backends import Backend, Engine
from parallel_core.experiments.asynchronous_computation.asynchronous import verdicts as answers
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.measurement.confidence_intervals import Interval

SMALL: dict[str, Any] = {"size": 40, "steps": 30, "rounds": 2, "budget": 600.0}


def about(value: float) -> Interval:
    """Return a value that is known well."""
    return Interval(value, 0.95 * value, 1.05 * value)


@pytest.mark.parametrize(
    ("fraction", "sentence"),
    [
        (about(0.01), "Python ran ahead: "),
        (about(0.5), "ran ahead in part"),
        (about(0.99), "Nothing was queued"),
        (Interval(0.5, 0.1, 0.9), "The noise leaves open how far Python ran ahead"),
    ],
)
def test_dispatch(fraction: Interval, sentence: str) -> None:
    assert sentence in answers.verdict(fraction, about(3.0))


@pytest.mark.parametrize(
    ("fraction", "sentence"),
    [
        (about(0.1), "for all: the rest went on meanwhile"),
        (about(1.0), "nothing went on meanwhile"),
        (Interval(0.7, 0.5, 0.9), "the noise leaves open whether the rest went on meanwhile"),
    ],
)
def test_barriers(fraction: Interval, sentence: str) -> None:
    assert sentence in answers.about_barriers(fraction)


@pytest.mark.parametrize(
    ("t1", "t2", "sentence"),
    [
        (1e-6, 5e-6, "the device is the slower side, as the book assumes"),
        (5e-6, 1e-6, "Python is the slower side, against the book's assumption"),
        (5e-6, 1e-9, "until control returns, which contains computing it"),
        (5e-6, 5.5e-6, "the noise leaves open which side is the slower one"),
    ],
)
def test_the_slower_side(t1: float, t2: float, sentence: str) -> None:
    model = CostModel(t1, t2, 0.0, Interval(t2 / t1, 0.8 * t2 / t1, 1.2 * t2 / t1))
    assert sentence in answers.about_sides(model)


def test_the_cost_model_is_held_against_what_was_measured() -> None:
    numbers = {
        "measured_once_seconds": 0.1,
        "predicted_once_seconds": 0.05,
        "book_predicted_once_seconds": 0.04,
    }
    told = answers.about_model(numbers, 10_000)
    assert "predicts 50.0 ms for 10000 increments, 100 ms were measured (−50%)" in told


@pytest.mark.parametrize(
    ("engine", "fraction", "words"),
    [
        ("async", about(0.01), "queues nothing (--engine sync)"),
        ("async", about(0.99), "Larger products (--size 200)"),
        ("async", Interval(0.5, 0.1, 0.9), "--rounds 20 --budget 60"),
        ("sync", about(0.99), "An engine that queues (--engine async)"),
    ],
)
def test_what_would_change_it_follows_from_the_engine_and_the_share(
    queueing: Backend, engine: Engine, fraction: Interval, words: str
) -> None:
    queueing.engine = engine
    assert words in answers.what_would_change(queueing, fraction, 100)


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        (about(1e-8), "less than 0.5 μs"),
        (about(4e-6), "costs 4.00 μs (3.80 μs … 4.20 μs) a call"),
        (Interval(4e-6, -1e-6, 9e-6), "is lost in the noise: 4.00 μs a call"),
    ],
)
def test_launch_cost(cost: Interval, sentence: str) -> None:
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
    assert len(result.notes) == 4
    assert result.answer is not None
    _, waiting, increment = result.answer.sentences
    assert waiting.startswith("Waiting for one result took ")
    assert increment.startswith("An increment takes ")
