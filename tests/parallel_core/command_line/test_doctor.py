"""`parallel-core doctor` as a user meets it: what is shown, what programs read, and the exit status."""

import json
import sys
from pathlib import Path

import pytest

from backends.installation.frameworks import Diagnosis, install_command
from parallel_core.command_line.doctor import show_examination
from parallel_core.doctor import Finding
from parallel_core.doctor.examination import Examination
from tests.conftest import FRAMEWORKS, RunProgram
from tests.parallel_core.doctor.stub_frameworks import HIDDEN, MakeStub, make_plug_in
from tests.parallel_core.terminal.printed import printed

LONG = "pip install " + " ".join(f"'package-{number}==1.0'" for number in range(20))
FIRST = {"First": (Finding("one", "fine", "is [well]"), Finding("two", "absent", "not here", Diagnosis("A", "a")))}
ALL = Examination(
    FIRST
    | {
        "Second": (
            Finding("three", "doubtful", "odd", Diagnosis("B", "b")),
            Finding("four", "broken", "cut", Diagnosis("C", LONG), {"cut": 3}),
            Finding("five", "broken", "cut too", Diagnosis("C", LONG)),
        )
    }
)


def shown(everything: bool) -> list[str]:
    return [line.strip() for line in printed(show_examination, ALL, everything=everything, width=60).splitlines()]


def test_a_person_reads_problems_first_and_pastes_commands() -> None:
    lines, details = shown(False), shown(True)
    # The worst comes first, and each diagnosis once.
    assert lines[:3] == ["1. ✗ broken: four", "C", LONG]
    assert [line for line in lines if line[1:3] == ". "][1:] == ["2. ! doubtful: three", "3. – absent: two"]
    assert lines[-2:] == ["✓ fine: one", "✗ 2 things are broken."]
    assert details.index("3. – absent: two") < details.index("✓ fine      one                   is [well]")
    assert details[-1] == lines[-1]


def test_programs_read_the_documented_keys() -> None:
    report = json.loads(json.dumps(ALL.as_json()))
    assert list(report) == ["schema", "parallel_core", "utc", "works", "sections", "problems"]
    assert (report["schema"], report["works"], Examination(FIRST).as_json()["works"]) == (1, False, True)
    said = {"cause": "C", "command": LONG}
    expected = {"name": "four", "state": "broken", "text": "cut", **said, "figures": {"cut": 3}}
    assert report["sections"][1]["findings"][1] == expected
    assert report["problems"][0] == {"section": "Second", "name": "four", "state": "broken", **said}
    assert report["sections"][0]["findings"][0]["cause"] is None


def test_the_status_tells_whether_there_is_a_framework(
    program: RunProgram, make_stub: MakeStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Here, and in processes that are started.
    make_stub("sitecustomize", HIDDEN.format(names=[*FRAMEWORKS]))
    for name in FRAMEWORKS:
        monkeypatch.setitem(sys.modules, name, None)
    done = program("doctor", "--json", "-")
    assert done.returncode == 1
    problems = {problem["name"]: problem for problem in json.loads(done.stdout)["problems"]}
    assert problems["frameworks"]["state"] == "broken"
    assert all(problems[name]["command"].endswith(install_command("torch")) for name in ("frameworks", "torch"))
    assert "✗ broken: frameworks" in done.stderr
    make_plug_in(make_stub)
    path = tmp_path / "doctor.json"
    done = program("doctor", "--json", str(path))
    assert done.returncode == 0, done.stdout
    assert json.loads(path.read_text())["works"]
    assert "✓ All that is installed works." in done.stdout
    assert install_command("torch") in done.stdout
