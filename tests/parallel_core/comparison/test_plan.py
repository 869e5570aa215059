"""What is compared, on which Python and by which commands; the order of processes, and sizes that
fit into a time.
"""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.comparison import environments
from parallel_core.comparison.cells import OWN_ENGINE, Cell, FailedRun
from parallel_core.comparison.environments import python_with
from parallel_core.comparison.plan import SOUNDING, Plan
from parallel_core.comparison.runner import NextRun, Ran, Schedule
from parallel_core.comparison.time_budget import (
    GPU_SIDES,
    LEAST,
    USUAL_ROUNDS,
    Fit,
    Sounding,
    fit,
    smallest,
    sounding_of,
    work_of,
)
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.fresh_process import Measured
from parallel_core.measurement.result import Case, Result
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
        f"parallel {same} --count 0",
        f"overlap {same} --products 25 --size 800 --copies 7 --count 0",
    ]
    assert "--engine" not in words(replace(PLAN, engines=(OWN_ENGINE,)))
    quick = words(replace(PLAN, mode="quick"), parallel={"size": 136, "rounds": 1})
    assert (quick.count("--size"), quick[quick.index("--size") + 1]) == (1, "136")
    assert quick[quick.index("--rounds") + 1] == "1"


def test_the_first_round_s_processes_are_asked_for_traces() -> None:
    # A profile that kills its process must not kill those that make up for it.
    asked = [words(replace(PLAN, traces_in=Path("a b")), turn) for turn in (SOUNDING, 1, 2)]
    assert ["--trace-if-possible" in one for one in asked] == [False, True, False]
    assert "a b/traces/parallel-mxnet-async.json.gz" in asked[1]
    assert "--trace-if-possible" not in words(turn=1)


def test_order_is_counted_in_one_round() -> None:
    asked = [words(turn=turn) for turn in (SOUNDING, 1, 2)]
    assert [one[one.index("--count") + 1] for one in asked] == ["0", "2", "0"]


def outcome(cell: Cell, invalid: bool = False) -> Result:
    parameters = {"size": 592, "products": 20, "copies": 7, "rounds": 5}
    return result(cell, {"run": 1.0}, parameters=parameters, problems=("wrong",) if invalid else ())


def after(schedule: Schedule, seconds: float = 1.0, **gave: Outcome) -> Schedule:
    """Return the schedule after its next process, which gives some cells, by their names here,
    their outcomes.
    """
    by_name = {"a": A, "b": B, "c": C, "d": D}
    measured = {
        by_name[one]: Measured(what, 0.0, seconds)
        for one, what in gave.items()
        if isinstance(what, Result)
    }
    failures = {by_name[one]: what for one, what in gave.items() if isinstance(what, FailedRun)}
    return replace(schedule, done=(*schedule.done, (first(schedule), Ran(measured, failures))))


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
    assert START.chosen(1) == {"parallel": {}, "overlap": {}}
    assert after(START, a=CRASH).chosen(1)["parallel"] == {}
    assert after(after(START, a=CRASH), b=outcome(B)).chosen(1) == {
        "parallel": {"size": 592},
        "overlap": {},
    }
    given = replace(
        START, plan=replace(PLAN, sizes={"overlap": {"size": 8, "products": 20, "copies": 1}})
    )
    assert after(given, c=outcome(C)).chosen(1)["overlap"] == {
        "size": 8,
        "products": 20,
        "copies": 1,
    }


def test_refused_cells_are_left_alone_and_failed_and_invalid_ones_tried_once_more() -> None:
    runs = played({A: FailedRun(1, "missing", refused=True), B: CRASH, C: outcome(C, invalid=True)})
    # A round makes up for the runs that failed or gave invalid results.
    for turn, cells in ((2, [B, C, D]), (3, [B, C]), (4, [])):
        assert [cell for run in runs if run.round == turn for cell in run.cells] == cells
    others = after(
        Schedule(replace(PLAN, rounds=1, shared=True)), b=outcome(B), c=outcome(C), d=outcome(D)
    )
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
    # Of overlap nothing is known: two rounds of two processes of the mean of all, and one more
    # round of 3 and 5.
    assert first(schedule).seconds_left == pytest.approx(2 * 2 * 4.0 + 3.0 + 5.0)


QUICK = replace(
    PLAN, shared=True, mode="quick", seconds=240.0, rounds=None, traces_in=Path("nowhere")
)
CELLS = QUICK.cells
WORKS = {experiment.name: work_of(experiment, "quick") for experiment in QUICK.experiments}
SECONDS = st.floats(0.001, 100)
SOUNDINGS = st.builds(Sounding, start=SECONDS, fixed=SECONDS, repetition=SECONDS)
MINUTE = 60.0


def fitted(
    soundings: Mapping[Cell, Sounding], left: float, rounds: int | None = None, **changes: Any
) -> Fit:
    return fit(replace(QUICK, rounds=rounds, **changes), soundings, left)


def every(sounding: Sounding) -> dict[Cell, Sounding]:
    return dict.fromkeys(CELLS, sounding)


