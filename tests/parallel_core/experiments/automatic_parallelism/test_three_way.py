"""Two devices compute while results travel both ways: what is saved, and what is said of it."""

from collections.abc import Callable
from typing import Any

import pytest

import parallel_core
from backends import Array, Backend
from parallel_core import Case
from parallel_core.experiments.automatic_parallelism import three_way
from parallel_core.measurement.confidence_intervals import Interval
from tests.parallel_core.experiments.bounds import without_bounds

SMALL: dict[str, Any] = {"size": 64, "copies": 2, "rounds": 2, "budget": 600.0}


def case(seconds: float) -> Case:
    return Case("any", (seconds,) * 3, (seconds / 2,) * 3)


def cases(*seconds: float) -> list[Case]:
    return [case(taken) for taken in seconds]


@pytest.mark.parametrize("count", [2, 3])
def test_two_devices_compute_and_copy(load: Callable[[int], Backend], count: int) -> None:
    result = parallel_core.run_three_way(load(count), size=32, copies=2, rounds=2, budget=600.0)
    *parts, together = result.cases
    assert [part.name for part in parts] == ["products on cpu:1", "products on cpu:2", "copies both ways"]
    assert together.parts == tuple(part.name for part in parts)
    added = sum(part.median for part in parts)
    assert result.metrics["saved_fraction"] == pytest.approx((added - together.median) / added)
    assert result.metrics["possible_on_cores_fraction"] <= result.metrics["possible_fraction"]
    assert not [problem for problem in result.problems if "differ" in problem]


@pytest.mark.parametrize("broken", ["copy_into", "products"])
def test_wrong_copies_or_products_make_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    wrong: dict[str, Callable[..., Any]] = {
        "copy_into": lambda backend, buffer, *_: buffer,
        "products": lambda backend, x, count=50: [backend.launch(backend.ops.add, x, x) for _ in range(count)],
    }
    monkeypatch.setattr(three_way, broken, wrong[broken])
    result = parallel_core.run_three_way(backend, size=16, copies=1, rounds=1, budget=600.0)
    assert any(problem.startswith("products or copies differ") for problem in result.problems)


def test_what_is_saved_is_bounded_by_the_longest_part_and_by_the_cores() -> None:
    parts = cases(1, 1, 1)
    assert estimates(three_way.fractions(parts, case(1.5), core_bound=1.5)) == pytest.approx(
        {"saved_fraction": 0.5, "possible_fraction": 2 / 3, "possible_on_cores_fraction": 0.5}
    )
    assert estimates(three_way.fractions(parts, case(4), core_bound=0.1)) == pytest.approx(
        {"saved_fraction": -1 / 3, "possible_fraction": 2 / 3, "possible_on_cores_fraction": 2 / 3}
    )


def estimates(found: dict[str, Interval]) -> dict[str, float]:
    return {name: interval.estimate for name, interval in found.items()}


@pytest.mark.parametrize(
    ("together", "sentence"),
    [
        (2.0, "went on at the same time: 0.33 of the time was saved, of 0.35"),
        (2.4, "overlapped in part: 0.20"),
        (1.65, "went on at the same time: 0.45 of the time was saved, more than the bound, which is not"),
        (2.94, "No overlap is shown: 0.02"),
        (3.06, "No overlap is shown: −0.02"),
        (3.6, "took longer than one after the other, −0.20"),
    ],
)
def test_three_ways(together: float, sentence: str) -> None:
    parts, whole = cases(1, 1, 1), case(together)
    found, left = (three_way.fractions(parts, whole, 1.95), three_way.left_over(parts, whole, 1.95))
    assert sentence in without_bounds(three_way.verdict(found, left))


@pytest.mark.parametrize(
    ("bound", "sentence"),
    [
        (2.0, "With a core for each queue 67% could be saved, and with the time of 1.5 cores 33%"),
        (0.9, "The longest part limits what can be saved (67%): the time of 1.5 cores would suffice"),
        (1.05, "With a core for each queue 67% could be saved; the noise leaves open whether the time of 1.5 cores"),
    ],
)
def test_what_limits_three_ways(bound: float, sentence: str) -> None:
    parts = cases(1, 1, 1)
    found, short = three_way.fractions(parts, case(2), bound), three_way.lost_to_cores(parts, bound)
    assert sentence in without_bounds(three_way.about_cores(found, short, 1.5))


@pytest.mark.parametrize(
    ("together", "bound", "words"),
    [
        (2.0, 2.0, "More cores than 1.5"),
        (2.4, 0.9, "Parts that hinder each other less"),
        (3.6, 0.9, "Parts that hinder each other less"),
        (1.0, 0.9, "A shorter longest part"),
        (3.0, 0.9, "--rounds 20 --budget 60"),
    ],
)
def test_what_would_save_more_follows_from_the_bounds(
    queueing: Backend, together: float, bound: float, words: str
) -> None:
    parts, whole = cases(1, 1, 1), case(together)
    found, left = three_way.fractions(parts, whole, bound), three_way.left_over(parts, whole, bound)
    short = three_way.lost_to_cores(parts, bound)
    assert words in three_way.what_would_change(queueing, found, left, short, 1.5)


def test_earlier_results_travel_to_the_other_device(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    went: list[tuple[Array, object]] = []
    monkeypatch.setattr(three_way, "products", lambda *_: [])
    monkeypatch.setattr(three_way, "copy_into", lambda _, buffer, result, device, copies: went.append((result, device)))
    monkeypatch.setattr(three_way, "copy_each", lambda _, results, device, *rest: went.append((results[0], device)))
    results, buffers = [["first"] * 50, ["second"] * 50], [[None] * 50, [None] * 50]
    there_and_back = [("first", backend.devices[1]), ("second", backend.devices[0])]
    three_way.copy_both_ways(backend, results, buffers, 1)
    assert went == there_and_back
    three_way.all_at_once(backend, [None, None], results, buffers, 1)
    assert went == there_and_back * 51
