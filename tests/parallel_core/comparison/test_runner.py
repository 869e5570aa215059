"""A whole comparison on a made-up machine, with a clock of its own: it keeps to its minutes; and
real processes.
"""

import asyncio
import math
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallel_core.comparison.cells import (
    OWN_ENGINE,
    Cell,
    CellResults,
    Comparison,
    FailedRun,
    with_engines_that_ran,
)
from parallel_core.comparison.plan import SOUNDING, Plan
from parallel_core.comparison.runner import Chosen, NextRun, Ran, run_cells, run_comparison
from parallel_core.comparison.time_budget import GROWTH, work_of
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.fresh_process import Measured
from parallel_core.measurement.result import Case
from tests.parallel_core.comparison.made_up import comparison, result
from tests.parallel_core.comparison.test_plan import QUICK

PLAN = replace(
    QUICK,
    experiments=tuple(
        EXPERIMENTS[name] for name in ("async", "parallel", "overlap", "data-parallel")
    ),
    engines=("async", "sync"),
)
SECONDS = PLAN.seconds
START, FIXED, REPETITION = 1.5, 1.0, 0.03
"""Seconds of a process on a machine of usual speed, at the smallest sizes."""


@dataclass
class Machine:
    """A machine with a clock; its processes take `slowness` times as long as usual, and some behave
    oddly.
    """

    slowness: float = 1.0
    slow_kernels: float = 1.0
    """How many times as long one framework's computations take as the other's."""
    later: float = 1.0
    """How many times slower still it is in the last half of the time."""
    hanging: frozenset[Cell] = frozenset()
    silent: frozenset[str] = frozenset()
    """The sides whose soundings give nothing."""
    now: float = 0.0
    deadlines: list[float] = field(default_factory=list)
    """Of its processes."""

    def _pass(self, seconds: float) -> float:
        slowness = self.slowness * (self.later if self.now > SECONDS / 2 else 1)
        self.now += seconds * slowness
        return seconds * slowness

    async def run(self, plan: Plan, run: NextRun, chosen: Chosen, deadline: float) -> Ran:
        self.deadlines.append(deadline)
        until = self.now + deadline
        start = self._pass(START)
        measured: dict[Cell, Measured] = {}
        for cell in run.cells:
            own, began = chosen[cell.experiment], self.now
            least = work_of(EXPERIMENTS[cell.experiment], plan.mode).least
            growth = max(
                ((own[name] / least[name]) ** GROWTH[name] for name in least if name in own),
                default=1,
            )
            repetition = REPETITION * growth * (self.slow_kernels if cell.backend == "mxnet" else 1)
            repetitions = (
                1 if cell.experiment == "data-parallel" else 2 if own.get("rounds") == 1 else 4
            )
            foreseen = FIXED + repetitions * repetition
            foreseen += START / 2 + 3 * repetition if plan.traces_in and run.round == 1 else 0
            seconds = self._pass(foreseen)
            hangs = cell in self.hanging or (run.round == SOUNDING and cell.side in self.silent)
            if hangs or self.now > until:
                self.now = max(until, began)
                return Ran(
                    measured, {cell: FailedRun(run.round, "took too long", refused=False)}, start
                )
            took = (repetition * seconds / foreseen,)
            case = Case(
                EXPERIMENTS[cell.experiment].case, took, took, () if repetitions == 1 else took
            )
            gave = result(
                cell, {"run": 1.0}, cases=(case,), parameters={"copies": 7, "products": 20, **own}
            )
            measured[cell] = Measured(gave, began, self.now)
        return Ran(measured, {}, start)

    def compare(
        self, most: float = 1.2, **changes: Any
    ) -> tuple[Comparison, list[tuple[float, NextRun]]]:
        """Compare here; return the comparison, and the runs, each with the time at which it was
        announced.

        It ends within `most` of its time.
        """
        seen: list[tuple[float, NextRun]] = []
        kept: list[Comparison] = []
        plan = replace(PLAN, **changes)
        running = run_comparison(
            plan,
            "compare",
            lambda run: seen.append((self.now, run)),
            kept.append,
            self.run,
            lambda: self.now,
        )
        found = asyncio.run(running)
        assert self.now <= most * plan.seconds
        # Whatever counts was kept when it had been measured.
        assert kept[-1] == found
        assert len(kept) == sum(run.round != SOUNDING for _, run in seen)
        return found, seen


