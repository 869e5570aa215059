"""The order of a comparison's processes, and how long they are expected to take."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from parallel_core.comparison.cells import Cell, CellResults, FailedRun
from parallel_core.comparison.processes import Ran
from parallel_core.comparison.schedule import CALIBRATION, NextRun, Schedule
from parallel_core.measurement.result import Result
from tests.parallel_core.comparison.made_up import PLAN, result

A, B, C, D = PLAN.cells
NONE = {cell: CellResults(cell) for cell in PLAN.cells}
START = Schedule(PLAN, NONE)
CRASH = FailedRun(1, "crash", refused=False)
REFUSAL = FailedRun(1, "missing", refused=True)
GIVEN = {"parallel": {"size": 8}, "overlap": {"size": 8, "copies": 1}}
Outcomes = Mapping[Cell, Result | FailedRun]


def outcome(cell: Cell, invalid: bool = False) -> Result:
    parameters = {"size": 592, "copies": 7, "rounds": 5}
    return result(cell, {"run": 1.0}, parameters=parameters, problems=("wrong",) if invalid else ())


def played(schedule: Schedule = START, odd: Outcomes | None = None, seconds: float = 1.0) -> list[NextRun]:
    """Return all runs of a schedule, in which some cells give odd outcomes in the first round."""
    runs: list[NextRun] = []
    while (run := schedule.next_run(len(runs) * seconds)) is not None:
        (cell,) = run.cells
        odd_one = (odd or {}).get(cell) if run.round == 1 else None
        schedule = after(schedule, run, odd_one or outcome(cell), seconds)
        runs.append(run)
    return runs


def after(schedule: Schedule, run: NextRun, gave: Result | FailedRun, seconds: float = 1.0) -> Schedule:
    return schedule.after(run, Ran({run.cells[0]: gave}, {run.cells[0]: seconds}))


def first(schedule: Schedule) -> NextRun:
    run = schedule.next_run(0)
    assert run is not None
    return run


def cells(runs: list[NextRun], turn: int) -> list[Cell]:
    return [cell for run in runs if run.round == turn for cell in run.cells]


def test_one_process_an_experiment_chooses_the_sizes_and_then_all_are_run_in_rounds() -> None:
    runs = played()
    assert [cell for run in runs for cell in run.cells] == [A, C, A, B, C, D, A, B, C, D]
    assert [run.round for run in runs] == [CALIBRATION] * 2 + [1] * 4 + [2] * 4
    assert [run.left for run in runs] == list(range(10, 0, -1))


def test_the_first_that_chose_decides_and_given_sizes_are_kept() -> None:
    assert after(START, first(START), outcome(A)).chosen == {"parallel": {"size": 592}}
    given = replace(START, chosen={"parallel": {"size": 8}, "overlap": {"size": 8, "copies": 1}})
    run = first(given)
    assert (run.cells, run.round) == ((A,), 1)
    assert after(given, run, outcome(A)).chosen == given.chosen


def test_if_the_first_cell_cannot_choose_the_next_one_does() -> None:
    run = first(after(START, first(START), FailedRun(CALIBRATION, "missing", refused=True)))
    assert (run.cells, run.round) == ((B,), CALIBRATION)


def test_refused_cells_are_left_alone_and_failed_ones_tried_once_more() -> None:
    runs = played(odd={A: REFUSAL, B: CRASH})
    assert cells(runs, 2) == [B, C, D]
    # A round makes up for the run that failed.
    assert cells(runs, 3) == [B]
    assert cells(played(odd={A: CRASH, B: CRASH}), 4) == []


def test_only_cells_that_lack_valid_results_are_run_after_the_rounds() -> None:
    runs = played(odd={C: outcome(C, invalid=True)})
    assert (cells(runs, 3), cells(runs, 4)) == ([C], [])


def test_what_a_process_did_not_reach_is_run_in_another_one_of_the_round() -> None:
    shared = replace(START, plan=replace(PLAN, shared=True, mode="quick", seconds=60.0, rounds=1), chosen=GIVEN)
    run = first(shared)
    # Without a sounding the schedule has no time to keep to, but still shares processes.
    assert run.cells == (A, C)
    shared = shared.after(run, Ran({A: CRASH}, {A: 1.0}))
    assert first(shared).cells == (C,)
    shared = shared.after(first(shared), Ran({C: outcome(C)}, {C: 1.0}))
    assert first(shared).cells == (B, D)
    shared = shared.after(first(shared), Ran({B: outcome(B), D: outcome(D)}, {B: 1.0, D: 1.0}))
    assert (first(shared).cells, first(shared).round) == ((A,), 2)


def test_the_time_that_is_left_is_that_of_the_same_cells() -> None:
    none_yet, *others = played(seconds=3.0)
    assert none_yet.seconds_left is None
    # All took as long.
    assert [run.seconds_left for run in others] == [3.0 * run.left for run in others]


def test_another_cell_of_the_experiment_stands_in_for_one_that_was_not_run_yet() -> None:
    schedule = replace(START, chosen=GIVEN)
    for seconds in (3.0, 5.0):
        run = first(schedule)
        schedule = after(schedule, run, outcome(run.cells[0]), seconds)
    # Of overlap nothing is known: two rounds of two processes of the mean of all, and one more round of 3 and 5.
    assert first(schedule).seconds_left == pytest.approx(2 * 2 * 4.0 + 3.0 + 5.0)
