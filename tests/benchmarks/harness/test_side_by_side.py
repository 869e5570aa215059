"""Variants run in interleaved rounds, one after the other or in turns, and their times become
ratios.
"""

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path

import click
import pytest

from backends.host import available_cores
from backends.installation.kernels import Kernels, Product
from benchmarks.harness import side_by_side
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    paired,
    ratio_of_fastest,
    read_answer,
    take_turns,
)
from parallel_core.system.subprocesses import Outcome


def measured(**seconds: tuple[float, ...]) -> Measured:
    """Return what a process gave: the seconds of each case."""
    return Measured(seconds, {}, {})


two_cores = pytest.mark.skipif(available_cores() < 2, reason="one core is compared with two")
WORKER = """
import json, os, sys
log, name = sys.argv[1:]
first_core = min(os.sched_getaffinity(0))
seconds, problems, turns = [], [], [1]
if name.islower():
    from benchmarks.harness import side_by_side
    turns = side_by_side.turns()
for turn in turns:
    with open(log, "a") as file:
        print(name, turn, len(os.sched_getaffinity(0)), file=file)
    if name == "dies":
        sys.exit("its last words")
    if name == "babbles":
        print("what?", flush=True)
    if name.startswith("DISTURBED") and len(open(log).readlines()) <= int(name[-1]):
        problems = ["it was too fast"]
    seconds.append(turn + 10 * first_core)
answer = {
    "cases": [{"name": "epoch", "seconds": seconds}],
    "metrics": {"core": first_core},
    "versions": {},
    "problems": problems,
}
print(json.dumps(answer))
"""
"""Log each turn with its cores; a case takes as many seconds as the turn's number, and ten more for
each core before the worker's first one.
"""


def variant(log: Path, name: str, **options: str) -> Variant:
    """Make a worker that takes turns if its name has small letters."""
    command = (sys.executable, "-c", WORKER, str(log), name)
    return Variant(name, command, **options)  # type: ignore[arg-type]


