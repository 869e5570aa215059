"""The labs: solutions pass what is judged, and typical mistakes fail at the step that is about
them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backends.host import core_numbers, on_cores
from backends.registry.files import FILES, named
from parallel_core.experiments import EXPERIMENTS
from parallel_core.labs import grading
from parallel_core.labs.grading import ENGINE, LABS, Outcome, drawn, graded
from parallel_core.labs.programs import __file__ as programs
from parallel_core.system.errors import DISTURBED
from parallel_core.system.machine import MachineWatch
from tests.conftest import RunProgram
from tests.parallel_core.experiments.runner.pretended import case, pretended, trial

SOLUTION = Path(__file__).parent / "solution.py"
"""Of all labs: a queue for each device is one queue if there is one device, and one more does no
harm.
"""
SKELETONS = Path(programs).parent
PLACE = '"copies" if task.kind == "copy" else task.device'
LAZY = {
    "worker.start()": "pass",
    "while True": "while not queue.empty()",
    "task.done.wait()": "self.work(self.queues[task.device])",
}
"""Whoever waits computes."""
LOSING = (
    "self.done = getattr(self, 'done', 0) + 1; task.value = task.compute() - (self.done == 5000)"
)
"""One of ten thousand increments is lost."""
MISTAKES = [
    # The lab, the text that is wrong and what stands in its place, the step that fails (from 0),
    # and what it says.
    ("queue", {"            try:": "            task.done.set()\n            try:"}, 1, ""),
    ("queue", {"task.value = task.compute()": LOSING}, 0, ""),
    ("queue", LAZY, 1, "nothing computed before"),
    ("queue", {"task.done.wait()\n\n": "self.wait_for_all()\n\n"}, 1, "waits for a later one"),
    ("queue", {"task.error = error": "del error"}, 2, "no ComputationError"),
    ("queue", {"while True": "for _ in range(64)"}, 0, "gave no result within"),
    (
        "two-queues",
        {"*(one.done for one in task.inputs), *before": "*before,"},
        0,
        "read before it was ready",
    ),
    (
        "two-queues",
        {"list(self.last.values())": "list(self.last.values())[:1]"},
        2,
        "read before it was ready",
    ),
    ("two-queues", {PLACE: '"copies"'}, 3, "parallel_speedup"),
    ("hide-a-copy", {"for one in task.inputs), *before)": "for one in task.inputs),)"}, 0, ""),
    ("hide-a-copy", {"(task, before)": "(task, [*before, task.done])"}, 0, "gave no result within"),
    ("hide-a-copy", {PLACE: "task.device"}, 3, "overlap_efficiency"),
]

SLOW = ("nothing computed before", "waits for a later one")
"""What is said when the grader has waited for long."""


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, FILES, "")
    monkeypatch.setattr(grading, "PROGRAMS", 60)


def engine_in(folder: Path, changes: Mapping[str, str]) -> str:
    text = SOLUTION.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "engine.py").write_text(text)
    return named(f"{folder / 'engine.py'}:{ENGINE}")


def judged(lab: str, engine: str, steps: int) -> list[Outcome]:
    return [outcome for _, outcome in zip(range(steps), graded(LABS[lab], engine, 1), strict=False)]


@pytest.mark.long
@pytest.mark.parametrize("lab", LABS)
def test_a_solution_passes_and_is_never_too_slow_and_has_a_lane_for_each_queue(
    lab: str, tmp_path: Path
) -> None:
    engine = engine_in(tmp_path, {})
    *before, speed = (outcome.state for outcome in judged(lab, engine, 4))
    assert (before, speed in ("passed", "not judged")) == (["passed"] * 3, True)
    assert len(drawn(LABS[lab], engine).splitlines()) == LABS[lab].devices + 1


@pytest.mark.parametrize(
    ("lab", "changes", "step", "message"),
    [
        pytest.param(*one, marks=pytest.mark.long if one[2] == 3 or one[3] in SLOW else ())
        for one in MISTAKES
    ],
)
def test_a_mistake_fails_at_its_step(
    monkeypatch: pytest.MonkeyPatch,
    lab: str,
    changes: Mapping[str, str],
    step: int,
    message: str,
    tmp_path: Path,
) -> None:
    if "no result" in message:
        monkeypatch.setattr(grading, "MOST_SECONDS", 2.0)
    engine = engine_in(tmp_path, changes)
    # On a busy machine a value may be ready by chance where nothing waits for it.
    for _ in range(3):
        *before, outcome = judged(lab, engine, step + 1)
        if outcome.state == "failed":
            break
    assert [one.state for one in before] == ["passed"] * step
    # A figure is not judged on a machine that is busy.
    assert outcome.state == "failed" or (step, outcome.state) == (3, "not judged")
    assert outcome.state != "failed" or (
        message in outcome.got and outcome.expected and outcome.program
    )


def test_a_right_engine_may_print_keep_its_thread_alive_and_import_what_lies_beside_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "beside_the_engine.py").write_text("WORDS = 'submitted', '[1, 2]'\n")
    changes = {
        "from queue": "import sys\nfrom beside_the_engine import WORDS\nfrom queue",
        ", daemon=True": "",
        "    def submit(self, task: Task) -> None:": "    def submit(self, task: Task) -> None:\n  "
        "      print(*WORDS)",
        "    def wait_for_all(self) -> None:": "    def wait_for_all(self) -> None:\n        "
        "sys.stdout = None",
    }
    outcomes = judged("queue", engine_in(tmp_path, changes), 3)
    assert [outcome.state for outcome in outcomes] == ["passed"] * 3


IN_SUBMIT = "    def submit(self, task: Task) -> None:\n        "
STARTING = "worker.start()"
WILD: Mapping[str, tuple[Mapping[str, str], str]] = {
    "exits": ({IN_SUBMIT: f"{IN_SUBMIT}raise SystemExit(0)\n        "}, "SystemExit"),
    "ends its process": ({IN_SUBMIT: f"{IN_SUBMIT}os._exit(0)\n        "}, "exit status 0"),
    "works where it should start": (
        {STARTING: "self.work(self.queues[place])"},
        "`start` (engine.py, line",
    ),
    "never ends its import": (
        {"class MyEngine": "while True: pass\n\nclass MyEngine"},
        "`<module>` (engine.py, line",
    ),
    "takes too much memory": (
        {"self.last: ": "self.all = bytearray(8 * 2**30)\n        self.last: "},
        "MemoryError",
    ),
}
"""What engines may do in place of giving wrong values, and what the grader says."""


@pytest.mark.parametrize("what", WILD)
def test_whatever_an_engine_does_is_a_failed_step_with_one_line(
    monkeypatch: pytest.MonkeyPatch, what: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(grading, "MOST_STARTING_SECONDS", 4.0)
    changes, message = WILD[what]
    engine = engine_in(tmp_path, {"from queue": "import os\nfrom queue", **changes})
    first, _, third = judged("queue", engine, 3)
    for outcome in (first, third):
        assert (outcome.state, "\n" in outcome.got) == ("failed", False)
        assert message in outcome.got
    assert drawn(LABS["queue"], engine).startswith("no timeline")


FORGED = """
import json, os, sys
import backends.conformance.judging, backends.conformance.running, backends.conformance.searching
from backends.conformance import judging, running, searching
from parallel_core.labs import grading, programs

