"""The labs: solutions pass what is judged, and typical mistakes fail at the step that is about
them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest

from backends.host import core_numbers, on_cores
from backends.registry.files import FILES, named
from parallel_core.labs import grading, programs
from parallel_core.labs.grading import (
    ENGINE,
    LABS,
    Outcome,
    drawn,
    graded,
    judge_order,
    judge_random_programs,
    judge_values,
)
from parallel_core.measurement.result import Counted, Note
from parallel_core.system.errors import MeasurementError
from tests.conftest import RunProgram
from tests.parallel_core.report.plots.synthetic_results import TIMED

SOLUTION = Path(__file__).parent / "solution.py"
"""Of all labs: a queue for each device is one queue if there is one device, and one more does no
harm.
"""
SKELETONS = Path(programs.__file__).parent
LANE = '"copies" if task.kind == "copy" else task.device'
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
ONE_LOCK = {
    "from threading import Event,": "from threading import Event, Lock,",
    "    reuses_memory = True": "    reuses_memory = True\n    lock = Lock()",
    "task.value = task.compute()": "with self.lock: task.value = task.compute()",
}


VALUES, PROMPT, RANDOM_PROGRAMS, ORDER = range(4)
"""The steps of a lab."""


class Mistake(NamedTuple):
    """A mistake in the solution of a lab, and how it is judged."""

    lab: str
    changes: Mapping[str, str]
    """What stands in the place of which text."""
    step: int
    """The step that fails: `VALUES`, …"""
    message: str = ""
    """What is said of it."""

    @property
    def is_long(self) -> bool:
        """Whether the grader waits for long before it fails."""
        return self.step == ORDER or self.message in SLOW


NOTHING_COMPUTED, WAITS_FOR_LATER = "nothing computed before", "waits for a later one"
SLOW = (NOTHING_COMPUTED, WAITS_FOR_LATER)
"""What is said when the grader has waited for long."""
NO_RESULT = "gave no result within"
NOT_READY = "read before it was ready"
NONE_BESIDE = "0 of 25"
MISTAKES = [
    Mistake("queue", {"            try:": "            task.done.set()\n            try:"}, PROMPT),
    Mistake("queue", {"task.value = task.compute()": LOSING}, VALUES),
    Mistake("queue", LAZY, PROMPT, NOTHING_COMPUTED),
    Mistake("queue", {"task.done.wait()\n\n": "self.wait_for_all()\n\n"}, PROMPT, WAITS_FOR_LATER),
    Mistake("queue", {"task.error = error": "del error"}, RANDOM_PROGRAMS, "no ComputationError"),
    Mistake("queue", {"while True": "for _ in range(64)"}, VALUES, NO_RESULT),
    Mistake("two-queues", {"(*inputs, *before)": "before"}, VALUES, NOT_READY),
    Mistake(
        "two-queues",
        {"list(self.last.values())": "list(self.last.values())[:1]"},
        RANDOM_PROGRAMS,
        NOT_READY,
    ),
    Mistake("two-queues", {LANE: '"copies"'}, ORDER, NONE_BESIDE),
    Mistake("two-queues", ONE_LOCK, ORDER, NONE_BESIDE),
    Mistake("hide-a-copy", {"(*inputs, *before)": "inputs"}, VALUES),
    Mistake(
        "hide-a-copy",
        {"(task, before)": "(task, [*before, task.done])"},
        VALUES,
        NO_RESULT,
    ),
    # The last result does not count.
    Mistake("hide-a-copy", {LANE: "task.device"}, ORDER, "0 of 24"),
]


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge by few programs, and forget the engines' files afterwards."""
    monkeypatch.setitem(os.environ, FILES, "")
    monkeypatch.setattr(grading, "PROGRAMS", 60)


def engine_in(folder: Path, changes: Mapping[str, str]) -> str:
    """Write the solution with these texts changed into a folder, and return the engine's name."""
    text = SOLUTION.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "engine.py"
    file.write_text(text)
    return named(f"{file}:{ENGINE}")


def judged(name: str, engine: str, step: int) -> Outcome:
    """Return what is said of one step of a lab."""
    lab, random = LABS[name], np.random.default_rng(1)
    if step == VALUES:
        return judge_values(lab, engine, lab.program, random)
    if step == PROMPT:
        return judge_values(lab, engine, programs.PROMPTLY, random)
    if step == RANDOM_PROGRAMS:
        return judge_random_programs(lab, engine, 1)
    return judge_order(lab, engine)


@pytest.mark.long
@pytest.mark.parametrize("lab", LABS)
def test_a_solution_passes_and_has_a_lane_for_each_queue(lab: str, tmp_path: Path) -> None:
    engine = engine_in(tmp_path, {})
    assert [outcome.state for outcome in graded(LABS[lab], engine, 1)] == ["passed"] * 4
    assert len(drawn(LABS[lab], engine).splitlines()) == LABS[lab].devices + 1


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(mistake, marks=pytest.mark.long if mistake.is_long else ())
        for mistake in MISTAKES
    ],
)
def test_a_mistake_fails_at_its_step(
    monkeypatch: pytest.MonkeyPatch, mistake: Mistake, tmp_path: Path
) -> None:
    if "no result" in mistake.message:
        monkeypatch.setattr(grading, "MOST_SECONDS", 2.0)
    engine = engine_in(tmp_path, mistake.changes)
    # On a busy machine a value may be ready by chance where nothing waits for it.
    for _ in range(3):
        outcome = judged(mistake.lab, engine, mistake.step)
        if outcome.state == "failed":
            break
    assert outcome.state == "failed"
    assert mistake.message in outcome.got
    assert outcome.expected
    assert outcome.program


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
    engine = engine_in(tmp_path, changes)
    for step in (VALUES, PROMPT, RANDOM_PROGRAMS):
        assert judged("queue", engine, step).state == "passed"


