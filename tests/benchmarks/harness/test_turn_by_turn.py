"""Variants that work in turns: their order, what teams give together, and what happens if one fails."""

import os
import sys
from pathlib import Path

import click
import pytest

from backends.host import available_cores
from benchmarks.harness.side_by_side import Variant
from benchmarks.harness.turn_by_turn import ratio_of_fastest, ratio_of_medians, work_in_turns
from tests.benchmarks.synthetic import measured

pytestmark = pytest.mark.skipif(available_cores() < 2, reason="one core is compared with two")

WORKER = """
import json, os, sys
from benchmarks.harness.turns import turns
log, name = sys.argv[1:]
core, taken = min(os.sched_getaffinity(0)), []
for turn in turns():
    with open(log, "a") as file:
        print(name, turn, len(os.sched_getaffinity(0)), file=file)
    if name == "dies":
        sys.exit("its last words")
    if name == "babbles":
        print("what?", flush=True)
    taken.append(turn + 10 * core)
cases = [{"name": case, "seconds": taken} for case in ("epoch", "processor")]
print(json.dumps({"cases": cases, "metrics": {"core": core}, "versions": {}, "problems": []}))
"""


def variant(log: Path, name: str, **more: str) -> Variant:
    return Variant(name, (sys.executable, "-c", WORKER, str(log), name), **more)  # type: ignore[arg-type]


def test_each_variant_has_its_turn_after_the_one_before(tmp_path: Path) -> None:
    log = tmp_path / "log"
    given = work_in_turns([variant(log, "a"), variant(log, "b", cores="one")], rounds=2, turns=3)
    assert log.read_text().splitlines() == 2 * ["a 1 2", "b 1 1", "a 2 2", "b 2 1", "a 3 2", "b 3 1"]
    assert [len(one.seconds["epoch"]) for one in given["a"]] == [3, 3]
    # A variant on one core has another one in each round.
    assert [one.figures["core"] for one in given["b"]] == sorted(os.sched_getaffinity(0))[:2]


def test_of_processes_on_each_core_the_slower_one_counts_and_processors_add_up(tmp_path: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    (together,) = work_in_turns([variant(tmp_path / "log", "a", cores="each")], rounds=1, turns=2)["a"]
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["a 1 1", "a 1 1", "a 2 1", "a 2 1"]
    assert together.seconds == {
        "epoch": (1 + 10 * second, 2 + 10 * second),
        "processor": (2 + 10 * (first + second), 4 + 10 * (first + second)),
    }


@pytest.mark.parametrize(
    ("name", "reason"), [("dies", "its last words"), ("babbles", "said 'what.' in place of 'done'")]
)
def test_a_worker_that_fails_in_its_turn_ends_all(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=f"{name}: .*{reason}"):
        work_in_turns([variant(tmp_path / "log", "a"), variant(tmp_path / "log", name)], rounds=1, turns=1)


def test_a_disturbed_turn_changes_no_ratio_of_the_fastest() -> None:
    ours = [measured(epoch=(1.0, 9.0, 1.5)), measured(epoch=(3.0, 4.0, 8.0))]
    others = [measured(epoch=(5.0, 2.0, 8.0)), measured(epoch=(6.0, 6.0, 6.0))]
    fastest, medians = ratio_of_fastest(ours, others), ratio_of_medians(ours, others)
    assert (fastest.low, fastest.estimate, fastest.high) == pytest.approx((0.5, 0.5, 0.5))
    assert medians.estimate == pytest.approx((1.5 / 5.0 * 4.0 / 6.0) ** 0.5)
