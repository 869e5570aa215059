"""A whole comparison on a made-up machine, with a clock of its own: it keeps to its minutes; and
real processes.
"""

import asyncio
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallel_core.compare.plan import Plan
from parallel_core.compare.results import (
    OWN_ENGINE,
    Cell,
    CellResults,
    Comparison,
    FailedRun,
    with_engines_that_ran,
)
from parallel_core.compare.runner import OnResult, run_comparison, run_together
from parallel_core.compare.schedule import Generation, Process, Ran, Schedule
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from tests.parallel_core.compare.made_up import PLAN as TWO_EXPERIMENTS
from tests.parallel_core.compare.made_up import comparison, result

PLAN = replace(
    TWO_EXPERIMENTS,
    experiments=tuple(
        EXPERIMENTS[name] for name in ("async", "parallel", "overlap", "data-parallel")
    ),
    engines=("async", "sync"),
    rounds=10,
    mode="quick",
    seconds=240.0,
    shared=True,
    traces_in=Path("nowhere"),
)
SECONDS = PLAN.seconds
START, OF_A_CELL, COUNTING = 1.5, 2.0, 1.0
"""Seconds of a process on a machine of usual speed, of each of its cells, and of what else each has
in the first round.
"""


@dataclass
class Machine:
    """A machine with a clock; its processes take `slowness` times as long as usual, and some
    hang.
    """

    slowness: float = 1.0
    later: float = 1.0
    """How many times slower still it is in the last half of the time."""
    hanging: frozenset[Cell] = frozenset()
    now: float = 0.0
    deadlines: list[float] = field(default_factory=list)
    """Of its processes."""

    def _pass(self, seconds: float) -> float:
        slowness = self.slowness * (self.later if self.now > SECONDS / 2 else 1)
        self.now += seconds * slowness
        return seconds * slowness

    async def run(
        self,
        schedule: Schedule,
        generation: Generation,
        deadlines: Sequence[float],
        on_result: OnResult,
    ) -> Schedule:
        """Let processes start together, and run one after the other until each ends, hangs or is
        killed.
        """
        self.deadlines += deadlines
        start = self._pass(START)
        ran: list[Ran] = []
        for process, deadline in zip(generation.processes, deadlines, strict=True):
            ran.append(self._run_one(schedule, process, generation.round, deadline, start))
            not_begun = [Ran({})] * (len(generation.processes) - len(ran))
            so_far = schedule.after(generation, (*ran, *not_begun))
            on_result(so_far)
        return so_far

    def _run_one(
        self, schedule: Schedule, process: Process, turn: int, deadline: float, start: float
    ) -> Ran:
        began = self.now - start
        killed_at = began + deadline
        measured: dict[Cell, Result] = {}
        for cell in process:
            self._pass(OF_A_CELL + (COUNTING if turn == 1 else 0.0))
            if cell in self.hanging or self.now > killed_at:
                self.now = killed_at
                failure = FailedRun(turn, "took too long", refused=False)
                return Ran(measured, {cell: failure}, start, deadline)
            names = schedule.plan.to_calibrate(cell.experiment)
            chosen = schedule.chosen[cell.experiment]
            parameters = {**dict.fromkeys((*names, "size"), 64), **chosen}
            main_case = EXPERIMENTS[cell.experiment].case
            measured[cell] = result(cell, {main_case: 1.0}, parameters=parameters)
        return Ran(measured, {}, start, self.now - began)

    def compare(self, **changes: Any) -> tuple[Comparison, list[tuple[float, Generation]]]:
        """Compare here; return the comparison, and the generations, each with the time at which it
        began.
        """
        seen: list[tuple[float, Generation]] = []
        kept: list[Comparison] = []
        plan = replace(PLAN, **changes)

        def on_progress(generation: Generation, results: int, _: Comparison) -> None:
            if results == 0 and (not seen or seen[-1][1] is not generation):
                seen.append((self.now, generation))

        found = asyncio.run(
            run_comparison(plan, "compare", on_progress, kept.append, self.run, lambda: self.now)
        )
        # Whatever was measured was kept at once.
        assert kept[-1] == found
        results = [sum(len(cell.results) for cell in so_far.cells) for so_far in kept]
        assert results == sorted(results)
        processes = sum(len(generation.processes) for _, generation in seen)
        assert len(kept) == processes + len(seen)
        return found, seen