@given(
    st.dictionaries(st.sampled_from(CELLS), SOUNDINGS),
    st.floats(-10, 2000),
    st.none() | st.integers(1, 12),
)
def test_rounds_fit_or_sizes_are_smallest(
    soundings: dict[Cell, Sounding], left: float, wanted: int | None
) -> None:
    one = fitted(soundings, left, wanted)
    if one.round_seconds(traced=True) + ((wanted or USUAL_ROUNDS) - 1) * one.round_seconds() > left:
        assert one.sizes == {name: dict(work.least) for name, work in WORKS.items()}


@given(st.dictionaries(st.sampled_from(CELLS), SOUNDINGS), st.floats(0, 2000), st.floats(1, 10))
def test_sizes_lie_between_the_smallest_and_the_usual_ones_and_more_time_gives_larger_ones(
    soundings: dict[Cell, Sounding], left: float, times: float
) -> None:
    less, more = (fitted(soundings, seconds, 1) for seconds in (left, times * left))
    for name, work in WORKS.items():
        for parameter, usual in work.most.items():
            # One step of the search may be lost.
            slack = 8 if more.sizes[name][parameter] < less.sizes[name][parameter] else 0
            assert (
                work.least[parameter]
                <= less.sizes[name][parameter]
                <= more.sizes[name][parameter] + slack
            )
            assert usual is None or more.sizes[name][parameter] <= usual


def test_where_time_is_ample_sizes_are_as_usual_and_a_run_accepts_its_budget() -> None:
    one = fitted(every(Sounding(start=1.0, fixed=0.0, repetition=1e-4)), left=4 * MINUTE)
    assert one.sizes == {name: dict(work.most) for name, work in WORKS.items()}
    assert all(own["budget"] >= 1.0 for own in one.options.values())


def test_a_chosen_size_leaves_time_that_is_ample_to_more_rounds() -> None:
    soundings = every(Sounding(start=1.0, fixed=0.0, repetition=0.1))
    one, other = (fitted(soundings, minutes * MINUTE, mode="full") for minutes in (30, 60))
    assert one.sizes == other.sizes
    assert 10 * one.round_seconds() < 30 * MINUTE


def test_matrices_are_larger_on_gpus() -> None:
    one = fit(QUICK, every(Sounding(start=1.0, fixed=0.0, repetition=0.1)), MINUTE, GPU_SIDES)
    assert {name: own["size"] for name, own in one.options.items()} == {
        name: GPU_SIDES * sizes["size"] for name, sizes in one.sizes.items()
    }


def test_the_slowest_cell_decides_on_the_sizes() -> None:
    quick, slow = Sounding(1.0, 0.1, 0.1), Sounding(1.0, 0.1, 1.0)
    alike, one_slow = (
        fitted(soundings, MINUTE, 3)
        for soundings in (every(quick), {**every(quick), CELLS[0]: slow})
    )
    assert one_slow.sizes["parallel"]["size"] < alike.sizes["parallel"]["size"]
    # The other experiment keeps its share.
    assert one_slow.sizes["overlap"]["size"] >= alike.sizes["overlap"]["size"]


def test_processes_that_are_shared_start_once() -> None:
    soundings = every(Sounding(start=2.0, fixed=1.0, repetition=0.0))
    assert fitted(soundings, MINUTE).round_seconds() == 2 * 2.0 + 4 * 1.0
    assert fitted(soundings, MINUTE, shared=False).round_seconds() == 4 * 2.0 + 4 * 1.0


def test_a_cell_without_a_sounding_is_expected_to_take_as_long_as_its_experiment_s_others() -> None:
    known = {CELLS[0]: Sounding(1.0, 2.0, 0.0), CELLS[2]: Sounding(3.0, 0.0, 0.0)}
    assert list(map(fitted(known, left=0.0).cell_seconds, CELLS)) == [2.0, 2.0, 0.0, 0.0]
    assert fitted({}, left=MINUTE).sizes


def test_no_experiment_s_smallest_work_exceeds_its_usual_one() -> None:
    for experiment in EXPERIMENTS.values():
        for mode, usual in experiment.options.items():
            least = smallest(experiment, mode)
            assert all(
                int(least[name]) <= int(usual[name]) for name in least.keys() & usual.keys()
            ), experiment.name
            assert set(work_of(experiment, mode).least) <= set(LEAST)


def test_copies_stay_large_enough_for_issuing_to_be_a_small_part_of_them() -> None:
    least = {
        name: work_of(EXPERIMENTS[name], "full").least["size"]
        for name in ("parallel", "overlap", "three-way")
    }
    assert least == {"parallel": 256, "overlap": 1000, "three-way": 1000}
    assert work_of(EXPERIMENTS["overlap"], "quick").least["size"] == 600


def test_a_sounding_tells_what_grows_from_what_does_not() -> None:
    cases = (
        Case("ten times", (0.1,), (0.1,), (0.1,), repeats=10, bare_seconds=(0.05,)),
        Case("once", (0.5,), (0.5,), (0.5,)),
    )
    gave = result(CELLS[0], {"run": 1.0}, cases=cases)
    # A repetition takes 10 · (0.1 + 0.05) + 0.5 s, and there was a warm-up.
    assert sounding_of(Measured(gave, 1.0, 8.0), 1.0) == Sounding(1.0, 3.0, 2.0)
    assert sounding_of(Measured(gave, 1.0, 3.0), 1.0).fixed == 0
