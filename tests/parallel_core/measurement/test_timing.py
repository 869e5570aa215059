"""Timing: what is counted, and in which order."""

import gc
import math
from dataclasses import replace

import numpy as np
import pytest

from backends import Backend, ComputationError
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Benchmark, interleave, measure
from parallel_core.system.machine import MachineWatch


def test_rounds_go_back_and_forth_warm_ups_are_kept_apart_and_the_garbage_collector_rests() -> None:
    order: list[str] = []

    def take(name: str) -> tuple[float, float]:
        order.append(name)
        assert not gc.isenabled()
        return len(order), len(order) + 0.5

    first, second = interleave({"a": lambda: take("a"), "b": lambda: take("b")}, rounds=2, warmups=1)
    assert gc.isenabled()
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
