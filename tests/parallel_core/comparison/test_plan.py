"""What is compared, and the commands of its processes."""

import shlex
from dataclasses import replace
from pathlib import Path

from parallel_core.comparison.cells import OWN_ENGINE
from parallel_core.comparison.plan import SOUNDING, Plan
from tests.parallel_core.comparison.made_up import PLAN

A, B, C, D = PLAN.cells


def words(plan: Plan = PLAN, turn: int = 2, **chosen: dict[str, int]) -> list[str]:
    """Return the arguments of the run of the first cell."""
    return shlex.split(plan.command(plan.cells[:1], chosen, turn)[-1])


def test_cells_are_neighbours_in_time_if_they_are_of_an_experiment_and_share_a_process_if_of_a_side() -> None:
    sides = ["mxnet async", "torch async"]
    assert list(map(str, PLAN.cells)) == [f"{one} on {side}" for one in ("parallel", "overlap") for side in sides]
    assert PLAN.groups == ((A,), (B,), (C,), (D,))
    assert replace(PLAN, shared=True).groups == PLAN.sides == ((A, C), (B, D))


def test_a_command_fixes_all_that_is_to_be_the_same() -> None:
    command = PLAN.command([B, D], {"overlap": {"size": 800, "copies": 7}}, turn=2)
    assert command[:5] == ["/opt/python", "-P", "-m", "parallel_core", "measure"]
    same = "--backend torch --engine async --devices 2 --device-kind cpu --rounds 5"
    assert command[5:] == [
        f"parallel {same} --work own",
        f"overlap {same} --size 800 --copies 7 --work own",
    ]
    assert "--engine" not in words(replace(PLAN, engines=(OWN_ENGINE,)))


def test_what_is_chosen_takes_the_place_of_what_is_usual() -> None:
    command = words(replace(PLAN, mode="quick"), parallel={"size": 136, "rounds": 1})
    assert (command.count("--size"), command[command.index("--size") + 1]) == (1, "136")
    assert command[command.index("--rounds") + 1] == "1"


def test_the_first_round_s_processes_are_asked_for_traces() -> None:
    # A profile that kills its process must not kill those that make up for it.
    asked = [words(replace(PLAN, traces_in=Path("a b")), turn) for turn in (SOUNDING, 1, 2)]
    assert ["--trace-if-possible" in one for one in asked] == [False, True, False]
    assert "a b/traces/parallel-mxnet-async.json.gz" in asked[1]
    assert "--trace-if-possible" not in words(turn=1)
