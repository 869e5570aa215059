"""A measurement's findings become a file and a page, and its targets are met, missed, or
undecided.
"""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import benchmarks
import benchmarks.__main__ as runner
from benchmarks import measurements, trust
from benchmarks.__main__ import MEASUREMENTS, command_of, summary, with_targets
from benchmarks.harness.measurement import Measurement, Method, Report, Request
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
def report() -> Report:
    """The findings of a process with PyTorch and of three with MXNet, whose kernels differ."""

    def mxnet_with(core_type: str) -> Measured:
        return Measured({}, {}, {}, {"mxnet": [f"OpenBLAS, {core_type} kernels", "oneDNN"]})

    torch = Measured({"a": (1.0,)}, {}, {"torch": "2"}, {"torch": ["MKL 2024.2", "oneDNN"]})
    processes = {
        "A": [torch],
        "B": [mxnet_with("Haswell"), mxnet_with("Prescott"), mxnet_with("Haswell")],
    }
    return Report(FINDINGS, processes, ["A note."])


def made_up(*reports: Report, **changes: Any) -> Measurement:
    """Return a measurement that yields reports."""
    declared = Measurement(
        file="folder/made-up",
        title="A title",
        question="Is it made up?",
        method=Method(3, "2026-11-29", "by hand"),
        measure=lambda request, **arguments: iter(reports),
    )
    return replace(declared, **changes)


def run(measurement: Measurement, *arguments: str) -> tuple[int, str]:
    """Run the command of a measurement, and return its status and what it printed."""
    done = CliRunner().invoke(command_of(measurement), arguments)
    return done.exit_code, done.output


def test_a_measurement_writes_its_file_and_page_and_a_missed_target_is_no_failure(
    report: Report, tmp_path: Path
) -> None:
    status, output = run(made_up(report), "--out", str(tmp_path / "new"))
    assert status == 0
    assert "1 targets met, 1 missed, 0 undecided" in output

    document = json.loads((tmp_path / "new/folder/made-up.json").read_text())
    verdicts = [finding["verdict"] for finding in document["findings"]]
    assert verdicts == ["met", "missed", None]
    assert document["findings"][2]["low"] is None
    assert document["benchmark"] == "made-up"
    assert document["method"] == {"number": 3, "since": "2026-11-29", "meaning": "by hand"}
    assert document["processes"]["A"][0] == {
        "seconds": {"a": [1.0]},
        "figures": {},
        "versions": {"torch": "2"},
    }
    assert {"machine", "command", "versions", "rounds"} <= set(document)
    assert {"commit", "processor", "cores", "utc"} <= set(document["machine"])
    assert document["kernels"] == {
        "torch": ["MKL 2024.2", "oneDNN"],
        "mxnet": ["OpenBLAS, Haswell kernels", "oneDNN", "OpenBLAS, Prescott kernels"],
    }

    page = (tmp_path / "new/folder/made-up.md").read_text()
    assert page in output
    assert "torch 2 (MKL 2024.2; oneDNN), commit " in page
    assert {
        "Method 3, since 2026-11-29: by hand",
        "| good | 2.10 (2.05–2.20) × | ≥ 2 | met |",
        "| rate | 1,234 images/s |  |  |",
        "A note.",
    } <= set(page.splitlines())


def test_each_report_is_written_at_once_with_what_was_stored(tmp_path: Path) -> None:
    requests: list[Request] = []

    def measure(request: Request, kind: str) -> Iterator[Report]:
        requests.append(request)
        yield Report(data={"runs": [kind]})
        raise click.ClickException("it broke")

    option = click.option("--kind", default="any")
    measurement = made_up(file="made-up-{kind}", measure=measure, options=[option])
    for _ in range(2):
        status, _ = run(measurement, "--out", str(tmp_path), "--rounds", "4")
        assert status == 1
    first_request, second_request = requests
    assert first_request == Request(4, False, {})
    assert second_request.stored["runs"] == ["any"]
    assert second_request.stored["parameters"] == {"kind": "any"}
    assert [path.name for path in tmp_path.iterdir()] == ["made-up-any.json"]


def test_a_rehearsal_replaces_no_result(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _ = run(made_up(report), "--quick")
    assert status == 0
    document = json.loads((tmp_path / "runs/rehearsal/folder/made-up.json").read_text())
    assert document["quick"]
    assert document["rounds"] == 1


def test_the_summary_of_bench_counts_over_all_and_names_what_failed() -> None:
    held = with_targets("speed", FINDINGS)
    text = summary(held, ["memory"])
    assert "| speed: bad | 1.30 (1.20–1.40) × | ≤ 1.02 | missed |" in text.splitlines()
    assert "speed: rate" not in text
    assert text.endswith("1 targets met, 1 missed, 0 undecided; failed: memory")


def test_bench_goes_on_when_one_fails(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Request) -> Iterator[Report]:
        raise click.ClickException("it broke")

    monkeypatch.setattr(runner, "OF_BENCH", (made_up(file="broken", measure=fail), made_up(report)))
    done = CliRunner().invoke(runner.main, ["bench", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "broken: it broke" in done.output
    assert "1 targets met, 1 missed, 0 undecided; failed: broken" in done.output


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda measurement: measurement.name)
def test_a_measurement_is_a_module_of_its_name_and_takes_what_it_declares(
    measurement: Measurement,
) -> None:
    module = inspect.getmodule(measurement.measure)
    assert module is not None
    assert module.__name__.rpartition(".")[2] == measurement.name.replace("-", "_")
    declared = {param.name for param in command_of(measurement).params}
    assert {"out", "quick"} <= declared
    _request, *arguments = inspect.signature(measurement.measure).parameters
    assert set(arguments) == declared - {"out", "quick", "rounds"}


def test_every_measurement_can_be_run_by_its_name() -> None:
    declared = set()
    for package in (measurements, trust):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            measurement = getattr(importlib.import_module(module.name), "MEASUREMENT", None)
            if measurement is not None:
                declared.add(measurement.name)
    assert declared == {measurement.name for measurement in MEASUREMENTS}


def test_every_module_can_be_imported() -> None:
    """What a process of its own imports, no other test does."""
    pytest.importorskip("torch")
    for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
        if not module.name.startswith("benchmarks.plain.mxnet"):
            importlib.import_module(module.name)
