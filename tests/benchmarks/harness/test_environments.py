"""The matrix of environments, of a stand-in for a Python that says what pytest and our program say."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.harness.environments import NAME, main
from benchmarks.tables.__main__ import write_table

PYTHON = """#!/bin/sh
case "$*" in
*platform*) echo '{"python": "3.13.0", "torch": "2.13.0", "numpy": "2.5.5"}';;
*"--require torch tests/backends") echo 'FAILED tests/a.py::test_a[torch] - no'; echo '1 failed, 20 passed in 3s';;
*conformance*) printf 'torch on async: 12 programs, 60 a minute, all equal to NumPy'"'"'s\\n'
               printf 'torch on sync: 3 programs, 9 a minute, 1 found that is not\\njax on sync: skipped: no\\n';;
*async*) exit 3;;
*overlap*) echo 'parallel-core: it | failed' >&2; exit 1;;
esac
"""


def test_an_environment_is_tried_and_replaces_what_was_known_of_its_versions(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for _ in range(2):
        done = CliRunner().invoke(main, [str(python), "--out", str(tmp_path)])
        assert done.exit_code == 0, done.output
    (tried,) = json.loads((tmp_path / NAME).read_text())["environments"]
    assert tried["versions"] == {"python": "3.13.0", "torch": "2.13.0", "numpy": "2.5.5"}
    assert tried["tests"] == {"passed": 20, "failed": 1, "skipped": 0, "failures": ["tests/a.py::test_a[torch]"]}
    assert list(tried["conformance"]) == ["torch on async", "torch on sync"]
    ends = {"async": "disturbed", "parallel": "measured", "overlap": "it | failed"}
    assert tried["experiments"] == {f"{name} on torch": end for name, end in ends.items()}
    row = write_table("environments", tmp_path).splitlines()[2]
    assert row.startswith("| Python 3.13.0, torch 2.13.0, NumPy 2.5.5 | 20 passed, 1 failed | 15 programs, 1 found |")
    assert "2 of 3 ran; overlap on torch: it \\| failed" in row
