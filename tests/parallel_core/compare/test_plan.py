"""What is compared, on which Python, what processes are asked for, and their order."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from parallel_core.compare import environments
from parallel_core.compare.environments import python_with
from parallel_core.compare.plan import Plan
from parallel_core.compare.results import OWN_ENGINE, Cell, FailedRun
from parallel_core.compare.schedule import Generation, Lived, Ran, Schedule
from parallel_core.measurement.request import Request, Work
from parallel_core.measurement.result import Note, Result
from tests.conftest import FRAMEWORKS
from tests.parallel_core.compare.made_up import PLAN, result

A, B, C, D = PLAN.cells
CELLS = {"a": A, "b": B, "c": C, "d": D}
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
    separate = environment(tmp_path / ".venv-torch")
    assert python_with("torch", tmp_path) == common, "what is half made has no framework"
    environment(tmp_path / ".venv-torch", "torch")
    assert python_with("torch", tmp_path) == separate
    (tmp_path / ".venv-torch" / "ready.log").touch()
    assert python_with("torch", tmp_path) == common, "make has begun it and not finished"
    (tmp_path / ".venv-torch" / "ready").touch()
    assert python_with("torch", tmp_path) == separate


def test_what_is_installed_here_or_nowhere_runs_here(tmp_path: Path) -> None:
    installed = [name for name in FRAMEWORKS if find_spec(name) is not None]
    environment(tmp_path / ".venv", *installed, "numpy")
    for name in (*installed, "numpy", "a-plug-in"):
        assert python_with(name, tmp_path) == sys.executable


def asked(plan: Plan = PLAN, turn: int = 2, **chosen: int) -> Request:
    """Return what the process of the first cell is asked for."""
    return plan.request(plan.cells[0], chosen, turn)


def test_cells_of_an_experiment_are_neighbours_in_time_and_those_of_a_side_share_a_process() -> (
    None
):
    assert [str(cell) for cell in PLAN.cells] == [
        "parallel on mxnet async",
        "parallel on torch async",
        "overlap on mxnet async",
        "overlap on torch async",
    ]
    assert PLAN.groups_in(1) == ((A,), (B,), (C,), (D,))
    assert PLAN.sides == ((A, C), (B, D))
    assert replace(PLAN, shared=True).groups_in(1) == PLAN.sides


def test_controls_run_in_the_first_round_only_if_that_is_wanted() -> None:
    plan = replace(PLAN, engines=("async", "sync"), shared=True, controls_once=True)
    assert plan.groups_in(1) == plan.sides
    assert [cells[0].engine for cells in plan.groups_in(2)] == ["async", "async"]
    every_time = replace(plan, controls_once=False)
    assert every_time.groups_in(2) == plan.sides


def test_a_request_fixes_what_is_to_be_the_same_and_what_is_chosen_replaces_what_is_usual() -> None:
    request = PLAN.request(D, {"size": 800, "copies": 7}, turn=2)
    assert request.work == Work(
        experiment="overlap",
        backend="torch",
        engine="async",
        devices=2,
        device_kind="cpu",
        parameters={"rounds": 3, "products": 12, "size": 800, "copies": 7},
        count=0,
        sizes_chosen=True,
    )
    assert asked(replace(PLAN, engines=(OWN_ENGINE,))).work.engine is None
    quick = asked(replace(PLAN, mode="quick"), size=136, rounds=1)
    assert quick.work.parameters == {"size": 136, "rounds": 1}


def test_a_framework_as_shipped_is_run_with_its_variants_and_a_result_without_is_not_its() -> None:
    names = ("mxnet", "mxnet-as-shipped")
    plan = replace(PLAN, backends=names, interpreters=dict.fromkeys(names, sys.executable))
    tuned, as_shipped = plan.cells[:2]
    assert asked(plan).work.variant == ()
    work = plan.request(as_shipped, {}, 2).work
    assert (work.backend, len(work.variant)) == ("mxnet", 3)

    as_described = {**result(tuned, {"case": 1.0}).backend, "variants": ["bulk-on"]}
    of_variants = result(tuned, {"case": 1.0}, backend=as_described)
    assert as_shipped.matches(of_variants)
    assert not tuned.matches(of_variants)


def test_the_first_round_s_processes_are_asked_for_traces() -> None:
    # A profile that kills its process must not kill those that make up for it.
    traced = replace(PLAN, traces_in=Path("a b"))
    assert asked(traced, turn=1).files.trace == Path("a b/traces/parallel-mxnet-async.json.gz")
    assert asked(traced, turn=2).files.trace is None
    assert asked(turn=1).files.trace is None


def test_order_is_counted_in_one_round() -> None:
    assert [asked(turn=turn).work.count for turn in (1, 2)] == [2, 0]


def test_sizes_for_cpus_are_left_to_the_first_process_where_devices_may_be_gpus() -> None:
    quick = replace(PLAN, mode="quick")
    assert quick.to_calibrate("parallel") == ()
    assert "size" in asked(quick).work.parameters
    on_gpus = replace(quick, on_gpus=True)
    assert on_gpus.to_calibrate("parallel") == ("size",)
    assert "size" not in asked(on_gpus).work.parameters


def outcome(cell: Cell, invalid: bool = False) -> Result:
    parameters = {"size": 592, "products": 20, "copies": 7, "rounds": 5}
    problems = (Note(None, "wrong"),) if invalid else ()
    return result(cell, {"run": 1.0}, parameters=parameters, problems=problems)


def after(schedule: Schedule, seconds: float = 1.0, **gave: Outcome) -> Schedule:
    """Return the schedule after its next generation, whose processes give some cells, by their
    names here, their outcomes.
    """
    generation = first(schedule)
    ran = []
    for process in generation.processes:
        measured: dict[Cell, Result] = {}
        failures: dict[Cell, FailedRun] = {}
        for name, outcome_of_cell in gave.items():
            cell = CELLS[name]
            if cell not in process:
                continue
            if isinstance(outcome_of_cell, Result):
                measured[cell] = outcome_of_cell
            else:
                failures[cell] = outcome_of_cell
        ran.append(Ran(measured, failures, seconds=seconds / len(generation.processes)))
    lived = Lived(generation, tuple(ran))
    return replace(schedule, done=(*schedule.done, lived))


def first(schedule: Schedule) -> Generation:
    generation = schedule.next_generation(0)
    assert generation is not None
    return generation


def played(seconds: float = 1.0, **odd: Outcome) -> list[Generation]:
    """Return all generations; some cells, by their names, give odd outcomes in the first round."""
    schedule = START
    while (generation := schedule.next_generation(0)) is not None:
        gave: dict[str, Outcome] = {name: outcome(cell) for name, cell in CELLS.items()}
        if generation.round == 1:
            gave.update(odd)
        schedule = after(schedule, seconds * len(generation.processes), **gave)
    return [lived.generation for lived in schedule.done]


def test_what_is_done_and_left_is_counted_in_results_and_in_the_seconds_of_the_same_cells() -> None:
    none_yet, *others = generations = played(seconds=3.0)
    assert [generation.processes for generation in generations] == [((A,), (B,)), ((C,), (D,))] * 2
    assert [generation.round for generation in generations] == [1, 1, 2, 2]
    assert [generation.done for generation in generations] == [0, 2, 4, 6]
    assert [generation.left for generation in generations] == [8, 6, 4, 2]
    assert none_yet.seconds_left is None
    # All took as long.
    assert all(generation.seconds_left == 3.0 * generation.left for generation in others)


def test_processes_of_all_experiments_live_together_if_they_are_shared() -> None:
    generation = first(Schedule(replace(PLAN, shared=True)))
    assert generation.processes == ((A, C), (B, D))
    experiments = [generation.experiment_after(results) for results in range(5)]
    assert experiments == ["parallel", "parallel", "overlap", "overlap", "overlap"]


def test_what_the_first_process_of_an_experiment_chose_is_given_to_the_others() -> None:
    assert START.chosen == {"parallel": {}, "overlap": {}}
    assert after(START, a=CRASH, b=CRASH).chosen["parallel"] == {}
    assert after(START, a=CRASH, b=outcome(B)).chosen == {
        "parallel": {"size": 592},
        "overlap": {},
    }
    sizes = {"size": 8, "products": 20, "copies": 1}
    given = replace(START, plan=replace(PLAN, sizes={"overlap": sizes}))
    assert after(given, a=outcome(A), b=outcome(B)).chosen["overlap"] == sizes


def test_refused_cells_are_left_alone_and_failed_ones_tried_once_more() -> None:
    missing = FailedRun(1, "missing", refused=True)
    generations = played(a=missing, b=CRASH, c=outcome(C, invalid=True))
    in_second = [generation.processes for generation in generations if generation.round == 2]
    assert in_second == [((B,),), ((C,), (D,))]
    shared = Schedule(replace(PLAN, rounds=3, shared=True))
    once = after(shared, a=CRASH, b=outcome(B), d=outcome(D))
    once = after(once, c=outcome(C))
    assert (first(once).processes, first(once).round) == (((A, C), (B, D)), 2)
    twice = after(once, a=CRASH, b=outcome(B), d=outcome(D))
    twice = after(twice, c=outcome(C))
    assert (first(twice).processes, first(twice).round) == (((C,), (B, D)), 3)


def test_what_a_process_did_not_reach_is_run_in_another_one_of_the_round() -> None:
    schedule = Schedule(replace(PLAN, shared=True, rounds=1))
    schedule = after(schedule, a=CRASH, b=outcome(B), d=outcome(D))
    assert first(schedule).processes == ((C,),)
    assert after(schedule, c=outcome(C)).next_generation(0) is None


def test_a_generation_that_was_not_run_yet_is_expected_to_take_as_long_as_the_others() -> None:
    schedule = after(START, 8.0, a=outcome(A), b=outcome(B))
    # Two processes of this round and four of the next one, each as long as the mean of all.
    assert first(schedule).seconds_left == pytest.approx(6 * 4.0)
