"""A benchmark's findings become a table and a file, and its targets are met, missed, or
undecided.
"""

import importlib
import json
import pkgutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import benchmarks
from benchmarks import run_all
from benchmarks.harness import findings
from benchmarks.harness.side_by_side import Measured
from benchmarks.harness.targets import Finding, Target
from parallel_core.measurement.confidence_intervals import Interval

FINDINGS = [
    Finding("good", Interval(2.1, 2.05, 2.2), target=Target("at least", 2.0)),
    Finding("bad", Interval(1.3, 1.2, 1.4), target=Target("at most", 1.02)),
    Finding("rate", Interval(1234.0, float("-inf"), float("inf")), "images/s"),
]


@pytest.mark.parametrize(
    ("kind", "low", "high", "verdict"),
    [
        ("at least", 2.0, 2.2, "met"),
        ("at least", 1.9, 2.2, "undecided"),
        ("at least", 1.7, 1.9, "missed"),
        ("at most", 1.7, 2.0, "met"),
        ("at most", 1.9, 2.2, "undecided"),
        ("at most", 2.1, 2.2, "missed"),
        ("at least", float("-inf"), float("inf"), "undecided"),
    ],
)
def test_a_target_is_met_or_missed_by_the_whole_interval(
    kind: str, low: float, high: float, verdict: str
) -> None:
    assert Target(kind, 2.0).verdict(Interval((low + high) / 2, low, high)) == verdict  # type: ignore[arg-type]


@given(st.sampled_from(FINDINGS), st.floats(0.1, 10), st.floats(0, 1))
def test_a_finding_is_read_as_it_was_written(
    finding: Finding, estimate: float, half: float
) -> None:
    moved = replace(finding, interval=Interval(estimate, estimate - half, estimate + half))
    for one in (finding, moved):
        assert Finding.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_a_benchmark_writes_its_file_and_page_and_a_missed_target_is_no_failure(
    tmp_path: Path,
) -> None:
    kernels = [
        [f"OpenBLAS, {core_type} kernels", "oneDNN"]
        for core_type in ("Haswell", "Prescott", "Haswell")
    ]
    processes = {
        "A": [Measured({"a": (1.0,)}, {}, {"torch": "2"}, {"torch": ["MKL 2024.2", "oneDNN"]})],
        "B": [Measured({}, {}, {}, {"mxnet": some}) for some in kernels],
    }
    report = findings.Report("A title", FINDINGS, processes, ["A note."])
    command = findings.benchmark("made-up", rounds=3)(lambda rounds, quick: report)
    done = CliRunner().invoke(command, ["--out", str(tmp_path / "new")])
    assert done.exit_code == 0
    assert "1 targets met, 1 missed, 0 undecided" in done.output
    written = json.loads((tmp_path / "new" / "made-up.json").read_text())
    assert [one["verdict"] for one in written["findings"]] == ["met", "missed", None]
    assert written["findings"][2]["low"] is None
    assert written["processes"]["A"][0] == {
        "seconds": {"a": [1.0]},
        "figures": {},
        "versions": {"torch": "2"},
    }
    assert {"machine", "command", "versions", "rounds"} <= set(written)
    assert {"commit", "processor", "cores"} <= set(written["machine"])
    of_mxnet = ["OpenBLAS, Haswell kernels", "oneDNN", "OpenBLAS, Prescott kernels"]
    assert written["kernels"] == {"torch": ["MKL 2024.2", "oneDNN"], "mxnet": of_mxnet}
    page = (tmp_path / "new" / "made-up.md").read_text()
    assert page in done.output
    lines = page.splitlines()
    assert "| good | 2.10 (2.05–2.20) × | ≥ 2 | met |" in lines
    assert "| rate | 1,234 images/s |  |  |" in lines
    assert lines[-1] == "A note."
    assert "torch 2 (MKL 2024.2; oneDNN), commit " in lines[2]


def test_the_summary_counts_over_all_benchmarks_and_names_failed_ones() -> None:
    found = {"findings": [finding.as_json() for finding in FINDINGS]}
    text = run_all.summary({"one": found, "two": None})
    assert "| one: bad | 1.30 (1.20–1.40) × | ≤ 1.02 | missed |" in text.splitlines()
    assert "one: rate" not in text
    assert text.endswith("1 targets met, 1 missed, 0 undecided; failed: two")


def test_every_module_can_be_imported_and_benchmarks_take_the_options_that_run_all_gives() -> None:
    """What a process of its own imports, no other test does."""
    pytest.importorskip("torch")
    names = [module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]
    modules = {
        name: importlib.import_module(name)
        for name in names
        if not name.startswith("benchmarks.plain.mxnet")
    }
    for name in run_all.NAMES:
        command = modules[f"benchmarks.{name.replace('/', '.')}"].main
        assert {option.name for option in command.params} == {"out", "rounds", "quick"}, name
