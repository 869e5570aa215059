"""A benchmark's findings become a table and a file."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.harness import findings
from tests.benchmarks.synthetic import REPORT

MACHINE = {"processor": "A", "cores": 2, "system": "Linux", "python": "3.11", "utc": "now"}


def test_the_table_has_a_row_for_each_finding() -> None:
    lines = findings.table(REPORT, 3, MACHINE).splitlines()
    assert "| good | 2.10 (2.05–2.20) × | ≥ 2 | met |" in lines
    assert "| bad | 1.30 (1.20–1.40) × | ≤ 1.02 | missed |" in lines
    assert "| rate | 1,234 images/s |  |  |" in lines
    assert lines[-1] == "A note."
    assert "torch 2" in lines[2]


def test_a_missed_target_is_written_and_no_failure(tmp_path: Path) -> None:
    command = findings.benchmark("made-up", rounds=3)(lambda rounds, quick: REPORT)
    done = CliRunner().invoke(command, ["--out", str(tmp_path / "new")])
    assert done.exit_code == 0
    assert "1 targets met, 1 missed, 0 undecided" in done.output
    written = json.loads((tmp_path / "new" / "made-up.json").read_text())
    assert [one["verdict"] for one in written["findings"]] == ["met", "missed", None]
    assert written["findings"][2]["low"] is None
    assert written["processes"]["A"][0]["seconds"] == {"a": [1.0]}
    assert {"machine", "command", "versions", "rounds"} <= set(written)
    assert (tmp_path / "new" / "made-up.md").read_text() in done.output
