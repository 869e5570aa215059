"""`parallel-core doctor` as a user meets it: what is shown, what programs read, and the exit status."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from parallel_core.doctor import Diagnosis, Examination, Finding, Section
from parallel_core.terminal.doctor import show_section, show_summary
from tests.conftest import FRAMEWORKS
from tests.parallel_core.doctor.stub_frameworks import HIDDEN, MakeStub, make_plug_in

LONG = "pip install " + " ".join(f"'package-{number}==1.0'" for number in range(20))
SECTIONS = (
    Section("First", (Finding("one", "fine", "is [well]"), Finding("two", "absent", "not here", Diagnosis("A", "a")))),
    Section(
        "Second",
        (
            Finding("three", "doubtful", "odd", Diagnosis("B", "b")),
            Finding("four", "broken", "cut", Diagnosis("C", LONG), {"cut": 3}),
            Finding("five", "broken", "cut too", Diagnosis("C", LONG)),
        ),
    ),
)


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "parallel_core", "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_worst_comes_first_and_each_diagnosis_once() -> None:
    assert [finding.name for _, finding in Examination(SECTIONS).problems] == ["four", "three", "two"]


@pytest.mark.parametrize(("number", "works"), [(1, True), (2, False)])
def test_only_what_is_broken_is_a_failure(number: int, works: bool) -> None:
    assert Examination(SECTIONS[:number]).works is works


def test_a_person_reads_marks_with_words_and_pastes_commands() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=60, highlight=False)
    for section in SECTIONS:
        show_section(section, console)
    show_summary(Examination(SECTIONS), console)
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert "✓ fine      one                   is [well]" in lines
    assert "1. ✗ broken: four" in lines
    assert "✓ fine: one" in lines
    assert lines[lines.index("1. ✗ broken: four") + 1 :][:2] == ["C", LONG]
    assert lines[-1] == "✗ 2 things are broken."


def test_programs_read_the_documented_keys() -> None:
    report = json.loads(json.dumps(Examination(SECTIONS).as_json()))
    assert list(report) == ["schema", "parallel_core", "utc", "works", "sections", "problems"]
    assert (report["schema"], report["works"]) == (1, False)
    assert report["sections"][1]["findings"][1] == {
        "name": "four",
        "state": "broken",
        "text": "cut",
        "cause": "C",
        "command": LONG,
        "figures": {"cut": 3},
    }
    assert report["problems"][1] == {
        "section": "Second",
        "name": "three",
        "state": "doubtful",
        "cause": "B",
        "command": "b",
    }


def test_without_a_framework_the_status_is_1_and_the_json_stands_alone(make_stub: MakeStub) -> None:
    make_stub("sitecustomize", HIDDEN.format(names=[*FRAMEWORKS]))
    done = program("--json", "-")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    problems = {problem["name"]: problem for problem in report["problems"]}
    assert problems["frameworks"]["state"] == "broken"
    assert problems["torch"]["command"].endswith("pip install 'parallel-core[torch]'")
    assert "✗ broken: frameworks" in done.stderr


def test_with_one_framework_the_status_is_0(make_stub: MakeStub, tmp_path: Path) -> None:
    make_stub("sitecustomize", HIDDEN.format(names=[*FRAMEWORKS]))
    make_plug_in(make_stub)
    path = tmp_path / "doctor.json"
    done = program("--json", str(path))
    assert done.returncode == 0, done.stdout
    assert json.loads(path.read_text())["works"]
    assert "✓ All that is installed works." in done.stdout
    assert "pip install 'parallel-core[torch]'" in done.stdout


def test_bad_input_is_one_line_and_status_2() -> None:
    done = program("--json", "/nowhere/doctor.json")
    assert done.returncode == 2
    assert done.stderr == "parallel-core: cannot write to /nowhere/doctor.json: No such file or directory\n"
