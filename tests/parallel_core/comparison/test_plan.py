"""What is compared, on which Python and by which commands, and the order of processes."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from parallel_core.comparison import environments
from parallel_core.comparison.cells import OWN_ENGINE, Cell, FailedRun
from parallel_core.comparison.environments import python_with
from parallel_core.comparison.plan import Plan
from parallel_core.comparison.runner import NextRun, Ran, Schedule
from parallel_core.measurement.fresh_process import Measured
from parallel_core.measurement.result import Result
from tests.conftest import FRAMEWORKS
from tests.parallel_core.comparison.made_up import PLAN, result

A, B, C, D = PLAN.cells
START = Schedule(PLAN)
CRASH = FailedRun(1, "crash", refused=False)
Outcome = Result | FailedRun


def environment(folder: Path, *frameworks: str) -> str:
    for name in frameworks:
        (folder / "lib" / "python3.13" / "site-packages" / name).mkdir(parents=True)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    python.touch()
    return str(python)


def test_an_environment_of_its_own_goes_before_the_common_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "is_installed", lambda _: False)
    assert python_with("torch", tmp_path) == sys.executable
    common = environment(tmp_path / ".venv", "torch")
    assert python_with("torch", tmp_path) == common
    own = environment(tmp_path / ".venv-torch")
    assert python_with("torch", tmp_path) == common, "what is half made has no framework"
    environment(tmp_path / ".venv-torch", "torch")
    assert python_with("torch", tmp_path) == own
    (tmp_path / ".venv-torch" / "ready.log").touch()
    assert python_with("torch", tmp_path) == common, "make has begun it and not finished"
    (tmp_path / ".venv-torch" / "ready").touch()
    assert python_with("torch", tmp_path) == own


def test_what_is_installed_here_or_nowhere_runs_here(tmp_path: Path) -> None:
    here = [name for name in FRAMEWORKS if find_spec(name) is not None]
    environment(tmp_path / ".venv", *here, "numpy")
    assert {python_with(name, tmp_path) for name in (*here, "numpy", "a-plug-in")} == {
        sys.executable
    }


def words(plan: Plan = PLAN, turn: int = 2, **chosen: dict[str, int]) -> list[str]:
    """Return the arguments of the run of the first cell."""
    return shlex.split(plan.command(plan.cells[:1], chosen, turn)[-1])


def test_cells_of_an_experiment_are_neighbours_in_time_and_those_of_a_side_share_a_process() -> (
    None
):
    sides = ["mxnet async", "torch async"]
    assert list(map(str, PLAN.cells)) == [
        f"{one} on {side}" for one in ("parallel", "overlap") for side in sides
    ]
    assert PLAN.groups == ((A,), (B,), (C,), (D,))
    assert replace(PLAN, shared=True).groups == PLAN.sides == ((A, C), (B, D))


def test_a_command_fixes_what_is_to_be_the_same_and_what_is_chosen_replaces_what_is_usual() -> None:
    command = PLAN.command([B, D], {"overlap": {"size": 800, "copies": 7}}, turn=2)
    assert command[:5] == ["/opt/python", "-P", "-m", "parallel_core", "measure"]
    same = "--backend torch --engine async --devices 2 --device-kind cpu --rounds 5"
    assert command[5:] == [
        f"parallel {same} --count 0 --sizes-chosen yes",
        f"overlap {same} --products 25 --size 800 --copies 7 --count 0 --sizes-chosen yes",
    ]
    assert "--engine" not in words(replace(PLAN, engines=(OWN_ENGINE,)))
    quick = words(replace(PLAN, mode="quick"), parallel={"size": 136, "rounds": 1})
    assert (quick.count("--size"), quick[quick.index("--size") + 1]) == (1, "136")
    assert quick[quick.index("--rounds") + 1] == "1"


def test_the_first_round_s_processes_are_asked_for_traces() -> None:
    # A profile that kills its process must not kill those that make up for it.
    asked = [words(replace(PLAN, traces_in=Path("a b")), turn) for turn in (1, 2)]
    assert ["--trace-if-possible" in one for one in asked] == [True, False]
    assert "a b/traces/parallel-mxnet-async.json.gz" in asked[0]
    assert "--trace-if-possible" not in words(turn=1)


def test_order_is_counted_in_one_round() -> None:
    asked = [words(turn=turn) for turn in (1, 2)]
    assert [one[one.index("--count") + 1] for one in asked] == ["2", "0"]


def test_sizes_for_cpus_are_left_to_the_first_process_where_devices_may_be_gpus() -> None:
    quick = replace(PLAN, mode="quick")
    assert quick.to_calibrate(A) == ()
    assert "--size" in words(quick)
    on_gpus = replace(quick, on_gpus=True)
    assert on_gpus.to_calibrate(A) == ("size",)
    assert "--size" not in words(on_gpus)


def outcome(cell: Cell, invalid: bool = False) -> Result:
    parameters = {"size": 592, "products": 20, "copies": 7, "rounds": 5}
    return result(cell, {"run": 1.0}, parameters=parameters, problems=("wrong",) if invalid else ())


def after(schedule: Schedule, seconds: float = 1.0, **gave: Outcome) -> Schedule:
    """Return the schedule after its next process, which gives some cells, by their names here,
    their outcomes.
    """
    by_name = {"a": A, "b": B, "c": C, "d": D}
    measured: dict[Cell, Measured] = {}
    failures: dict[Cell, FailedRun] = {}
    for name, outcome_of_cell in gave.items():
        if isinstance(outcome_of_cell, Result):
            measured[by_name[name]] = Measured(outcome_of_cell, 0.0, seconds)
        else:
            failures[by_name[name]] = outcome_of_cell
    ran = Ran(measured, failures, seconds=seconds)
    return replace(schedule, done=(*schedule.done, (first(schedule), ran)))


def first(schedule: Schedule) -> NextRun:
    run = schedule.next_run(0)
    assert run is not None
    return run


def played(odd: Mapping[Cell, Outcome], seconds: float = 1.0) -> list[NextRun]:
    """Return all runs, in which some cells give odd outcomes in the first round."""
    schedule = START
    while (run := schedule.next_run(0)) is not None:
        (cell,) = run.cells
        one = odd.get(cell, outcome(cell)) if run.round == 1 else outcome(cell)
        schedule = after(schedule, seconds, **{"abcd"[PLAN.cells.index(cell)]: one})
    return [run for run, _ in schedule.done]


def test_all_are_run_in_rounds_and_the_time_that_is_left_is_that_of_the_same_cells() -> None:
    none_yet, *others = runs = played({}, seconds=3.0)
    assert [cell for run in runs for cell in run.cells] == [A, B, C, D] * 2
    assert [run.round for run in runs] == [1] * 4 + [2] * 4
    assert [run.left for run in runs] == list(range(8, 0, -1))
    assert none_yet.seconds_left is None
    # All took as long.
    assert [run.seconds_left for run in others] == [3.0 * run.left for run in others]


def test_what_the_first_process_of_an_experiment_chose_is_given_to_the_others() -> None:
    assert START.chosen == {"parallel": {}, "overlap": {}}
    assert after(START, a=CRASH).chosen["parallel"] == {}
    assert after(after(START, a=CRASH), b=outcome(B)).chosen == {
        "parallel": {"size": 592},
        "overlap": {},
    }
    given = replace(
        START, plan=replace(PLAN, sizes={"overlap": {"size": 8, "products": 20, "copies": 1}})
    )
    assert after(given, c=outcome(C)).chosen["overlap"] == {
        "size": 8,
        "products": 20,
        "copies": 1,
    }


def test_refused_cells_are_left_alone_and_failed_ones_tried_once_more() -> None:
    runs = played({A: FailedRun(1, "missing", refused=True), B: CRASH, C: outcome(C, invalid=True)})
    assert [cell for run in runs if run.round == 2 for cell in run.cells] == [B, C, D]
    shared = Schedule(replace(PLAN, rounds=3, shared=True))
    once = after(shared, a=CRASH, c=outcome(C))
    once = after(once, b=outcome(B), d=outcome(D))
    assert (first(once).cells, first(once).round) == ((A, C), 2)
    twice = after(once, a=CRASH, c=outcome(C))
    twice = after(twice, b=outcome(B), d=outcome(D))
    assert (first(twice).cells, first(twice).round) == ((C,), 3)


def test_what_a_process_did_not_reach_is_run_in_another_one_of_the_round() -> None:
    schedule = Schedule(replace(PLAN, shared=True, rounds=1))
    assert first(schedule).cells == (A, C)
    schedule = after(schedule, a=CRASH)
    assert first(schedule).cells == (C,)
    schedule = after(schedule, c=outcome(C))
    assert first(schedule).cells == (B, D)
    assert after(schedule, b=outcome(B), d=outcome(D)).next_run(0) is None


def test_a_process_that_was_not_run_yet_is_expected_to_take_as_long_as_the_others() -> None:
    schedule = after(after(START, 3.0, a=outcome(A)), 5.0, b=outcome(B))
    # Of overlap nothing is known: two rounds of two processes of the mean of all, and one more
    # round of 3 and 5.
    assert first(schedule).seconds_left == pytest.approx(2 * 2 * 4.0 + 3.0 + 5.0)
