"""Variants run in interleaved rounds, one after the other or in turns, and their times become
ratios.
"""

import json
import os
import sys
from pathlib import Path
from statistics import median

import click
import pytest

from backends.host import available_cores
from benchmarks.harness import side_by_side
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    paired,
    ratio_of_turns,
    read_answer,
    take_turns,
)
from parallel_core.system.subprocesses import Outcome


def measured(**seconds: tuple[float, ...]) -> Measured:
    return Measured(seconds, {}, {})


two_cores = pytest.mark.skipif(available_cores() < 2, reason="one core is compared with two")
WORKER = """
import json, os, sys
log, name = sys.argv[1:]
core, taken, problems, given = min(os.sched_getaffinity(0)), [], [], [1]
if name.islower():
    from benchmarks.harness.side_by_side import turns
    given = turns()
for turn in given:
    with open(log, "a") as file:
        print(name, turn, len(os.sched_getaffinity(0)), file=file)
    if name == "dies":
        sys.exit("its last words")
    if name == "babbles":
        print("what?", flush=True)
    if name.startswith("DISTURBED") and len(open(log).readlines()) <= int(name[-1]):
        problems = ["it was too fast"]
    taken.append(turn + 10 * core)
cases = [{"name": case, "seconds": taken} for case in ("epoch", "processor")]
print(json.dumps({"cases": cases, "metrics": {"core": core}, "versions": {}, "problems": problems}))
"""


def variant(log: Path, name: str, **more: str) -> Variant:
    """Make a worker that takes turns if its name has small letters."""
    return Variant(name, (sys.executable, "-c", WORKER, str(log), name), **more)  # type: ignore[arg-type]


@two_cores
@pytest.mark.parametrize(("names", "turns"), [("abc", 3), ("ABC", 0)])
def test_rounds_are_interleaved_a_core_changes_with_them_and_the_slower_process_counts(
    names: str, turns: int, tmp_path: Path
) -> None:
    first, second, third = names
    log, cores = tmp_path / "log", sorted(os.sched_getaffinity(0))[:2]
    variants = [
        variant(log, first),
        variant(log, second, cores="one"),
        variant(log, third, cores="each"),
    ]
    given = take_turns(variants, 2, turns)
    numbers = range(1, max(1, turns) + 1)
    turn_of = [(first, 2), (second, 1), (third, 1), (third, 1)]
    assert log.read_text().splitlines() == 2 * [
        f"{on} {turn} {some}" for turn in numbers for on, some in turn_of
    ]
    assert [len(one.seconds["epoch"]) for one in given[first]] == 2 * [len(numbers)]
    assert [one.figures["core"] for one in given[second]] == cores
    for together in given[third]:
        assert together.seconds == {
            "epoch": tuple(turn + 10 * cores[1] for turn in numbers),
            "processor": tuple(2 * turn + 10 * sum(cores) for turn in numbers),
        }


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
    assert len(take_turns([variant(tmp_path / "log", "DISTURBED 2")], 1)["DISTURBED 2"]) == 1


@two_cores
def test_what_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "DEADLINE", 0.5)
    monkeypatch.setattr(side_by_side, "ATTEMPTS", 1)
    with pytest.raises(
        click.ClickException, match=r"x: gave no result within 0.5 s and was killed"
    ):
        take_turns([Variant("x", ("sleep", "60"))], 1)


def test_pairs_are_neighbours_and_a_disturbed_turn_changes_no_ratio_of_the_fastest() -> None:
    drifting = [
        measured(ours=(1.1 * d, 2.2 * d, 4.4 * d), plain=(d, 2 * d, 4 * d)) for d in (1.0, 1.5, 0.5)
    ]
    ratio = paired(drifting, "ours", "plain")
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1.1, 1.1, 1.1))
    ours = [measured(epoch=(1.0, 9.0, 1.5)), measured(epoch=(3.0, 4.0, 8.0))]
    others = [measured(epoch=(5.0, 2.0, 8.0)), measured(epoch=(6.0, 6.0, 6.0))]
    fastest, medians = (ratio_of_turns(of, ours, others) for of in (min, median))
    assert (fastest.low, fastest.estimate, fastest.high) == pytest.approx((0.5, 0.5, 0.5))
    assert medians.estimate == pytest.approx((1.5 / 5.0 * 4.0 / 6.0) ** 0.5)


def outcome(status: int = 0, timed_out: bool = False, **answer: object) -> Outcome:
    return Outcome(status, json.dumps(answer) if answer else "", "it said this\n", timed_out)


ANSWER = {
    "cases": [{"name": "a", "seconds": [1.0]}],
    "metrics": {"m": 2.0},
    "versions": {"torch": "2"},
    "problems": [],
}


def test_answers_of_workers_and_of_the_command_line_are_read() -> None:
    library = {
        "library": "OpenBLAS",
        "version": "0.3.13",
        "instruction_set": "Haswell",
        "threads": 1,
    }
    backend = {
        "name": "mxnet",
        "version": "1.9.1",
        "kernels": [library],
        "product": {"size": 512, "gflop_per_s": 48.7},
    }
    named = {**ANSWER, "kernels": {"torch": ["MKL 2024.2"]}}
    of_worker = Measured({"a": (1.0,)}, {"m": 2.0}, {"torch": "2"}, {"torch": ["MKL 2024.2"]})
    assert read_answer(outcome(**named), "x") == of_worker
    read = read_answer(outcome(**ANSWER, backend=backend), "x")
    assert (read.versions, read.figures) == (
        {"mxnet": "1.9.1"},
        {"m": 2.0, "product_gflop_per_s": 48.7},
    )
    assert read.kernels == {"mxnet": ["OpenBLAS 0.3.13, Haswell kernels"]}


@pytest.mark.parametrize(
    ("gave", "said"),
    [
        (outcome(1, **{**ANSWER, "problems": ["7 is not 8"]}), "wrong result: 7 is not 8"),
        (
            outcome(3, **{**ANSWER, "problems": ["the whole was quicker than a part"]}),
            "the whole was quicker",
        ),
        (outcome(1), "it said this"),
        (outcome(-9, timed_out=True, **ANSWER), "killed"),
        (Outcome(0, "no JSON", "", False), "x: "),
    ],
)
def test_a_wrong_result_and_a_failure_end_a_benchmark(gave: Outcome, said: str) -> None:
    with pytest.raises(click.ClickException, match=said):
        read_answer(gave, "x")


def test_processes_that_did_the_same_work_must_agree() -> None:
    agreeing, off = (Measured({}, {"loss": loss}, {}) for loss in (1.0, 1.001))
    side_by_side.refuse_disagreement({"a": [agreeing], "b": [agreeing]}, "loss")
    for wrong in (off, Measured({}, {"loss": float("nan")}, {})):
        with pytest.raises(click.ClickException, match="the loss is"):
            side_by_side.refuse_disagreement({"a": [agreeing], "b": [wrong]}, "loss")