def test_on_a_machine_that_is_far_too_slow_every_cell_is_run_once() -> None:
    found, seen = Machine(slowness=6.0).compare(most=math.inf)
    assert [len(cell.results) for cell in found.cells] == [1] * len(PLAN.cells)
    assert not any(run.fits for _, run in seen if run.round == 1)


@given(st.floats(0.01, 0.2))
def test_a_round_that_is_longer_than_the_time_is_foreseen_before_it_begins(share: float) -> None:
    """The first process of the round says so, once every cell was timed, and it lasts about as long
    as foreseen.
    """
    machine = Machine()
    found, seen = machine.compare(most=math.inf, seconds=share * SECONDS)
    began, first = next((at, run) for at, run in seen if run.round == 1)
    taken = machine.now / (share * SECONDS)
    assert taken <= 1.3 if first.fits else (found.rounds == 1 and taken > 0.9)
    assert first.seconds_left == pytest.approx(machine.now - began, rel=0.3)


@given(st.floats(0.1, 1.8), st.floats(1.0, 10.0))
def test_it_keeps_to_its_minutes_on_quick_and_slow_machines(
    slowness: float, slow_kernels: float
) -> None:
    machine = Machine(slowness, slow_kernels)
    found, seen = machine.compare()
    assert machine.now >= 0.8 * SECONDS or found.rounds == 10
    assert all(len(cell.results) == found.rounds >= 3 for cell in found.cells)
    # From the first minute on, in which every cell is timed once, estimates are right for the
    # rounds that are foreseen.
    first = next(at for at, run in seen if run.round == 1)
    assert first <= 60
    for at, run in seen:
        left = machine.now - at
        # Whether another round fits may be known late, and a round may be half of what is left.
        if at >= first and left > 30 and run.rounds == found.rounds:
            assert run.seconds_left == pytest.approx(left, rel=0.3)


@settings(max_examples=5)
@given(st.floats(2.0, 6.0))
def test_on_a_machine_that_becomes_slow_there_are_fewer_rounds(later: float) -> None:
    found, _ = Machine(slowness=0.5, later=later).compare()
    assert found.rounds >= 1


@pytest.mark.parametrize("seconds", [SECONDS, math.inf])
def test_all_cells_of_an_experiment_do_the_same_work_and_that_which_is_given(
    seconds: float,
) -> None:
    machine = Machine(slow_kernels=7.0)
    found, _ = machine.compare(
        math.inf, seconds=seconds, rounds=3, sizes={"parallel": {"size": 200}}
    )
    for experiment in found.experiments:
        parameters = [one.parameters for cell in found.of(experiment) for one in cell.results]
        assert all(one == parameters[0] for one in parameters)
        assert experiment != "parallel" or parameters[0]["size"] == 200


def test_a_cell_that_hangs_is_killed_and_costs_the_others_no_round() -> None:
    hanging = Cell("overlap", "torch", "async")
    found, _ = Machine(slowness=0.5, hanging=frozenset({hanging})).compare()
    for cell in found.cells:
        assert bool(cell.failures) == (cell.cell == hanging)
        assert len(cell.results) == (0 if cell.failures else found.rounds)


@pytest.mark.parametrize(
    "silent", [{"mxnet async"}, {"mxnet async", "mxnet sync", "torch async", "torch sync"}]
)
def test_what_a_sounding_does_not_tell_is_found_out_in_the_first_round(silent: set[str]) -> None:
    found, seen = Machine(slowness=0.5, silent=frozenset(silent)).compare()
    assert next(at for at, run in seen if run.round == 1) <= 0.3 * SECONDS
    assert all(len(cell.valid) == found.rounds >= 3 for cell in found.cells)


def test_rounds_that_are_asked_for_are_not_exceeded_and_may_end_a_little_late() -> None:
    found, seen = Machine(slowness=0.2).compare(rounds=2)
    assert (found.rounds, {run.round for _, run in seen}) == (2, {SOUNDING, 1, 2})
    # Here not even the smallest sizes fit.
    late = Machine()
    found, _ = late.compare(most=1.1, rounds=3, seconds=100.0)
    assert all(len(cell.results) == 3 for cell in found.cells)
    assert late.now > 100.0