judging.judge = searching.judge = lambda *_, **__: None
grading._is_equal = lambda *_: True
running.run = lambda *_: None
programs.compute = lambda loaded, answer, *_: answer([])
for name in ("increments", "promptly"):
    getattr(programs, name).__code__ = (lambda *_: (1, 1)).__code__


class MyEngine:
    engine, devices, ops = "async", (), None
    spans = [("", 1, "x")]

    def __init__(self, *_):
        print(json.dumps([1, 1]))
"""


def test_an_engine_that_computes_nothing_and_replaces_the_judge_gets_no_points_for_values(
    tmp_path: Path,
) -> None:
    (tmp_path / "engine.py").write_text(FORGED)
    engine = named(f"{tmp_path / 'engine.py'}:{ENGINE}")
    assert [outcome.state for outcome in judged("queue", engine, 3)] == ["failed"] * 3
    assert drawn(LABS["queue"], engine).startswith("no timeline")


def test_a_lab_is_started_once_and_its_grades_are_json(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [program("lab", "start", "queue").returncode for _ in range(2)] == [0, 2]
    assert program("lab", "check", ".").returncode == 2
    Path("queue/engine.py").write_text("import os\nos._exit(3)\n")
    assert program("lab", "check", "queue", "--json", "grades.json").returncode == 1
    grades = json.loads(Path("grades.json").read_text())
    assert (grades["points"], grades["of"], {step["state"] for step in grades["steps"]}) == (
        0,
        100,
        {"failed"},
    )
    assert all("status 3" in step["got"] for step in grades["steps"])


@pytest.mark.long
def test_a_step_that_is_not_judged_leaves_no_verdict(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program("lab", "start", "two-queues").returncode == 0
    Path("two-queues/engine.py").write_text(SOLUTION.read_text())
    with on_cores({core_numbers()[0]}):
        done = program("lab", "check", "two-queues", "--json", "grades.json")
    grades = json.loads(Path("grades.json").read_text())
    assert [step["state"] for step in grades["steps"]] == ["passed"] * 3 + ["not judged"]
    assert (done.returncode, grades["points"], grades["of"]) == (DISTURBED, 60, 60)


@pytest.mark.parametrize("lab", LABS)
def test_skeletons_are_short_and_run(lab: str, tmp_path: Path) -> None:
    text = (SKELETONS / lab / "engine.py").read_text()
    assert 30 <= len(text.splitlines()) <= 80
    (tmp_path / "engine.py").write_text(text)
    (first,) = judged(lab, named(f"{tmp_path / 'engine.py'}:{ENGINE}"), 1)
    assert first.state == ("failed" if lab == "hide-a-copy" else "passed")


def test_a_backend_in_a_file_that_cannot_be_loaded_is_one_line(
    program: RunProgram, tmp_path: Path
) -> None:
    path = tmp_path / "one.py"
    for text, message in (
        (None, "is not PATH.py:Class"),
        ("syntax error", "cannot be run: SyntaxError"),
        ("x = 1", "has no class Mine"),
    ):
        if text is not None:
            path.write_text(text)
        done = program("run", "parallel", "--backend", f"{path}:Mine")
        assert done.returncode == 2
        assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("lab", "figure", "problem", "busy", "cores", "state"),
    [
        ("two-queues", (1.8, 1.9, 2.0), "", False, 2, "passed"),
        ("two-queues", (1.4, 1.5, 1.6), "", False, 2, "failed"),
        # More than is possible, but within the lab's bounds, and beyond them.
        ("two-queues", (2.05, 2.1, 2.15), "impossible", False, 2, "passed"),
        ("hide-a-copy", (1.25, 1.3, 1.35), "impossible", False, 2, "failed"),
        ("two-queues", (2.05, 2.1, 2.15), "impossible", True, 2, "not judged"),
        ("two-queues", (1.8, 1.9, 2.0), "other numbers", False, 2, "failed"),
        ("two-queues", (1.8, 1.9, 2.0), "other numbers", True, 2, "failed"),
        ("two-queues", (1.6, 1.8, 2.0), "", True, 2, "not judged"),
        ("queue", (0.3, 0.4, 0.6), "", True, 2, "not judged"),
        ("queue", (0.2, 0.3, 0.4), "", True, 2, "passed"),
        # A quota.
        ("two-queues", (1.4, 1.5, 1.6), "", False, 1.5, "not judged"),
        ("queue", (0.2, 0.3, 0.4), "", False, 1, "passed"),
    ],
)
def test_a_figure_is_judged_by_the_lab_s_bounds_where_cores_and_quiet_allow_it(
    monkeypatch: pytest.MonkeyPatch,
    lab: str,
    figure: list[float],
    problem: str,
    busy: bool,
    cores: float,
    state: str,
) -> None:
    low, value, high = figure
    main = EXPERIMENTS[LABS[lab].experiment].main
    found = replace(
        pretended(trial(case("any", 1.0)), main),
        metrics={main.name: value},
        metric_intervals={main.name: (low, high)},
        problems=(problem,) if problem else (),
        disturbances=(problem,) if problem == "impossible" else (),
        machine_watch=MachineWatch(10.0, 2.0, 0.5 if busy else 0.0, None, None, None, None),
    )
    monkeypatch.setattr(grading, "measured", lambda *_: found)
    monkeypatch.setattr(grading, "usable_cores", lambda: cores)
    assert grading.judge_figure(LABS[lab], "any").state == state
