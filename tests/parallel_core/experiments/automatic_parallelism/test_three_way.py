"""`three-way`: what is launched where, which figures follow, and which multiplications count."""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

import parallel_core
from backends import Backend
from backends.profiling import Span
from parallel_core.experiments import copying, workloads
from parallel_core.experiments.automatic_parallelism import three_way
from parallel_core.experiments.runner.formulas import interval_of
from parallel_core.experiments.runner.tallies import Tally, repetition_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.measurement import timing
from parallel_core.measurement.confidence_intervals import Interval
from tests.parallel_core.experiments.runner.pretended import case


@pytest.mark.parametrize("devices", [2, 3])
def test_two_devices_compute_and_copy_to_each_other(
    load: Callable[[int], Backend], devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes: list[tuple[str, str]] = []
    copies_of = copying.copies_of

    def recorded_copies_of(*arguments: Any) -> Any:
        target, source = arguments[2], arguments[5]
        routes.append((str(source), str(target)))
        return copies_of(*arguments)

    works_of_cases: list[tuple[Work, ...]] = []
    time = Trial.time

    def recorded_time(trial: Trial, name: str, *works: Work, **options: Any) -> None:
        works_of_cases.append(works)
        time(trial, name, *works, **options)

    monkeypatch.setattr(copying, "copies_of", recorded_copies_of)
    monkeypatch.setattr(Trial, "time", recorded_time)
    result = parallel_core.run_three_way(
        load(devices), size=32, products=5, copies=2, rounds=2, budget=600.0
    )

    *parts, together = result.cases
    assert together.parts == ("products on cpu:1", "products on cpu:2", "copies both ways")
    assert together.parts == tuple(part.name for part in parts)
    assert routes == [("cpu:1", "cpu:2"), ("cpu:2", "cpu:1")]
    (first,), (second,), both_ways, _ = works_of_cases
    assert first is not second
    assert len(both_ways) == 2
    assert result.metrics["possible_on_cores_fraction"] <= result.metrics["possible_fraction"]


def test_the_cores_work_in_rounds_that_count(
    load: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of three rounds only the first was quiet; in it the cores work 1000 s for each of the parts,
    # else not at all.
    monkeypatch.setattr(timing, "_quietest", lambda *_: [0])
    calls = count()

    def process_time() -> float:
        """Return a time that stands still but for the first round.

        It is asked for at the start and at the end of each of three parts: six times in the
        warm-up, and six times in each round.
        """
        calls_since_warm_up = next(calls) - 6
        calls_in_first_round = min(max(calls_since_warm_up, 0), 6)
        return 1000.0 * calls_in_first_round

    monkeypatch.setattr(three_way, "process_time", process_time)
    result = parallel_core.run_three_way(
        load(2), size=32, products=5, copies=2, rounds=3, budget=600.0
    )
    assert result.metrics["possible_on_cores_fraction"] < 0
    assert result.metrics["possible_fraction"] > 0


def estimate(interval: Interval | None) -> float:
    """Return the estimate of an interval, which must have been measured."""
    assert interval is not None
    return interval.estimate


def test_what_can_be_saved_is_bounded_by_the_longest_part_and_by_the_cores() -> None:
    parts = {name: case(name, 1.0, 1.0, 1.0) for name in ("a", "b", "c")}
    together = case("all at once", 1.5, 1.5, 1.5, parts=tuple(parts))
    cases = {**parts, together.name: together}

    def possible_on_cores(share: float) -> Interval | None:
        return interval_of(partial(three_way.possible, on_cores=share), cases)

    # Three seconds in turn took one and a half.
    assert estimate(three_way.SAVED.measured(cases)) == pytest.approx(0.5)
    # The longest part, a third of the time, cannot be saved.
    assert estimate(three_way.POSSIBLE.measured(cases)) == pytest.approx(2 / 3)
    # Cores that are busy for half of the time leave half to be saved; for a tenth, the longest part
    # is what bounds it.
    assert estimate(possible_on_cores(0.5)) == pytest.approx(0.5)
    assert estimate(possible_on_cores(0.1)) == pytest.approx(2 / 3)


def test_earlier_results_travel_to_the_other_device(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    results_and_devices: list[tuple[object, ...]] = []
    monkeypatch.setattr(workloads, "multiplied", lambda *_: [])
    monkeypatch.setattr(
        copying, "copy_in_turn", lambda *copied: results_and_devices.append(copied[3:5])
    )
    results = [["first"] * 50, ["second"] * 50]
    buffers = [[None] * 50, [None] * 50]

    three_way.all_at_once(Trial(backend, {}), [None, None], results, buffers, 1)

    first_device, second_device = backend.devices[:2]
    both_ways = [("first", second_device), ("second", first_device)]
    assert results_and_devices == both_ways * 50


def computed(device: str, start: int, end: int, queue: str = "compute") -> Span:
    """Return a multiplication on a device."""
    return Span("matmul", "compute", device, queue, start, end)


def copied(device: str, start: int, end: int, name: str = "copy") -> Span:
    """Return a copy to a device."""
    return Span(name, "copy", device, "copy", start, end)


def with_calls(*spans: Span) -> list[Span]:
    """Return spans in their order, after the calls that launched the copies among them."""
    copies = [span for span in spans if span.kind == "copy"]
    calls = [Span("copy_to", "host", "host", "Python", 0, 0) for _ in copies]
    return [*calls, *sorted(spans, key=lambda span: span.start)]


def tally(spans: list[Span]) -> Tally:
    """Return how many multiplications count, and of how many."""
    return three_way.computed_while_copied_both_ways(repetition_of(spans))


def test_a_multiplication_counts_if_both_directions_were_copied_during_half_of_it() -> None:
    # The second multiplication of each device runs while one direction is copied after the other.
    products = [
        computed("cpu:1", 0, 10),
        computed("cpu:1", 10, 20),
        computed("cpu:2", 0, 10),
        computed("cpu:2", 10, 20),
    ]
    there = [copied("cpu:2", 2, 9), copied("cpu:2", 10, 14)]
    back = [copied("cpu:1", 3, 9), copied("cpu:1", 14, 18)]
    assert tally(with_calls(*products, *there, *back)) == (2, 4)
    assert tally(with_calls(*products, *there)) == (0, 4)
    # Copies of one direction by two workers are one direction.
    assert tally(with_calls(*products, *there, copied("cpu:2", 3, 9))) == (0, 4)
    # Both directions are copied when all is computed.
    afterwards = [copied("cpu:2", 20, 24), copied("cpu:1", 22, 26)]
    assert tally(with_calls(*products, *afterwards)) == (0, 4)


def test_a_profiler_that_leaves_out_copies_or_records_them_twice_is_no_witness() -> None:
    copy_back = copied("cpu:1", 5, 9)
    recorded = with_calls(computed("cpu:1", 0, 10), copied("cpu:2", 2, 6), copy_back)
    assert tally(recorded).of == 1
    assert tally([span for span in recorded if span != copy_back]).of == 0
    assert tally([*recorded, copied("cpu:1", 18, 19)]).of == 0


def test_a_gpu_s_directions_have_names() -> None:
    to_host = copied("gpu:0", 1, 8, "Memcpy DtoH")
    to_device = copied("gpu:0", 2, 9, "Memcpy HtoD")
    assert tally(with_calls(computed("gpu:0", 0, 10), to_host, to_device)) == (1, 1)


def test_a_long_copy_meets_all_that_go_the_other_way_meanwhile() -> None:
    long_copy = copied("cpu:2", 0, 100)
    short_copies = [copied("cpu:1", start, start + 5) for start in (10, 50, 98)]
    moments = three_way.moments_of_both_ways([long_copy, *short_copies])
    ends = [(moment.start, moment.end) for moment in moments]
    assert ends == [(10, 15), (50, 55), (98, 100)]
