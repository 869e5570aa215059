"""Small operations: what is run where, values that are checked, and from which size on several devices are faster."""

from collections.abc import Callable
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parallel_core
from backends import Backend
from parallel_core import Case
from parallel_core.experiments.automatic_parallelism import small_ops
from parallel_core.experiments.runner.guess import judge
from parallel_core.measurement.confidence_intervals import decide
from parallel_core.measurement.verdicts import times_as_long
from tests.parallel_core.experiments.runner.pretended import case, trial


def test_each_size_is_timed_in_three_ways(
    backend: Backend, elsewhere: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "variants", ("bulk-on", "temporary-space-low"))
    monkeypatch.setattr(small_ops, "TARGET_SECONDS", 0.0)
    result = parallel_core.run_small_ops(backend, sizes=(16, 8, 16), rounds=2, budget=600.0)
    (asked,) = elsewhere
    same = {"backend": backend.name, "engine": backend.engine, "variant": backend.variants, "rounds": 2}
    own = {"devices": 1, "device-kind": "cpu", "threads": 3, "sizes": "8,16"}
    # A part of what is left of its own budget.
    assert asked == {**same, **own, "budget": pytest.approx(300, abs=300)}
    ways = ("one device", "all devices", "all threads")
    assert {case.name for case in result.cases} == {f"{way}, size {size}" for way in ways for size in (8, 16)}
    # Of the fewest on each of three devices.
    assert {case.repeats for case in result.cases if "threads" not in case.name} == {6}
    medians = {case.name: case.median for case in result.cases}
    assert result.series["size"] == (8, 16)
    for way in ways[1:]:
        speedups = tuple(medians[f"one device, size {size}"] / medians[f"{way}, size {size}"] for size in (8, 16))
        assert result.series[f"speedup {way}"] == speedups
    of_devices = result.series["speedup all devices"]
    assert result.metrics["largest_speedup"] == pytest.approx(max(of_devices))
    assert result.metrics["small_speedup"] == pytest.approx(sum(of_devices) / 2)
    assert result.checks["max_relative_error"] == 0.5e-5


def test_small_are_the_sizes_up_to_128_or_the_smallest() -> None:
    def figures(*sizes: int) -> dict[str, float]:
        cases = [case(f"{way}, size {size}", *[seconds] * 3) for size in sizes for way, seconds in times(size)]
        made = trial(*cases)
        made.backend.engine = "async"  # type: ignore[misc]
        small_ops.find_figures(made, sizes)
        return {name: found.estimate for name, found in made.figures.items()}

    def times(size: int) -> list[tuple[str, float]]:
        return [("one device", 2.0), ("all devices", 256 / size), ("all threads", 4.0)]

    found = figures(32, 64, 128, 256)
    assert found["small_speedup"] == pytest.approx(0.5)
    assert found["small_advantage_over_threads"] == pytest.approx(1.0)
    assert found["small_dispatch_fraction"] == pytest.approx(0.5)
    assert (found["largest_speedup"], found["largest_speedup_size"]) == (pytest.approx(2), 256)
    assert figures(256, 512)["small_speedup"] == pytest.approx(2)


@pytest.mark.usefixtures("in_process")
def test_a_single_device_is_timed_by_itself_and_threads_are_asked_for_as_the_command_takes_them(
    load: Callable[[int], Backend],
) -> None:
    result = parallel_core.run_small_ops(load(1), sizes=(8,), rounds=1, budget=600.0)
    assert [case.name for case in result.cases] == ["one device, size 8"]
    assert (result.metrics, result.bands) == ({}, {})
    assert judge(1.0, small_ops.SPEEDUP, result).judgement == "open"
    assert result.answer is not None
    assert len(result.answer.sentences) == 1
    assert result.answer.would_change == "A second device (--devices 2)."
    result = parallel_core.run_small_ops(load(2), sizes=(8, 32), rounds=2, budget=600.0)
    assert len(result.series["speedup all threads"]) == 2


def cases(*seconds: float) -> list[Case]:
    return [case("any", *[taken] * 3) for taken in seconds]


@pytest.mark.parametrize(
    ("spread", "crossing"),
    [
        ((1.5, 1.5, 1.5, 1.5), None),
        ((0.5, 0.5, 0.5, 0.5), 8),
        ((1.0, 0.5, 1.0, 1.0), None),  # a single size, by chance
        ((1.0, 1.0, 1.0, 0.5), pytest.approx(32)),
        ((2.0, 2.0, 0.5, 0.5), pytest.approx(16 * 2**0.5)),
        ((2.0, 2.0, 0.98, 0.5), pytest.approx(16 * 2 ** (1 / log2(2 / 0.98)))),  # half of them beyond the noise
        ((2.0, 0.98, 0.98, 0.5), None),  # a third
        ((1.0, 0.5, 0.5, 1.0), None),
    ],
)
def test_the_crossing_is_interpolated_and_beyond_the_noise(spread: tuple[float, ...], crossing: float | None) -> None:
    assert small_ops.crossing_size((8, 16, 32, 64), cases(1, 1, 1, 1), cases(*spread)) == crossing


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=8))
def test_the_crossing_is_one_of_the_sizes_or_between_two(times: list[tuple[float, float]]) -> None:
    sizes = [2**power for power in range(3, 3 + len(times))]
    alone, spread = (cases(*(pair[k] for pair in times)) for k in (0, 1))
    crossing = small_ops.crossing_size(sizes, alone, spread)
    ratios = [times_as_long(*pair, among=len(sizes)) for pair in zip(spread, alone, strict=True)]
    if crossing is None:
        assert not all(decide(ratio, 1.0) == 0 for ratio in ratios)
    else:
        after = {size for size in sizes if size > crossing * (1 + 1e-9)} or {sizes[-1]}
        assert sizes[0] * (1 - 1e-9) <= crossing <= sizes[-1] * (1 + 1e-9)
        assert not [ratio for size, ratio in zip(sizes, ratios, strict=True) if size in after and decide(ratio, 1.0)]
