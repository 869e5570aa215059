"""Timing: what is counted, and in which order; an experiment in a process of its own gives a
result, or a reason.
"""

import gc
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import Backend, ComputationError
from parallel_core import MeasurementError, RequestError
from parallel_core.measurement import timing
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.starter import Turns
from parallel_core.measurement.timing import Benchmark, Timing, TooSlowError, interleave, measure
from parallel_core.system.machine import MachineWatch
from tests.parallel_core.compare import made_up
from tests.parallel_core.jobs.ranks import are_gone, wait_until


def test_rounds_go_back_and_forth_warm_ups_are_kept_apart_and_the_garbage_collector_rests() -> None:
    order: list[str] = []

    def take(name: str) -> tuple[float, float]:
        order.append(name)
        assert not gc.isenabled()
        return len(order), len(order) + 0.5

    first, second = interleave(
        {"a": lambda: take("a"), "b": lambda: take("b")}, rounds=2, warmups=1
    )
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
    monkeypatch.setattr(timing, "watched", lambda *_: next(watches))
    # The warm-up is round -1.
    rounds = count(-1.0)
    (case,) = interleave({"a": lambda: (0.0, next(rounds))}, rounds=3, warmups=1, budget=budget)
    assert list(case.seconds) == counted
    assert case.watch is not None
    assert case.watch.repeated_rounds == len(others) - 3
    assert next(watches, None) is None


def test_no_round_is_repeated_where_processes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = replace(QUIET, others_share=0.5)
    monkeypatch.setattr(timing, "watched", lambda *_: busy)
    turns = Turns()
    turns.are_given = True
    (case,) = interleave({"a": lambda: (0.0, 1.0)}, rounds=3, budget=60.0, turns=turns)
    assert len(case.seconds) == 3


@pytest.fixture
def compiled_at_first(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Timing]:
    """Return what takes 100 s at first and then 1 s, by a clock that only it moves."""
    now = 0.0
    monkeypatch.setattr(Turns, "clock", lambda _: now)
    durations = iter([100.0, *[1.0] * 20])

    def take() -> Timing:
        nonlocal now
        now += (seconds := next(durations))
        return 0.0, seconds

    return take


def test_what_a_warm_up_takes_beyond_a_round_is_not_part_of_the_budget(
    compiled_at_first: Callable[[], Timing],
) -> None:
    (case,) = interleave({"case": compiled_at_first}, rounds=3, warmups=1, budget=10.0)
    assert case.warmup_seconds == (100.0,)
    assert case.seconds == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("budget", "taken"), [(4.0, 3), (3.9, 1), (0.5, 1)])
def test_it_ends_after_one_round_if_too_few_will_fit(
    compiled_at_first: Callable[[], Timing], budget: float, taken: int
) -> None:
    rounds = iter(range(10))

    def take() -> Timing:
        next(rounds)
        return compiled_at_first()

    with nullcontext() if taken == 3 else pytest.raises(TooSlowError) as slow:
        interleave({"case": take}, rounds=3, warmups=1, budget=budget, fewest=3)
    assert next(rounds) == 1 + taken
    assert slow is None or slow.value.seconds_of_round == 1.0


def test_what_is_left_over_after_a_round_is_part_of_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(Turns, "clock", lambda _: now)

    def settle() -> None:
        nonlocal now
        now += 1.0

    # Each case is said to be done at once, and each round leaves work of a second.
    (case,) = interleave({"a": lambda: (0.0, 0.0)}, rounds=10, budget=4.0, settle=settle)
    assert len(case.seconds) == 3
    assert now == 4.0


def test_dispatch_and_completion_are_timed_and_reported(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    x = backend.asarray(np.ones((50, 50), dtype=np.float32), backend.devices[0])
    # What a launch returns in place of an array is not read.
    assert timing._arrays((x, None)) == [x]
    sent, done = measure(backend, lambda: backend.launch(backend.ops.matmul, x, x))
    assert 0 < sent <= done
    with Benchmark("products", backend) as benchmark:
        backend.launch(backend.ops.matmul, x, x)
    assert 0 < benchmark.dispatch_seconds <= benchmark.seconds
    assert capsys.readouterr().out.startswith("products: control returned after ")
    with pytest.raises(ComputationError), Benchmark("broken", backend):
        wide = backend.asarray(np.ones((2, 3), dtype=np.float32), backend.devices[0])
        backend.wait(backend.launch(backend.ops.matmul, wide, wide))
    assert capsys.readouterr().out == ""


SMALL: dict[str, str | int] = {"backend": "numpy", "devices": 3, "size": 16, "rounds": 1}


def test_its_result_comes_back_and_an_option_may_be_given_never() -> None:
    result = measure_elsewhere("parallel", {**SMALL, "variant": ()})
    assert (result.experiment, result.parameters["size"]) == ("parallel", 16)
    backend = result.backend
    assert (backend["name"], backend["variants"]) == ("numpy", [])
    assert backend["devices"] == ["cpu:1", "cpu:2", "cpu:3"]


def test_a_refusal_is_passed_on_and_an_option_may_be_given_twice() -> None:
    with pytest.raises(
        RequestError, match=r"numpy queues .* --variant bulk-on --variant copy-on-own-queue$"
    ):
        measure_elsewhere("parallel", {**SMALL, "variant": ("bulk-on", "copy-on-own-queue")})


@pytest.mark.parametrize(
    ("options", "given", "seconds"),
    [
        ({}, None, 300),
        ({"budget": 15.0}, None, 300),
        ({"budget": 600.0}, None, 3000),
        ({}, 0.05, r"0\.05"),
    ],
)
def test_a_process_may_take_several_times_its_budget(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, float],
    given: float | None,
    seconds: float | str,
) -> None:
    def late(command: list[str], timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(
        MeasurementError,
        match=rf"parallel in a separate process: gave no result within {seconds} s",
    ):
        measure_elsewhere("parallel", options, given)


STARTER = """
import os, subprocess, sys
from parallel_core.measurement.fresh_process import measure_elsewhere
beside = subprocess.Popen(["sleep", "1000"])
print(os.getpid(), beside.pid, flush=True)
measure_elsewhere("overlap", {"backend": "numpy", "budget": 60.0})
"""


def test_a_separate_process_and_nothing_else_ends_with_the_one_that_started_it() -> None:
    command = [sys.executable, "-c", STARTER]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as starter:
        assert starter.stdout is not None
        pid, sleeping = starter.stdout.readline().split()
        children = Path(f"/proc/{pid}/task/{pid}/children")
        wait_until(lambda: len(children.read_text().split()) == 2)
        measuring = [child for child in children.read_text().split() if child != sleeping]
        starter.kill()
    assert are_gone(measuring)
    state = Path(f"/proc/{sleeping}/stat").read_text().rpartition(")")[2].split()[0]
    os.kill(int(sleeping), signal.SIGKILL)
    assert state == "S"


def test_a_number_that_json_does_not_have_is_read_as_none() -> None:
    made = made_up.result(made_up.parallel("torch"), {"on all together": 1.0})
    written = replace(
        made, metrics={"speedup": math.nan, "other": 2.0}, series={"loss": (1.0, math.inf)}
    )
    read = Result.from_json(written.as_json())
    assert math.isnan(read.metrics["speedup"])
    assert read.metrics["other"] == 2.0
    first_loss, last_loss = read.series["loss"]
    assert first_loss == 1.0
    assert math.isnan(last_loss)