IN_SUBMIT = "    def submit(self, task: Task) -> None:\n        "
STARTING = "worker.start()"
WILD: Mapping[str, tuple[Mapping[str, str], str]] = {
    "exits": ({IN_SUBMIT: f"{IN_SUBMIT}raise SystemExit(0)\n        "}, "SystemExit"),
    "ends its process": ({IN_SUBMIT: f"{IN_SUBMIT}os._exit(0)\n        "}, "exit status 0"),
    "works where it should start": (
        {STARTING: "self.work(queue)"},
        "did not return within 4 s",
    ),
    "never ends its import": (
        {"class MyEngine": "import time\ntime.sleep(1000)\n\nclass MyEngine"},
        "did not return within 4 s",
    ),
    "takes too much memory": (
        {"self.last: ": "self.all = bytearray(8 * 2**30)\n        self.last: "},
        "MemoryError",
    ),
}
"""What engines may do in place of giving wrong values, and what the grader says."""


@pytest.mark.parametrize("behaviour", WILD)
def test_whatever_an_engine_does_is_a_failed_step_with_one_line(
    monkeypatch: pytest.MonkeyPatch, behaviour: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(grading, "MOST_STARTING_SECONDS", 4.0)
    changes, message = WILD[behaviour]
    engine = engine_in(tmp_path, {"from queue": "import os\nfrom queue", **changes})
    for step in (VALUES, RANDOM_PROGRAMS):
        outcome = judged("queue", engine, step)
        assert outcome.state == "failed"
        assert "\n" not in outcome.got
        assert message in outcome.got


def test_a_timeline_has_a_line_for_each_thread_or_says_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spans = [("multiply", "cpu:1", 1.0, 1.5), ("copy", "copies", 1.5, 2.0)]
    monkeypatch.setattr(grading, "computed", lambda *_: spans)
    assert drawn(LABS["queue"], "any", width=4).splitlines() == [
        "cpu:1        mmm  ",
        "copies         ccc",
    ]
    spans.clear()
    assert drawn(LABS["queue"], "any") == "no timeline: no task was computed"
    monkeypatch.setattr(grading, "computed", Mock(side_effect=MeasurementError("hangs")))
    assert drawn(LABS["queue"], "any") == "no timeline: hangs"


def test_a_lab_is_started_once_and_its_grades_are_json(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program("lab", "start", "queue").returncode == 0
    assert program("lab", "start", "queue").returncode == 2
    assert program("lab", "check", ".").returncode == 2
    Path("queue/engine.py").write_text("import os\nos._exit(3)\n")
    assert program("lab", "check", "queue", "--json=grades.json").returncode == 1
    grades = json.loads(Path("grades.json").read_text())
    assert (grades["points"], grades["of"]) == (0, 100)
    for step in grades["steps"]:
        assert step["state"] == "failed"
        assert "status 3" in step["got"]


@pytest.mark.long
def test_a_solution_gets_all_points_on_one_core_too(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program("lab", "start", "two-queues").returncode == 0
    Path("two-queues/engine.py").write_text(SOLUTION.read_text())
    with on_cores({core_numbers()[0]}):
        done = program("lab", "check", "two-queues", "--json=grades.json")
    grades = json.loads(Path("grades.json").read_text())
    assert done.returncode == 0
    assert (grades["points"], grades["of"]) == (100, 100)


@pytest.mark.parametrize("lab", LABS)
def test_skeletons_are_short_and_run(lab: str, tmp_path: Path) -> None:
    text = (SKELETONS / lab / "engine.py").read_text()
    assert 30 <= len(text.splitlines()) <= 80
    (tmp_path / "engine.py").write_text(text)
    outcome = judged(lab, named(f"{tmp_path / 'engine.py'}:{ENGINE}"), VALUES)
    assert outcome.state == ("failed" if lab == "hide-a-copy" else "passed")
    assert NO_RESULT not in outcome.got


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not PATH.py:Class"),
        ("syntax error", "cannot be run: SyntaxError"),
        ("x = 1", "has no class Mine"),
    ],
    ids=["no-file", "no-python", "no-class"],
)
def test_a_backend_in_a_file_that_cannot_be_loaded_is_one_line(
    program: RunProgram, tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "one.py"
    if text is not None:
        path.write_text(text)
    done = program("run", "parallel", f"--backend={path}:Mine")
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("beside", "problem", "is_disturbance", "state"),
    [
        (25, "", False, "passed"),
        (13, "", False, "passed"),
        (12, "", False, "failed"),
        # A busy machine may measure times that cannot be true, and counts all the same.
        (25, "too fast", True, "passed"),
        (0, "too fast", True, "failed"),
        (25, "other numbers", False, "failed"),
    ],
)
def test_order_is_judged_by_the_count_whatever_the_times(
    monkeypatch: pytest.MonkeyPatch, beside: int, problem: str, is_disturbance: bool, state: str
) -> None:
    lab = LABS["two-queues"]
    problems = (Note(None, problem),) if problem else ()
    result = replace(
        TIMED,
        counts={lab.order.name: Counted(beside, 25, "a test", (beside,))},
        problems=problems,
        disturbances=problems if is_disturbance else (),
    )
    monkeypatch.setattr(grading, "measured", lambda *_: result)
    assert judge_order(lab, "any").state == state


def test_an_engine_of_which_nothing_is_counted_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading, "measured", lambda *_: replace(TIMED, counts={}))
    outcome = judge_order(LABS["queue"], "any")
    assert (outcome.state, outcome.expected) == ("failed", "a count")
