"""A benchmark's findings become a table and a file."""

import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import findings
from benchmarks.harness.side_by_side import Measured
from benchmarks.harness.targets import Finding
from parallel_core.measurement.confidence_intervals import Interval
from tests.benchmarks.synthetic import REPORT


def test_the_page_has_a_row_for_each_finding_and_says_where_it_comes_from(tmp_path: Path) -> None:
    findings.write(REPORT, tmp_path / "made-up", rounds=3, quick=False)
    lines = (tmp_path / "made-up.md").read_text().splitlines()
    assert "| good | 2.10 (2.05–2.20) × | ≥ 2 | met |" in lines
    assert "| bad | 1.30 (1.20–1.40) × | ≤ 1.02 | missed |" in lines
    assert "| rate | 1,234 images/s |  |  |" in lines
    assert lines[-1] == "A note."
    assert "torch 2 (MKL 2024.2), commit " in lines[2]


@given(st.sampled_from(REPORT.findings), st.floats(0.1, 10), st.floats(0, 1))
def test_a_finding_is_read_as_it_was_written(finding: Finding, estimate: float, half: float) -> None:
    moved = replace(finding, interval=Interval(estimate, estimate - half, estimate + half))
    for one in (finding, moved):
        assert Finding.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_a_missed_target_is_written_and_no_failure(tmp_path: Path) -> None:
    command = findings.benchmark("made-up", rounds=3)(lambda rounds, quick: REPORT)
    done = CliRunner().invoke(command, ["--out", str(tmp_path / "new")])
    assert done.exit_code == 0
    assert "1 targets met, 1 missed, 0 undecided" in done.output
    written = json.loads((tmp_path / "new" / "made-up.json").read_text())
    assert [one["verdict"] for one in written["findings"]] == ["met", "missed", None]
    assert written["findings"][2]["low"] is None
    assert written["processes"]["A"][0]["seconds"] == {"a": [1.0]}
    assert {"machine", "command", "versions", "kernels", "rounds"} <= set(written)
    assert {"commit", "processor", "cores"} <= set(written["machine"])
    assert written["kernels"] == {"torch": ["MKL 2024.2"]}
    assert (tmp_path / "new" / "made-up.md").read_text() in done.output


def test_kernels_of_all_processes_are_named_once() -> None:
    processes = {
        side: [Measured({}, {}, {}, kernels={"mxnet": [f"OpenBLAS, {core_type} kernels", "oneDNN"]})]
        for side, core_type in {"A": "Haswell", "B": "Prescott", "C": "Haswell"}.items()
    }
    kernels = replace(REPORT, processes=processes).kernels
    assert kernels == {"mxnet": ["OpenBLAS, Haswell kernels", "oneDNN", "OpenBLAS, Prescott kernels"]}
