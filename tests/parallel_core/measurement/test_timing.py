"""Timing: what is counted, in which order, and what cannot be true."""

import gc
import math
from dataclasses import replace

import numpy as np
import pytest

from backends import Backend, ComputationError
from parallel_core.measurement.checks import largest_of, relative_error, why_impossible
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Benchmark, interleave, measure
from parallel_core.system.machine import MachineWatch


def test_rounds_go_back_and_forth_and_warm_ups_are_kept_apart() -> None:
    order: list[str] = []

    def take(name: str) -> tuple[float, float]:
        order.append(name)
        return len(order), len(order) + 0.5

    first, second = interleave({"a": lambda: take("a"), "b": lambda: take("b")}, rounds=2, warmups=1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert first == Case("a", seconds=(4.5, 5.5), dispatch_seconds=(4, 5), warmup_seconds=(1.5,))
    assert second == Case("b", seconds=(3.5, 6.5), dispatch_seconds=(3, 6), warmup_seconds=(2.5,))
    assert (second.median, second.dispatch_median) == (5, 4.5)
    assert second.spread == pytest.approx(1.5 / 5)


QUIET = MachineWatch(1.0, 2.0, 0.0, 0.0, 0.0, None, None)


@pytest.mark.parametrize(
    ("others", "budget", "counted"),
    [
        # By round, what others took; the quietest ones count, in their order.
        ((0.5, 0.0, 0.5, 0.0, 0.0), 60.0, [1, 3, 4]),
        ((0.0, 0.0, 0.01), 60.0, [0, 1, 2]),
        ((0.5, 0.6, 0.7, 0.8, 0.4, 0.3, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9), 60.0, [0, 4, 5]),
        ((0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0), 60.0, [7, 8, 9]),
        # Without a budget nothing is repeated.
        ((0.5, 0.6, 0.7), math.inf, [0, 1, 2]),
    ],
)
def test_rounds_in_which_others_took_time_are_repeated_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, others: tuple[float, ...], budget: float, counted: list[int]
) -> None:
    watches = iter([replace(QUIET, others_share=share) for share in others])
    monkeypatch.setattr("parallel_core.measurement.timing.watched", lambda *_: next(watches))
    taken = iter(range(100))
    (case,) = interleave({"a": lambda: (0.0, float(next(taken)))}, rounds=3, warmups=1, budget=budget)
    assert [seconds - 1 for seconds in case.seconds] == counted
    assert case.warmup_seconds == (0.0,)
    assert case.watch is not None
    assert case.watch.repeated_rounds == len(others) - 3
    assert next(watches, None) is None


def test_what_a_warm_up_takes_beyond_a_round_is_not_part_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("parallel_core.measurement.timing.clock_without_compiling", lambda: now)
    durations = iter([100.0, *[1.0] * 20])

    def take() -> tuple[float, float]:
        nonlocal now
        now += (seconds := next(durations))
        return 0.0, seconds

    (case,) = interleave({"compiled at first": take}, rounds=3, warmups=1, budget=10.0)
    assert case.warmup_seconds == (100.0,)
    assert case.seconds == (1.0, 1.0, 1.0)


def test_the_garbage_collector_rests_while_times_are_taken_and_only_then() -> None:
    collecting: list[bool] = []
    interleave({"a": lambda: (collecting.append(gc.isenabled()), (1.0, 1.0))[1]}, rounds=1)
    assert collecting == [False, False]
    assert gc.isenabled()


def test_dispatch_and_completion_are_timed_and_reported(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    x = backend.asarray(np.ones((50, 50), dtype=np.float32), backend.devices[0])
    sent, done = measure(backend, lambda: backend.launch(backend.ops.matmul, x, x))
    assert 0 < sent <= done
    with Benchmark("products", backend) as benchmark:
        backend.launch(backend.ops.matmul, x, x)
    assert 0 < benchmark.dispatch_seconds <= benchmark.seconds
    told = capsys.readouterr().out
    assert told.startswith("products: control returned after ")
    assert ", done after " in told
    with pytest.raises(ComputationError), Benchmark("broken", backend):
        wide = backend.asarray(np.ones((2, 3), dtype=np.float32), backend.devices[0])
        backend.wait(backend.launch(backend.ops.matmul, wide, wide))
    assert capsys.readouterr().out == ""


def case(name: str, *seconds: float) -> Case:
    return Case(name, seconds, seconds)


@pytest.mark.parametrize(
    ("together", "told"),
    [((1.0, 1.01), False), ((0.97, 0.98), False), ((0.5, 0.51), True), ((0.5, 1.2), False)],
)
def test_faster_than_the_slowest_part_is_impossible_beyond_noise(together: tuple[float, ...], told: bool) -> None:
    problem = why_impossible(case("both", *together), [case("short", 0.3, 0.3), case("long", 1.0, 1.01)])
    assert bool(problem) == told
    assert not problem or "less than its part 'long'" in problem


def test_the_largest_relative_error() -> None:
    expected = np.array([1.0, -4.0])
    assert relative_error(expected, expected) == 0
    assert relative_error(np.array([1.0, -3.0]), expected) == 0.25
    assert relative_error(np.array([1.0]), expected) == float("inf")
    assert not relative_error(np.array([np.nan, 1]), expected) < 1
    # A NaN among errors is not passed over.
    assert all(math.isnan(largest_of(errors)) for errors in ((math.nan, 1.0), (1.0, math.nan), (1.0, 2.0, math.nan)))
    assert largest_of(iter((1.0, 3.0, 2.0))) == 3.0