@two_cores
@pytest.mark.parametrize(("names", "turns"), [("abc", [1, 2, 3]), ("ABC", [1])])
def test_rounds_are_interleaved_a_core_changes_with_them_and_the_slower_process_counts(
    names: str, turns: list[int], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    first_core, second_core, *_ = sorted(os.sched_getaffinity(0))
    kinds_of_cores = ("both", "one", "each")
    variants = [
        variant(log, name, cores=cores) for name, cores in zip(names, kinds_of_cores, strict=True)
    ]
    takes_turns = names.islower()
    processes = take_turns(variants, 2, len(turns) if takes_turns else 0)

    on_all_cores, on_single_core, on_each_core = names
    lines_of_round = []
    for turn in turns:
        lines_of_round += [f"{on_all_cores} {turn} 2", f"{on_single_core} {turn} 1"]
        lines_of_round += 2 * [f"{on_each_core} {turn} 1"]
    assert log.read_text().splitlines() == 2 * lines_of_round
    for process in processes[on_all_cores]:
        assert len(process.seconds["epoch"]) == len(turns)
    cores_of_rounds = [process.figures["core"] for process in processes[on_single_core]]
    assert cores_of_rounds == [first_core, second_core]
    for process in processes[on_each_core]:
        slower_process = tuple(turn + 10 * second_core for turn in turns)
        assert process.seconds == {"epoch": slower_process}


@two_cores
@pytest.mark.parametrize(
    ("name", "turns", "attempts", "reason"),
    [
        ("dies", 1, 1, "its last words"),
        ("babbles", 1, 1, "said 'what.' in place of 'done'"),
        ("DISTURBED 3", 0, side_by_side.ATTEMPTS, "it was too fast"),
    ],
)
def test_what_fails_as_often_as_is_tried_ends_all(
    name: str,
    turns: int,
    attempts: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(side_by_side, "ATTEMPTS", attempts)
    with pytest.raises(click.ClickException, match=f"{name}: .*{reason}"):
        take_turns([variant(tmp_path / "log", name)], 1, turns)
    assert len((tmp_path / "log").read_text().splitlines()) == attempts


@two_cores
def test_what_is_disturbed_twice_is_replaced(tmp_path: Path) -> None:
    disturbed_twice = variant(tmp_path / "log", "DISTURBED 2")
    processes = take_turns([disturbed_twice], 1)
    assert len(processes["DISTURBED 2"]) == 1


@two_cores
def test_what_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "DEADLINE", 0.5)
    monkeypatch.setattr(side_by_side, "ATTEMPTS", 1)
    with pytest.raises(
        click.ClickException, match=r"x: gave no result within 0.5 s and was killed"
    ):
        take_turns([Variant("x", ("sleep", "60"))], 1)


def test_pairs_are_neighbours_whose_ratio_does_not_drift() -> None:
    def drifting(drift: float) -> Measured:
        return measured(
            ours=(1.1 * drift, 2.2 * drift, 4.4 * drift), plain=(drift, 2 * drift, 4 * drift)
        )

    ratio = paired([drifting(1.0), drifting(1.5), drifting(0.5)], "ours", "plain")
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_a_disturbed_turn_changes_no_ratio_of_the_fastest() -> None:
    ours = [measured(epoch=(1.0, 9.0, 1.5)), measured(epoch=(3.0, 4.0, 8.0))]
    others = [measured(epoch=(5.0, 2.0, 8.0)), measured(epoch=(6.0, 6.0, 6.0))]
    ratio = ratio_of_fastest(ours, others)
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((0.5, 0.5, 0.5))


def outcome(status: int = 0, timed_out: bool = False, **answer: object) -> Outcome:
    """Return how a process ended that printed an answer as JSON, or nothing."""
    output = json.dumps(answer) if answer else ""
    return Outcome(status, output, "it said this\n", timed_out)


ANSWER = {
    "cases": [{"name": "a", "seconds": [1.0]}],
    "metrics": {"m": 2.0},
    "versions": {"torch": "2"},
    "problems": [],
}


def test_an_answer_of_a_worker_is_read() -> None:
    answer = {**ANSWER, "kernels": {"torch": ["MKL 2024.2"]}}
    assert read_answer(outcome(**answer), "x") == Measured(
        {"a": (1.0,)}, {"m": 2.0}, {"torch": "2"}, {"torch": ["MKL 2024.2"]}
    )


def test_an_answer_of_the_command_line_is_read() -> None:
    library = asdict(Kernels("OpenBLAS", "0.3.13", "Haswell", 1))
    backend = {
        "name": "mxnet",
        "version": "1.9.1",
        "kernels": [library],
        "product": asdict(Product(512, 48.7)),
    }
    read = read_answer(outcome(**ANSWER, backend=backend), "x")
    assert read.versions == {"mxnet": "1.9.1"}
    assert read.figures == {"m": 2.0, "product_gflop_per_s": 48.7}
    assert read.kernels == {"mxnet": ["OpenBLAS 0.3.13, Haswell kernels"]}


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (outcome(1, **{**ANSWER, "problems": ["7 is not 8"]}), "wrong result: 7 is not 8"),
        (
            outcome(3, **{**ANSWER, "problems": ["the whole was quicker than a part"]}),
            "the whole was quicker",
        ),
        (outcome(1), "it said this"),
        (outcome(-9, timed_out=True, **ANSWER), "killed"),
        (Outcome(0, "no JSON", "", timed_out=False), "x: "),
    ],
    ids=["wrong", "disturbed", "failed", "killed", "no-json"],
)
def test_a_wrong_result_and_a_failure_end_a_benchmark(ended: Outcome, message: str) -> None:
    with pytest.raises(click.ClickException, match=message):
        read_answer(ended, "x")


@pytest.mark.parametrize("loss", [1.001, math.nan])
def test_processes_that_did_the_same_work_must_agree(loss: float) -> None:
    agreeing = {name: [Measured({}, {"loss": 1.0}, {})] for name in "ab"}
    side_by_side.refuse_disagreement(agreeing, "loss")
    processes = {**agreeing, "c": [Measured({}, {"loss": loss}, {})]}
    with pytest.raises(click.ClickException, match="the loss is"):
        side_by_side.refuse_disagreement(processes, "loss")
