"""Two devices compute while results travel both ways: what is launched, what is checked, and what could be saved."""

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

import parallel_core
from backends import Backend
from parallel_core.experiments import copying, works
from parallel_core.experiments.automatic_parallelism import three_way
from parallel_core.experiments.runner.metrics import interval_of
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement import timing
from tests.parallel_core.experiments.runner.pretended import case


@pytest.mark.parametrize("devices", [2, 3])
def test_two_devices_compute_and_copy(
    load: Callable[[int], Backend], devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    went, right = [], copying.copies_of
    monkeypatch.setattr(copying, "copies_of", lambda *args: went.append((str(args[5]), str(args[2]))) or right(*args))
    result = parallel_core.run_three_way(load(devices), size=32, products=5, copies=2, rounds=2, budget=600.0)
    *parts, together = result.cases
    assert [part.name for part in parts] == ["products on cpu:1", "products on cpu:2", "copies both ways"]
    assert together.parts == tuple(part.name for part in parts)
    added = sum(part.median for part in parts)
    assert result.metrics["saved_fraction"] == pytest.approx((added - together.median) / added)
    assert went == [("cpu:1", "cpu:2"), ("cpu:2", "cpu:1")]
    assert result.metrics["possible_on_cores_fraction"] <= result.metrics["possible_fraction"]


def test_what_the_cores_worked_is_of_the_rounds_that_count(
    load: Callable[[int], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of three rounds only the first was quiet; in it the cores work 1000 s for each of the parts, else not at all.
    monkeypatch.setattr(timing, "_quietest", lambda *_: [0])
    calls = count()
    monkeypatch.setattr(three_way, "process_time", lambda: 1000.0 * min(max(next(calls) - 6, 0), 6))
    found = parallel_core.run_three_way(load(2), size=32, products=5, copies=2, rounds=3, budget=600.0).metrics
    assert found["possible_on_cores_fraction"] < 0 < found["possible_fraction"]


def test_what_can_be_saved_is_bounded_by_the_longest_part_and_by_the_cores() -> None:
    cases = {name: case(name, 1.0, 1.0, 1.0) for name in ("a", "b", "c")}
    cases |= {"all at once": case("all at once", 1.5, 1.5, 1.5, parts=tuple(cases))}
    found = [three_way.SAVED.measured(cases), three_way.POSSIBLE.measured(cases)]
    found += [interval_of(partial(three_way.possible, on_cores=share), cases) for share in (0.5, 0.1)]
    assert [one and one.estimate for one in found] == pytest.approx([0.5, 2 / 3, 0.5, 2 / 3])


def test_earlier_results_travel_to_the_other_device(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    went: list[tuple[object, object]] = []
    monkeypatch.setattr(works, "multiplied", lambda *_: [])
    monkeypatch.setattr(
        copying, "copy_in_turn", lambda _, buffers, index, result, device, copies: went.append((result, device))
    )
    results, buffers = [["first"] * 50, ["second"] * 50], [[None] * 50, [None] * 50]
    three_way.all_at_once(Trial(backend, {}), [None, None], results, buffers, 1)
    assert went == [("first", backend.devices[1]), ("second", backend.devices[0])] * 50
