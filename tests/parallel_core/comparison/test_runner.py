"""A whole comparison on a made-up machine, with a clock of its own: it keeps to its minutes, and loses nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.comparison.cells import Cell, Comparison, FailedRun
from parallel_core.comparison.plan import Plan
from parallel_core.comparison.processes import Ran
from parallel_core.comparison.runner import run_comparison
from parallel_core.comparison.schedule import CALIBRATION, NextRun
from parallel_core.comparison.time_budget import GROWTH, LEAST
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Case, Result
from tests.parallel_core.comparison.made_up import result

SECONDS = 4 * 60.0
PLAN = Plan(
    experiments=tuple(EXPERIMENTS[name] for name in ("async", "parallel", "overlap", "data-parallel")),
    backends=("mxnet", "torch"),
    engines=("async", "sync"),
    interpreters={"mxnet": "python", "torch": "python"},
    rounds=None,
    mode="quick",
    shared=True,
    seconds=SECONDS,
    traces_in=Path("nowhere"),
)
START, FIXED, REPETITION = 1.5, 1.0, 0.03
"""Seconds of a process on a machine of usual speed, at the smallest sizes."""


@dataclass
class Machine:
    """A machine with a clock; its processes take `slowness` times as long as usual, and some behave oddly."""

    slowness: float = 1.0
    slow_kernels: float = 1.0
    """How many times as long one framework's computations take as the other's."""
    later: float = 1.0
    """How many times slower still it is in the last half of the time."""
    hanging: frozenset[Cell] = frozenset()
    silent: frozenset[str] = frozenset()
    """The sides whose soundings give nothing."""
    now: float = 0.0
    processes: list[tuple[int, tuple[Cell, ...], float]] = field(default_factory=list)
    """The round, cells and deadline of each."""

    def _pass(self, seconds: float) -> float:
        slowness = self.slowness * (self.later if self.now > SECONDS / 2 else 1)
        self.now += seconds * slowness
        return seconds * slowness

    async def run(
        self, plan: Plan, cells: Sequence[Cell], chosen: Mapping[str, Mapping[str, Any]], turn: int, deadline: float
    ) -> Ran:
        self.processes.append((turn, tuple(cells), deadline))
        start = self._pass(START)
        outcomes: dict[Cell, Result | FailedRun] = {}
        seconds: dict[Cell, float] = {}
        for cell in cells:
            if cell in self.hanging or (turn == CALIBRATION and cell.side in self.silent):
                seconds[cell] = max(0.0, deadline - start - sum(seconds.values()))
                self.now += seconds[cell]
                outcomes[cell] = FailedRun(turn, "hung", refused=False)
                break
            own = chosen.get(cell.experiment, {})
            growth = max(((own[name] / LEAST[name]) ** GROWTH[name] for name in GROWTH if name in own), default=1)
            repetition = REPETITION * growth * (self.slow_kernels if cell.backend == "mxnet" else 1)
            repetitions = 1 if cell.experiment == "data-parallel" else 2 if own.get("rounds") == 1 else 4
            tracing = START / 2 + 3 * repetition if plan.traces_in and turn == 1 else 0
            before = self.now
            seconds[cell] = self._pass(FIXED + repetitions * repetition + tracing)
            if start + sum(seconds.values()) > deadline:
                seconds[cell] = max(0.0, deadline - start - (sum(seconds.values()) - seconds[cell]))
                self.now = before + seconds[cell]
                outcomes[cell] = FailedRun(turn, "took too long", refused=False)
                break
            took = repetition * seconds[cell] / (FIXED + repetitions * repetition + tracing)
            warmups = () if repetitions == 1 else (took,)
            case = Case(EXPERIMENTS[cell.experiment].case, (took,), (took,), warmups)
            outcomes[cell] = result(cell, {"run": 1.0}, cases=(case,), parameters={"copies": 7, **own})
        return Ran(outcomes, seconds, start)

    def compare(self, plan: Plan = PLAN) -> tuple[Comparison, list[tuple[float, NextRun]]]:
        """Compare here; return the comparison, and the runs, each with the time at which it was announced."""
        seen: list[tuple[float, NextRun]] = []
        command = "parallel-core compare"
        comparison = asyncio.run(
            run_comparison(
                plan,
                command,
                lambda run: seen.append((self.now, run)),
                lambda _: None,
                self.run,
                lambda: self.now,
            )
        )
        return comparison, seen


@given(st.floats(0.1, 1.8), st.floats(1.0, 10.0))
def test_it_keeps_to_its_minutes_on_quick_and_slow_machines(slowness: float, slow_kernels: float) -> None:
    machine = Machine(slowness, slow_kernels)
    comparison, seen = machine.compare()
    taken = machine.now
    assert 0.8 * SECONDS <= taken <= 1.2 * SECONDS or comparison.rounds == 10
    assert taken <= 1.2 * SECONDS
    assert comparison.rounds >= 3
    assert all(len(cell.results) == comparison.rounds for cell in comparison.cells)
    # From the first minute on, in which every cell is timed once, estimates are right for the rounds that are foreseen.
    first = next(at for at, run in seen if run.round == 1)
    assert first <= 60
    for at, run in seen:
        left = taken - at
        # Whether another round fits may be known late, and a round may be half of what is left.
        if at >= first and left > 30 and run.rounds == comparison.rounds:
            assert run.seconds_left == pytest.approx(left, rel=0.3)


@given(st.floats(2.0, 6.0))
def test_on_a_machine_that_becomes_slow_there_are_fewer_rounds(later: float) -> None:
    machine = Machine(slowness=0.5, later=later)
    comparison, _ = machine.compare()
    assert machine.now <= 1.2 * SECONDS
    assert comparison.rounds >= 1


def test_on_a_machine_that_is_far_too_slow_every_cell_is_run_once() -> None:
    comparison, _ = Machine(slowness=6.0).compare()
    assert [len(cell.results) for cell in comparison.cells] == [1] * len(PLAN.cells)


def test_all_cells_of_an_experiment_do_the_same_work() -> None:
    comparison, _ = Machine(slow_kernels=7.0).compare()
    for experiment in comparison.experiments:
        parameters = [result.parameters for cell in comparison.of(experiment) for result in cell.results]
        assert all(one == parameters[0] for one in parameters)
    # What calibrates itself was asked to, once, in a process that counts.
    assert all(result.parameters["copies"] == 7 for cell in comparison.of("overlap") for result in cell.results)


def test_a_cell_that_hangs_is_killed_and_costs_the_others_no_round() -> None:
    hanging = Cell("overlap", "torch", "async")
    machine = Machine(slowness=0.5, hanging=frozenset({hanging}))
    comparison, _ = machine.compare()
    assert machine.now <= 1.2 * SECONDS
    for cell in comparison.cells:
        if cell.cell == hanging:
            assert cell.failures
            assert not cell.results
        else:
            assert (len(cell.results), len(cell.failures)) == (comparison.rounds, 0)


@pytest.mark.parametrize("silent", [{"mxnet async"}, {"mxnet async", "mxnet sync", "torch async", "torch sync"}])
def test_what_a_sounding_does_not_tell_is_found_out_in_the_first_round(silent: set[str]) -> None:
    machine = Machine(slowness=0.5, silent=frozenset(silent))
    comparison, seen = machine.compare()
    assert next(at for at, run in seen if run.round == 1) <= 0.3 * SECONDS
    assert machine.now <= 1.2 * SECONDS
    assert all(len(cell.valid) == comparison.rounds >= 3 for cell in comparison.cells)


def test_rounds_that_are_asked_for_are_not_exceeded() -> None:
    machine = Machine(slowness=0.2)
    comparison, _ = machine.compare(replace(PLAN, rounds=2))
    assert comparison.rounds == 2
    assert {turn for turn, _, _ in machine.processes} == {CALIBRATION, 1, 2}


def test_a_comparison_in_full_keeps_to_its_minutes_too() -> None:
    machine = Machine(slowness=0.5)
    comparison, _ = machine.compare(replace(PLAN, mode="full", shared=False, seconds=4 * SECONDS))
    assert machine.now <= 1.2 * 4 * SECONDS
    assert all(len(cell.results) == comparison.rounds >= 3 for cell in comparison.cells)
    # After the soundings each cell has processes of its own.
    assert all(len(cells) == (4 if turn == CALIBRATION else 1) for turn, cells, _ in machine.processes)


def test_without_a_time_there_is_no_sounding_and_first_processes_choose_the_sizes() -> None:
    machine = Machine()
    comparison, seen = machine.compare(replace(PLAN, rounds=3, seconds=None, shared=False))
    assert [run.what for _, run in seen if run.round == CALIBRATION] == ["overlap on mxnet async"]
    assert comparison.rounds == 3
    assert {deadline for _, _, deadline in machine.processes} == {PLAN.deadline}
