"""`three-way`: what is launched where, which figures follow, and which multiplications count."""

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

import parallel_core
from backends import Backend
from backends.profiling import Span
from parallel_core.experiments import copying, workloads
from parallel_core.experiments.automatic_parallelism import three_way
from parallel_core.experiments.runner.formulas import interval_of
from parallel_core.experiments.runner.tallies import repetition_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement import timing
from tests.parallel_core.experiments.runner.pretended import case


@pytest.mark.parametrize("devices", [2, 3])
def test_both_compute_and_copy(
    load: Callable[[int], Backend], devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    went, right = [], copying.copies_of
    monkeypatch.setattr(
        copying,
        "copies_of",
        lambda *args: went.append((str(args[5]), str(args[2]))) or right(*args),
    )
    result = parallel_core.run_three_way(
        load(devices), size=32, products=5, copies=2, rounds=2, budget=600.0
    )
    *parts, together = result.cases
    assert [part.name for part in parts] == [
        "products on cpu:1",
        "products on cpu:2",
        "copies both ways",
    ]
    assert together.parts == tuple(part.name for part in parts)
    added = sum(part.median for part in parts)
    assert result.metrics["saved_fraction"] == pytest.approx((added - together.median) / added)
    assert went == [("cpu:1", "cpu:2"), ("cpu:2", "cpu:1")]
    assert result.metrics["possible_on_cores_fraction"] <= result.metrics["possible_fraction"]


def test_the_cores_work_in_rounds_that_count(
    load: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of three rounds only the first was quiet; in it the cores work 1000 s for each of the parts,
    # else not at all.
    monkeypatch.setattr(timing, "_quietest", lambda *_: [0])
    calls = count()
    monkeypatch.setattr(three_way, "process_time", lambda: 1000.0 * min(max(next(calls) - 6, 0), 6))
    found = parallel_core.run_three_way(
        load(2), size=32, products=5, copies=2, rounds=3, budget=600.0
    ).metrics
    assert found["possible_on_cores_fraction"] < 0 < found["possible_fraction"]


def test_what_can_be_saved_is_bounded_by_the_longest_part_and_by_the_cores() -> None:
    cases = {name: case(name, 1.0, 1.0, 1.0) for name in ("a", "b", "c")}
    cases |= {"all at once": case("all at once", 1.5, 1.5, 1.5, parts=tuple(cases))}
    found = [three_way.SAVED.measured(cases), three_way.POSSIBLE.measured(cases)]
    found += [
        interval_of(partial(three_way.possible, on_cores=share), cases) for share in (0.5, 0.1)
    ]
    assert [one and one.estimate for one in found] == pytest.approx([0.5, 2 / 3, 0.5, 2 / 3])


def test_earlier_results_travel_to_the_other_device(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    went: list[tuple[object, object]] = []
    monkeypatch.setattr(workloads, "multiplied", lambda *_: [])
    monkeypatch.setattr(copying, "copy_in_turn", lambda *args: went.append((args[3], args[4])))
    results, buffers = [["first"] * 50, ["second"] * 50], [[None] * 50, [None] * 50]
    three_way.all_at_once(Trial(backend, {}), [None, None], results, buffers, 1)
    assert went == [("first", backend.devices[1]), ("second", backend.devices[0])] * 50


def computed(device: str, start: int, end: int, queue: str = "compute") -> Span:
    return Span("matmul", "compute", device, queue, start, end)


def copied(device: str, start: int, end: int, name: str = "copy") -> Span:
    return Span(name, "copy", device, "copy", start, end)


def with_calls(*spans: Span) -> list[Span]:
    """Put spans in their order, after the calls that launched the copies."""
    copies = [span for span in spans if span.kind == "copy"]
    calls = [Span("copy_to", "host", "host", "Python", 0, 0) for _ in copies]
    return [*calls, *sorted(spans, key=lambda span: span.start)]


def test_a_multiplication_counts_if_both_directions_were_copied_during_a_moment_of_it() -> None:
    # The second multiplication of each device runs while one direction is copied after the other.
    products = [computed(device, at, at + 10) for device in ("cpu:1", "cpu:2") for at in (0, 10)]
    there = [copied("cpu:2", 2, 6), copied("cpu:2", 10, 14)]
    back = [copied("cpu:1", 5, 9), copied("cpu:1", 14, 18)]
    tally = three_way.computed_while_copied_both_ways
    assert tally(repetition_of(with_calls(*products, *there, *back))) == (2, 4)
    assert tally(repetition_of(with_calls(*products, *there))) == (0, 4)
    # Copies of one direction by two workers are one direction.
    assert tally(repetition_of(with_calls(*products, *there, copied("cpu:2", 5, 9)))) == (0, 4)
    # Both directions are copied when all is computed.
    late = [copied("cpu:2", 20, 24), copied("cpu:1", 22, 26)]
    assert tally(repetition_of(with_calls(*products, *late))) == (0, 4)
    # A profiler that leaves out copies, or records them twice, is no witness.
    recorded = with_calls(*products, *there, *back)
    assert tally(repetition_of(recorded[:-1])).of == 0
    assert tally(repetition_of([*recorded, copied("cpu:1", 18, 19)])).of == 0


def test_a_gpu_s_directions_have_names() -> None:
    to_host, to_device = "Memcpy DtoH", "Memcpy HtoD"
    copies = [copied("gpu:0", 2, 6, to_host), copied("gpu:0", 4, 8, to_device)]
    repetition = repetition_of(with_calls(computed("gpu:0", 0, 10), *copies))
    assert three_way.computed_while_copied_both_ways(repetition) == (1, 1)


def test_a_long_copy_meets_all_that_go_the_other_way_meanwhile() -> None:
    long, short = copied("cpu:2", 0, 100), [copied("cpu:1", at, at + 5) for at in (10, 50, 98)]
    moments = three_way.moments_of_both_ways([long, *short])
    assert moments == [(10, 15), (50, 55), (98, 100)]
