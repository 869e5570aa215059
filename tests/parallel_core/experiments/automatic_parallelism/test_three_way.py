"""Two devices compute while results travel both ways: what is saved, and what is said of it."""

from collections.abc import Callable
from typing import Any

import pytest

import parallel_core
from backends import Array, Backend
from parallel_core import Case
from parallel_core.experiments.automatic_parallelism import three_way

SMALL: dict[str, Any] = {"size": 64, "copies": 2, "rounds": 2, "budget": 600.0}


def case(seconds: float) -> Case:
    return Case("any", (seconds,), (seconds / 2,))


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
    found = three_way.fractions(parts, case(1.5), core_bound=1.5)
    assert found == pytest.approx(
        {"saved_fraction": 0.5, "possible_fraction": 2 / 3, "possible_on_cores_fraction": 0.5}
    )
    assert three_way.fractions(parts, case(4), core_bound=0.1) == pytest.approx(
        {"saved_fraction": -1 / 3, "possible_fraction": 2 / 3, "possible_on_cores_fraction": 2 / 3}
    )


@pytest.mark.parametrize(
    ("saved", "sentence"),
    [
        (0.33, "went on at the same time: 33% of the time was saved, of 35% that could be"),
        (0.2, "overlapped in part: 20% of the time was saved, of 35% that could be"),
        (0.45, "went on at the same time: 45% of the time was saved, more than the bound of 35%, which is not exact."),
        (0.02, "what was saved (2% of the time) is within the noise (5%)"),
        (-0.02, "No overlap is shown: what was saved (−2% of the time)"),
        (-0.001, "what was saved (0% of the time)"),
        (-0.2, "took 20% longer than one after the other"),
    ],
)
def test_three_ways(saved: float, sentence: str) -> None:
    assert sentence in three_way.verdict({"saved_fraction": saved, "possible_on_cores_fraction": 0.35}, 0.05)


@pytest.mark.parametrize(
    ("on_cores", "sentence"),
    [(0.33, "With a core for each queue 66% could be saved, and with 2 cores 33%"), (0.66, "longest part limits")],
)
def test_what_limits_three_ways(on_cores: float, sentence: str) -> None:
    told = three_way.about_cores({"possible_fraction": 0.66, "possible_on_cores_fraction": on_cores}, 2)
    assert sentence in told


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


def test_the_noise_of_a_saving_is_that_of_all_its_times() -> None:
    def spread_over(low: float, high: float) -> Case:
        return Case("any", (low, (low + high) / 2, high), (0.1,))

    parts = [spread_over(0.9, 1.1), spread_over(1.0, 1.0)]
    assert three_way.noise(parts, spread_over(1.1, 1.5)) == pytest.approx((0.1 + 0.0 + 0.2) / 2)
    assert three_way.noise(parts[1:], parts[1]) == pytest.approx(0.05)
