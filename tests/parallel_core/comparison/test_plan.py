"""What is compared, and the commands of its processes."""

import shlex
from dataclasses import replace
from pathlib import Path

from parallel_core.comparison.cells import OWN_ENGINE
from tests.parallel_core.comparison.made_up import PLAN

A, B, C, D = PLAN.cells


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
        " --work own"
    )


def test_a_backend_that_takes_its_own_engine_is_asked_for_none() -> None:
    plan = replace(PLAN, engines=(OWN_ENGINE,))
    assert "--engine" not in plan.command(plan.cells[0], {})


def test_what_is_chosen_takes_the_place_of_what_is_usual() -> None:
    command = replace(PLAN, mode="quick").command(A, {"size": 136, "rounds": 1})
    assert (command.count("--size"), command[command.index("--size") + 1]) == (1, "136")
    assert command[command.index("--rounds") + 1] == "1"


def test_the_first_round_s_processes_are_asked_for_traces() -> None:
    assert PLAN.trace(A, 1) is None
    traced = replace(PLAN, traces_in=Path("out"))
    wanted = Path("out/traces/parallel-mxnet-async.json.gz")
    # A profile that kills its process must not kill those that make up for it.
    assert [traced.trace(A, turn) for turn in range(4)] == [None, wanted, None, None]
    assert " ".join(traced.command(A, {}, wanted)).endswith(f"--trace-if-possible {wanted} --json - --work own")


def test_several_cells_of_a_backend_and_engine_share_a_process() -> None:
    command = PLAN.command_of_several([B, D], {"parallel": {"rounds": 1}}, turn=2)
    assert command[:5] == ["/opt/python", "-P", "-m", "parallel_core", "several"]
    first, second = map(shlex.split, command[5:])
    assert first == PLAN.command(B, {"rounds": 1})[5:]
    assert second == PLAN.command(D, {})[5:]


def test_cells_have_processes_of_their_own_or_share_those_of_a_backend_and_engine() -> None:
    assert PLAN.groups == ((A,), (B,), (C,), (D,))
    assert replace(PLAN, shared=True).groups == ((A, C), (B, D))
