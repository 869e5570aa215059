"""`parallel-core doctor` as a user meets it: the screen, the JSON, and the exit status."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from backends.installation.frameworks import Diagnosis, install_command
from parallel_core.command_line.doctor import show_examination
from parallel_core.doctor import Finding, frameworks
from parallel_core.doctor.examination import Examination
from tests.conftest import FRAMEWORKS, RunProgram
from tests.parallel_core.doctor.stub_frameworks import HIDDEN, MakeStub, make_plug_in
from tests.parallel_core.terminal.printed import printed

LONG = "pip install " + " ".join(f"'package-{number}==1.0'" for number in range(20))
FINE = {
    "First": (
        Finding("one", "fine", "is [well]"),
        Finding("two", "absent", "not here", Diagnosis("Two is not here", "make two")),
    )
}
BROKEN = Examination(
    ("One", "Another"),
    FINE
    | {
        "Second": (
            Finding("three", "doubtful", "odd", Diagnosis("Three is [odd]")),
            Finding("four", "broken", "cut", Diagnosis("Four is cut", LONG), {"cut": 3}),
            Finding("five", "broken", "cut too", Diagnosis("Four is cut", LONG)),
        )
    },
)


def lines(examination: Examination, everything: bool = False, width: int = 60) -> list[str]:
    return printed(show_examination, examination, everything=everything, width=width).splitlines()


def test_the_answer_comes_first_then_the_worst_and_commands_can_be_pasted() -> None:
    assert lines(BROKEN) == [
        "One and Another work. 1 thing is broken.",
        "✗  Four is cut:",
        f"   {LONG}",
        "!  Three is [odd].",
        "-  Two is not here:             make two",
    ]
    # Without room beside it, a command stands below.
    assert lines(BROKEN, width=39)[-2:] == ["-  Two is not here:", "   make two"]
    assert lines(Examination(("One",), FINE))[0] == "One works. Nothing is broken."
    assert lines(Examination((), FINE))[0] == "No framework works. Nothing is broken."


def test_all_that_was_examined_follows_on_request() -> None:
    short, details = lines(BROKEN), lines(BROKEN, everything=True)
    assert details[: len(short)] == short
    assert details[len(short) :] == [
        "",
        "First",
        "✓  one: is [well]",
        "-  two: not here",
        "",
        "Second",
        "!  three: odd",
        "✗  four: cut",
        "✗  five: cut too",
    ]


def test_programs_read_the_documented_keys() -> None:
    report = json.loads(json.dumps(BROKEN.as_json()))
    assert list(report) == ["schema", "parallel_core", "utc", "works", "sections", "problems"]
    assert report["schema"] == 1
    assert not report["works"]
    assert Examination((), FINE).as_json()["works"]
    said = {"code": "unknown", "cause": "Four is cut", "command": LONG}
    expected = {"name": "four", "state": "broken", "text": "cut", **said, "figures": {"cut": 3}}
    assert report["sections"][1]["findings"][1] == expected
    assert report["problems"][0] == {"section": "Second", "name": "four", "state": "broken", **said}
    assert report["sections"][0]["findings"][0]["cause"] is None
    # No command helps against it.
    assert report["problems"][1]["command"] is None


def test_the_status_tells_whether_there_is_a_framework(
    program: RunProgram, make_stub: MakeStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Here, and in processes that are started.
    make_stub("sitecustomize", HIDDEN.format(names=[*FRAMEWORKS]))
    for name in FRAMEWORKS:
        monkeypatch.setitem(sys.modules, name, None)
    # No environment beside has them either.
    monkeypatch.setattr(
        frameworks, "try_backend", partial(frameworks.try_backend, checkout=tmp_path)
    )
    done = program("doctor", "--json=-")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    sections = [section["name"] for section in report["sections"]]
    assert sections == ["Frameworks", "Kernels", "Devices", "Settings", "Data"]
    problems = {problem["name"]: problem for problem in report["problems"]}
    assert problems["frameworks"]["state"] == "broken"
    for name in ("frameworks", "torch"):
        assert problems[name]["command"].endswith(install_command("torch"))
    assert done.stderr.startswith("NumPy works.")
    make_plug_in(make_stub)
    path = tmp_path / "doctor.json"
    done = program("doctor", f"--json={path}")
    assert done.returncode == 0, done.stdout
    assert json.loads(path.read_text())["works"]
    assert done.stdout.startswith("own and NumPy work. Nothing is broken.")
    assert install_command("torch") in done.stdout