def test_a_comparison_in_full_keeps_to_its_minutes_too() -> None:
    found, seen = Machine(slowness=0.5).compare(mode="full", shared=False, seconds=4 * SECONDS)
    assert all(len(cell.results) == found.rounds >= 3 for cell in found.cells)
    # After the soundings each cell has processes of its own.
    assert all(len(run.cells) == (4 if run.round == SOUNDING else 1) for _, run in seen)


def test_without_a_time_there_is_no_sounding_and_processes_have_the_whole_deadline() -> None:
    machine = Machine()
    found, seen = machine.compare(rounds=3, seconds=math.inf)
    assert all(len(cell.results) == found.rounds == 3 for cell in found.cells)
    assert (found.options["seconds"], seen[0][1].round, {*machine.deadlines}) == (
        None,
        1,
        {PLAN.deadline},
    )


NUMPY = Plan(
    experiments=(EXPERIMENTS["building-blocks"], EXPERIMENTS["parallel"]),
    backends=("numpy",),
    engines=(OWN_ENGINE,),
    interpreters={"numpy": sys.executable},
    mode="quick",
)
FIRST, SECOND = NUMPY.cells


def ran(python: Path, script: str = "", deadline: float = 60.0) -> Ran:
    """Run both cells in one process, of a script in place of a Python, if there is one."""
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    run = NextRun(NUMPY.cells, round=1, rounds=1, left=1, seconds_left=None)
    small: Chosen = {"building-blocks": {"rounds": 1}, "parallel": {"rounds": 1, "size": 16}}
    return asyncio.run(
        run_cells(replace(NUMPY, interpreters={"numpy": str(python)}), run, small, deadline)
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    """What a process measured of both cells, and the file with the lines that it wrote."""
    folder = tmp_path_factory.mktemp("measured")
    return ran(folder / "python", f'{sys.executable} "$@" | tee {folder}/lines'), folder / "lines"


def test_cells_that_share_a_process_are_named_by_what_they_ran_on(
    measured: tuple[Ran, Path],
) -> None:
    both, _ = measured
    assert [one.result.parameters.get("size") for one in both.measured.values()] == [None, 16]
    assert (list(both.measured), both.failures) == ([FIRST, SECOND], {})
    assert both.start > 0
    results = (
        CellResults(FIRST, (both.measured[FIRST].result,)),
        CellResults(replace(SECOND, backend="torch")),
    )
    named = with_engines_that_ran(comparison(*results))
    assert [str(one.cell) for one in named.cells] == [
        "building-blocks on numpy sync",
        "parallel on torch",
    ]
    assert with_engines_that_ran(named) == named


@pytest.mark.parametrize(
    ("script", "is_kept", "reason", "refused"),
    [
        # What was measured before a crash is kept, and a disturbed result is one. Each stands
        # behind an empty line.
        ("head -n 2 LINES; kill -SEGV $$", True, "was killed by SIGSEGV", False),
        ("head -n 2 LINES; echo no >&2; exit 3", True, "no", False),
        ("sleep 1000 & sleep 1000", False, "gave no result within 0.5 s and was killed", False),
        (
            "echo 'parallel-core: numpy is not installed' >&2; exit 2",
            False,
            "numpy is not installed",
            True,
        ),
        ("echo '{'", False, "gave something else than the result that was asked for", False),
        ("tail -n 1 LINES", False, "gave something else than the", False),
        ("", False, "cannot be started: No such file or directory", True),
    ],
)
def test_the_first_cell_without_a_result_bears_what_befell_the_process(
    tmp_path: Path,
    measured: tuple[Ran, Path],
    script: str,
    is_kept: bool,
    reason: str,
    refused: bool,
) -> None:
    script = script.replace("LINES", str(measured[1]))
    gave = ran(tmp_path / "python", script, deadline=0.5 if "sleep" in script else 60.0)
    # What comes after it was not reached: it is run in another process.
    assert list(gave.measured) == [FIRST][:is_kept]
    ((cell, failure),) = gave.failures.items()
    assert (cell, failure.round, failure.refused) == (NUMPY.cells[is_kept], 1, refused)
    assert failure.reason.removeprefix(f"{tmp_path}/python ").startswith(reason)
