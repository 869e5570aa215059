"""The order of a comparison's processes, and how long they are expected to take."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from parallel_core.comparison.cells import Cell, FailedRun
from parallel_core.comparison.plan import Plan
from parallel_core.comparison.runner import NextRun, Ran, Schedule
from parallel_core.measurement.fresh_process import Measured
from parallel_core.measurement.result import Result
from tests.parallel_core.comparison.made_up import PLAN, result

A, B, C, D = PLAN.cells
START = Schedule(PLAN)
CRASH = FailedRun(1, "crash", refused=False)
REFUSAL = FailedRun(1, "missing", refused=True)
Outcome = Result | FailedRun


def outcome(cell: Cell, invalid: bool = False) -> Result:
    parameters = {"size": 592, "products": 20, "copies": 7, "rounds": 5}
    return result(cell, {"run": 1.0}, parameters=parameters, problems=("wrong",) if invalid else ())


def after(schedule: Schedule, seconds: float = 1.0, **gave: Outcome) -> Schedule:
    """Return the schedule after its next process, which gives some cells, by their names here, their outcomes."""
    by_name = {"a": A, "b": B, "c": C, "d": D}
    measured = {by_name[one]: Measured(what, 0.0, seconds) for one, what in gave.items() if isinstance(what, Result)}
    failures = {by_name[one]: what for one, what in gave.items() if isinstance(what, FailedRun)}
    return replace(schedule, done=(*schedule.done, (first(schedule), Ran(measured, failures))))


def first(schedule: Schedule) -> NextRun:
    run = schedule.next_run(0)
    assert run is not None
    return run


def played(odd: Mapping[Cell, Outcome] | None = None, seconds: float = 1.0, plan: Plan = PLAN) -> list[NextRun]:
    """Return all runs, in which some cells give odd outcomes in the first round."""
    schedule = Schedule(plan)
    while (run := schedule.next_run(0)) is not None:
        (cell,) = run.cells
        one = (odd or {}).get(cell, outcome(cell)) if run.round == 1 else outcome(cell)
        schedule = after(schedule, seconds, **{"abcd"[PLAN.cells.index(cell)]: one})
    return [run for run, _ in schedule.done]


def cells(runs: list[NextRun], turn: int) -> list[Cell]:
    return [cell for run in runs if run.round == turn for cell in run.cells]


def test_all_are_run_in_rounds_and_the_time_that_is_left_is_that_of_the_same_cells() -> None:
    none_yet, *others = runs = played(seconds=3.0)
    assert [cell for run in runs for cell in run.cells] == [A, B, C, D] * 2
    assert [run.round for run in runs] == [1] * 4 + [2] * 4
    assert [run.left for run in runs] == list(range(8, 0, -1))
    assert none_yet.seconds_left is None
    # All took as long.
    assert [run.seconds_left for run in others] == [3.0 * run.left for run in others]


def test_what_the_first_process_of_an_experiment_chose_is_given_to_the_others_unless_it_was_given() -> None:
    assert START.chosen(1) == {"parallel": {}, "overlap": {}}
    assert after(START, a=CRASH).chosen(1)["parallel"] == {}
    assert after(after(START, a=CRASH), b=outcome(B)).chosen(1) == {"parallel": {"size": 592}, "overlap": {}}
    given = replace(START, plan=replace(PLAN, sizes={"overlap": {"size": 8, "products": 20, "copies": 1}}))
    assert after(given, c=outcome(C)).chosen(1)["overlap"] == {"size": 8, "products": 20, "copies": 1}


def test_refused_cells_are_left_alone_and_failed_and_invalid_ones_tried_once_more() -> None:
    runs = played({A: REFUSAL, B: CRASH, C: outcome(C, invalid=True)})
    assert cells(runs, 2) == [B, C, D]
    # A round makes up for the runs that failed or gave invalid results.
    assert (cells(runs, 3), cells(runs, 4)) == ([B, C], [])
    others = after(Schedule(replace(PLAN, rounds=1, shared=True)), b=outcome(B), c=outcome(C), d=outcome(D))
    once = after(others, a=CRASH)
    assert (first(once).cells, first(once).round) == ((A,), 2)
    assert after(once, a=CRASH).next_run(0) is None


def test_what_a_process_did_not_reach_is_run_in_another_one_of_the_round() -> None:
    schedule = Schedule(replace(PLAN, shared=True, rounds=1))
    assert first(schedule).cells == (A, C)
    schedule = after(schedule, a=CRASH)
    assert first(schedule).cells == (C,)
    schedule = after(schedule, c=outcome(C))
    assert first(schedule).cells == (B, D)
    schedule = after(schedule, b=outcome(B), d=outcome(D))
    assert (first(schedule).cells, first(schedule).round) == ((A,), 2)


def test_a_cell_that_was_not_run_yet_is_expected_to_take_as_long_as_the_others() -> None:
    schedule = after(after(START, 3.0, a=outcome(A)), 5.0, b=outcome(B))
    # Of overlap nothing is known: two rounds of two processes of the mean of all, and one more round of 3 and 5.
    assert first(schedule).seconds_left == pytest.approx(2 * 2 * 4.0 + 3.0 + 5.0)