def test_on_a_machine_that_is_far_too_slow_every_cell_is_run_once() -> None:
    found, _ = Machine(slowness=8.0).compare()
    assert [len(cell.results) for cell in found.cells] == [1] * len(PLAN.cells)
    assert found.rounds == 1


@given(st.floats(0.1, 1.8))
def test_it_keeps_to_its_minutes_on_quick_and_slow_machines(slowness: float) -> None:
    machine = Machine(slowness)
    found, seen = machine.compare()
    assert machine.now <= 1.1 * SECONDS
    assert machine.now >= 0.7 * SECONDS or found.rounds == 10
    assert all(len(cell.results) == found.rounds >= 2 for cell in found.cells)
    # Nothing is counted from the second round on, so estimates are right from the third one on.
    for at, generation in seen:
        left = machine.now - at
        if generation.round >= 3 and left > 30 and generation.rounds == found.rounds:
            assert generation.seconds_left == pytest.approx(left, rel=0.3)


@settings(max_examples=5)
@given(st.floats(2.0, 6.0))
def test_on_a_machine_that_becomes_slow_a_round_that_has_begun_is_finished(later: float) -> None:
    found, _ = Machine(later=later).compare()
    rounds = {len(cell.results) + len(cell.failures) for cell in found.cells}
    assert len(rounds) == 1
    assert rounds <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize("seconds", [SECONDS, math.inf])
def test_all_cells_of_an_experiment_do_the_same_work_and_that_which_is_given(
    seconds: float,
) -> None:
    sizes = {"parallel": {"size": 200}}
    found, _ = Machine().compare(seconds=seconds, rounds=3, mode="full", sizes=sizes)
    for cell in found.cells:
        expected = found.of(cell.cell.experiment)[0].results[0].parameters
        assert all(result.parameters == expected for result in cell.results)
        assert expected["size"] == (200 if cell.cell.experiment == "parallel" else 64)


def test_a_cell_that_hangs_is_killed_and_costs_the_others_no_round() -> None:
    hanging = Cell("overlap", "torch", "async")
    found, _ = Machine(slowness=0.5, hanging=frozenset({hanging})).compare()
    assert found.rounds >= 2
    for cell in found.cells:
        assert bool(cell.failures) == (cell.cell == hanging)
        assert len(cell.results) == (0 if cell.failures else found.rounds)


def test_a_process_is_killed_when_it_takes_far_longer_than_before() -> None:
    machine = Machine()
    machine.compare(rounds=2)
    # At first nothing is known but the time that there is; then that all took 1.5 + 4 · 3 s.
    assert machine.deadlines == [SECONDS / 2] * 4 + [pytest.approx(3 * 13.5)] * 4


def test_rounds_that_are_asked_for_are_not_exceeded() -> None:
    found, seen = Machine(slowness=0.2).compare(rounds=2)
    assert (found.rounds, {generation.round for _, generation in seen}) == (2, {1, 2})


def test_in_full_each_cell_has_processes_of_its_own() -> None:
    found, seen = Machine(slowness=0.2).compare(mode="full", shared=False)
    assert all(len(cell.results) == found.rounds >= 3 for cell in found.cells)
    for _, generation in seen:
        assert all(len(process) == 1 for process in generation.processes)
        assert len({cell.experiment for (cell,) in generation.processes}) == 1


