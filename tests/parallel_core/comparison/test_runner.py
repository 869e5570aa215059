"""The order of a comparison's processes, and how long they are expected to take."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from parallel_core.comparison.cells import Cell, CellResults, FailedRun
from parallel_core.comparison.runner import CALIBRATION, Plan, expected_seconds, is_due, runs_left
from parallel_core.experiments import EXPERIMENTS
from tests.parallel_core.comparison.made_up import measured

PLAN = Plan(
    experiments=(EXPERIMENTS["parallel"], EXPERIMENTS["overlap"]),
    backends=("mxnet", "torch"),
    engines=("async",),
    interpreters={"mxnet": sys.executable, "torch": "/opt/python"},
    rounds=2,
    device_kind="cpu",
)
A, B, C, D = PLAN.cells
NONE = {cell: CellResults(cell) for cell in PLAN.cells}


def test_an_experiment_s_cells_are_neighbours_in_time() -> None:
    assert [str(cell) for cell in PLAN.cells] == [
        "parallel on mxnet async",
        "parallel on torch async",
        "overlap on mxnet async",
        "overlap on torch async",
    ]


def test_a_command_fixes_all_that_is_to_be_the_same() -> None:
    command = PLAN.command(D, {"size": 800, "copies": 7})
    assert command[:5] == ["/opt/python", "-P", "-m", "parallel_core", "run"]
    assert " ".join(command[5:]) == (
        "overlap --backend torch --engine async --devices 2 --device-kind cpu --rounds 5 --size 800 --copies 7 --json -"
    )


def test_the_last_round_s_processes_are_asked_for_traces() -> None:
    assert PLAN.trace(A, PLAN.rounds) is None
    traced = replace(PLAN, traces_in=Path("out"))
    wanted = Path("out/traces/parallel-mxnet-async.json.gz")
    # A profile that kills its process must not kill those that make up for it.
    assert [traced.trace(A, turn) for turn in range(4)] == [None, None, wanted, None]
    assert " ".join(traced.command(A, {}, wanted)).endswith(f"--trace-if-possible {wanted} --json -")


def test_one_process_an_experiment_chooses_the_sizes() -> None:
    assert runs_left(PLAN, NONE, {}, A, CALIBRATION)[:2] == [A, C]
    assert not is_due(PLAN, NONE[B], {"parallel": {"size": 8}}, CALIBRATION)
    assert len(runs_left(PLAN, NONE, {}, A, CALIBRATION)) == 2 + 2 * 4


def test_what_is_left_counts_this_round_and_the_next_ones() -> None:
    assert runs_left(PLAN, NONE, {}, C, 1) == [C, D, A, B, C, D]
    assert runs_left(PLAN, NONE, {}, D, 2) == [D]


def test_refused_cells_are_left_alone_and_failed_ones_tried_once_more() -> None:
    refused = CellResults(A, failures=(FailedRun(1, "missing", refused=True),))
    once = CellResults(A, failures=(FailedRun(1, "crash", refused=False),))
    twice = CellResults(A, failures=(FailedRun(1, "crash", refused=False), FailedRun(2, "crash", refused=False)))
    assert [is_due(PLAN, cell, {}, 2) for cell in (refused, once, twice)] == [False, True, False]
    assert runs_left(PLAN, {**NONE, A: refused}, {}, B, 1) == [B, C, D, B, C, D]


def test_only_cells_that_lack_results_are_run_after_the_rounds() -> None:
    whole, lacking = measured(A, (1.0, 1.0)), measured(B, (1.0,))
    assert [is_due(PLAN, cell, {}, PLAN.rounds + 1) for cell in (whole, lacking)] == [False, True]


def test_the_time_that_is_left_is_that_of_the_same_cells() -> None:
    assert expected_seconds([A, B], []) is None
    assert expected_seconds([A], [(A, 3.0), (A, 5.0)]) == 4
    # Another cell of the experiment, then any cell, stands in for one that was not run yet.
    assert expected_seconds([B, C], [(A, 3.0), (Cell("async", "mxnet", "sync"), 9.0)]) == pytest.approx(3 + 6)
