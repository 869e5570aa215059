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


@given(finding=st.sampled_from(FINDINGS), estimate=st.floats(0.1, 10), half_width=st.floats(0, 1))
def test_a_finding_is_read_as_it_was_written(
    finding: Finding, estimate: float, half_width: float
) -> None:
    interval = Interval(estimate, estimate - half_width, estimate + half_width)
    for written in (finding, replace(finding, interval=interval)):
        assert Finding.from_json(json.loads(json.dumps(written.as_json()))) == written


@pytest.fixture
def report() -> findings.Report:
    """The findings of a process with PyTorch and of three with MXNet, whose kernels differ."""

    def mxnet_with(core_type: str) -> Measured:
        return Measured({}, {}, {}, {"mxnet": [f"OpenBLAS, {core_type} kernels", "oneDNN"]})

    torch = Measured({"a": (1.0,)}, {}, {"torch": "2"}, {"torch": ["MKL 2024.2", "oneDNN"]})
    processes = {
        "A": [torch],
        "B": [mxnet_with("Haswell"), mxnet_with("Prescott"), mxnet_with("Haswell")],
    }
    return findings.Report("A title", FINDINGS, processes, ["A note."])


def test_a_benchmark_writes_its_file_and_page_and_a_missed_target_is_no_failure(
    report: findings.Report, tmp_path: Path
) -> None:
    command = findings.benchmark("made-up", rounds=3)(lambda rounds, quick: report)
    done = CliRunner().invoke(command, ["--out", str(tmp_path / "new")])
    assert done.exit_code == 0
    assert "1 targets met, 1 missed, 0 undecided" in done.output

    document = json.loads((tmp_path / "new" / "made-up.json").read_text())
    good, bad, rate = document["findings"]
    assert good["verdict"] == "met"
    assert bad["verdict"] == "missed"
    assert rate["verdict"] is None
    assert rate["low"] is None
    assert document["processes"]["A"][0] == {
        "seconds": {"a": [1.0]},
        "figures": {},
        "versions": {"torch": "2"},
    }
    assert {"machine", "command", "versions", "rounds"} <= set(document)
    assert {"commit", "processor", "cores"} <= set(document["machine"])
    assert document["kernels"] == {
        "torch": ["MKL 2024.2", "oneDNN"],
        "mxnet": ["OpenBLAS, Haswell kernels", "oneDNN", "OpenBLAS, Prescott kernels"],
    }

    page = (tmp_path / "new" / "made-up.md").read_text()
    lines = page.splitlines()
    assert page in done.output
    assert "| good | 2.10 (2.05–2.20) × | ≥ 2 | met |" in lines
    assert "| rate | 1,234 images/s |  |  |" in lines
    assert lines[-1] == "A note."
    assert "torch 2 (MKL 2024.2; oneDNN), commit " in lines[2]


def test_the_summary_counts_over_all_benchmarks_and_names_failed_ones() -> None:
    documents = {
        "speed": {"findings": [finding.as_json() for finding in FINDINGS]},
        "memory": None,
    }
    text = run_all.summary(documents)
    assert "| speed: bad | 1.30 (1.20–1.40) × | ≤ 1.02 | missed |" in text.splitlines()
    assert "speed: rate" not in text
    assert text.endswith("1 targets met, 1 missed, 0 undecided; failed: memory")


def test_every_module_can_be_imported() -> None:
    """What a process of its own imports, no other test does."""
    pytest.importorskip("torch")
    for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
        if not module.name.startswith("benchmarks.plain.mxnet"):
            importlib.import_module(module.name)


@pytest.mark.parametrize("name", run_all.NAMES)
def test_benchmarks_take_the_options_that_run_all_gives(name: str) -> None:
    pytest.importorskip("torch")
    module = importlib.import_module(f"benchmarks.{name.replace('/', '.')}")
    assert {option.name for option in module.main.params} == {"out", "rounds", "quick"}