def test_without_a_time_processes_have_the_whole_deadline() -> None:
    machine = Machine()
    found, _ = machine.compare(rounds=3, seconds=math.inf)
    assert all(len(cell.results) == found.rounds == 3 for cell in found.cells)
    assert found.options["seconds"] is None
    assert set(machine.deadlines) == {PLAN.deadline}


NUMPY = Plan(
    experiments=(EXPERIMENTS["building-blocks"], EXPERIMENTS["parallel"]),
    backends=("numpy",),
    engines=(OWN_ENGINE,),
    interpreters={"numpy": sys.executable},
    mode="quick",
    sizes={"building-blocks": {"rounds": 1}, "parallel": {"rounds": 1, "size": 16}},
)
FIRST, SECOND = NUMPY.cells


def ran(
    python: Path,
    script: str = "",
    deadline: float = 60.0,
    on_result: OnResult = lambda _: None,
) -> Ran:
    """Run both cells in one process, of a script in place of a Python, if there is one."""
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    plan = replace(NUMPY, interpreters={"numpy": str(python)})
    generation = Generation((NUMPY.cells,), round=1, rounds=1, done=0, left=2, seconds_left=None)
    done = asyncio.run(run_together(Schedule(plan), generation, [deadline], on_result)).done
    (process,) = done[-1].ran
    return process


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    """What a process measured of both cells, and the file with the lines that it wrote."""
    folder = tmp_path_factory.mktemp("measured")
    return ran(folder / "python", f'{sys.executable} "$@" | tee {folder}/lines'), folder / "lines"


def test_each_result_is_told_as_soon_as_it_is_there() -> None:
    results: list[int] = []

    def on_result(so_far: Schedule) -> None:
        results.append(sum(len(process.measured) for process in so_far.done[-1].ran))

    ran(Path(sys.executable), on_result=on_result)
    assert results == [1, 2]


def test_cells_that_share_a_process_are_named_by_what_they_ran_on(
    measured: tuple[Ran, Path],
) -> None:
    process, _ = measured
    sizes = [result.parameters.get("size") for result in process.measured.values()]
    assert sizes == [None, 16]
    assert (list(process.measured), process.failures) == ([FIRST, SECOND], {})
    assert 0 < process.start < process.seconds
    results = (
        CellResults(FIRST, (process.measured[FIRST],)),
        CellResults(replace(SECOND, backend="torch")),
    )
    named = with_engines_that_ran(comparison(*results))
    names = [str(results.cell) for results in named.cells]
    assert names == ["building-blocks on numpy sync", "parallel on torch"]
    assert with_engines_that_ran(named) == named


@pytest.mark.parametrize(
    ("script", "is_kept", "code"),
    [
        # What was measured before a crash is kept, and a disturbed result is one. Each stands
        # behind an empty line.
        ("head -n 2 LINES; kill -SEGV $$", True, "killed"),
        ("head -n 2 LINES; echo no >&2; exit 3", True, "failed"),
        ("sleep 1000 & sleep 1000", False, "timed-out"),
        ("echo 'parallel-core: numpy is not installed' >&2; exit 2", False, "refused"),
        ("echo '{'", False, "not-a-result"),
        ("head -n 2 LINES", True, "no-result"),
        ("true", False, "no-result"),
        ("tail -n 1 LINES", False, "not-a-result"),
        ("", False, "refused"),
    ],
)
def test_the_first_cell_without_a_result_bears_what_befell_the_process(
    tmp_path: Path,
    measured: tuple[Ran, Path],
    script: str,
    is_kept: bool,
    code: str,
) -> None:
    script = script.replace("LINES", str(measured[1]))
    gave = ran(tmp_path / "python", script, deadline=0.5 if "sleep" in script else 60.0)
    # What comes after it was not reached: it is run in another process.
    assert list(gave.measured) == [FIRST][:is_kept]
    ((cell, failure),) = gave.failures.items()
    assert (cell, failure.round, failure.code) == (NUMPY.cells[is_kept], 1, code)
    assert failure.refused == (code == "refused")
    assert failure.reason
