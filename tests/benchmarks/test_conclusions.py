"""What the benchmarks keep of runs and conclude from times and memory; nothing is measured here."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from backends.registry.variants import all_variants, found_on
from benchmarks import allreduce, processes
from benchmarks.experiments import exercises, timelines
from benchmarks.experiments.variants import SHOWN, contrasts
from benchmarks.harness import environments
from benchmarks.harness.side_by_side import Measured
from benchmarks.tables.__main__ import write_table
from benchmarks.training import growth, network
from parallel_core.system.subprocesses import Outcome
from tests.benchmarks.harness.test_side_by_side import measured
from tests.parallel_core.comparison.made_up import parallel, result
from tests.tree import ROOT


def test_targets_of_allreduce_point_the_right_way() -> None:
    names = [name for cases in allreduce.PEERS.values() for name in cases]
    seconds = {name: {"4KiB": [50e-6] * 3, "100MB": [0.1] * 3} for name in names}
    seconds["torch, ours, native"] = {"4KiB": [90e-6] * 3, "100MB": [0.01] * 3}
    seconds["torch, ours, plain copy"] = {"4KiB": [1e-6] * 3, "100MB": [0.008] * 3}
    held = {finding.name: finding for finding in allreduce.targets(seconds, "100MB") if finding.target}
    ratio = held["100MB: torch, ours, native / torch, the book's loop, transfers that copy"]
    share = held["100MB: torch, ours, native: share of the copy-bound limit"]
    slower = held["4KiB: torch, ours, native − torch, ours, star"]
    assert (ratio.interval.estimate, ratio.verdict) == (pytest.approx(10), "met")
    assert (share.interval.estimate, share.verdict) == (pytest.approx(80), "met")
    assert (slower.interval.estimate, slower.verdict) == (pytest.approx(40), "missed")
    assert held["100MB: mxnet, ours, native / mxnet, kvstore device"].verdict == "missed"


def test_sums_between_processes_are_held_against_the_stream_of_the_same_process() -> None:
    # The machine drifts; the ratio does not.
    drifting = [
        measured(**{"native, 1 MB": (1e-3 * d, 2e-3 * d, 9e-3 * d), "one TCP stream, 1 MB": (1e-3 * d,)})
        for d in (1.0, 3.0, 2.0)
    ]
    taken, speed, stream, share = processes.of_sums("gloo", drifting, [10**6])
    assert (taken.interval.estimate, taken.unit) == (pytest.approx(4000), "μs")
    assert (speed.interval.estimate, stream.interval.estimate) == pytest.approx((0.25, 0.5))
    assert (share.interval.low, share.interval.high) == pytest.approx((50, 50))


def test_growth_is_the_slope_of_a_line_and_drawn(tmp_path: Path) -> None:
    assert growth.line([5.0, 8.0, 11.0, 14.0]) == pytest.approx((3, 2, 0))
    assert growth.line([5.0, 8.0, 11.0, 15.0])[2] > 0.1
    own = {"mxnet, queue": [measured(**{f"{d} queued": (d * 1e-6, 1.0) for d in (1, 10)})]}
    for count in growth.DEVICES:
        own[f"mxnet, {growth.devices(count)}"] = [measured(epoch=(1.0 / count,))]
        peak = {"peak_bytes": 3.0 * count, "parameter_bytes": 1.0}
        own[f"mxnet, memory of {count}"] = [Measured({}, peak, {})]
    values = growth.values_of("mxnet", own, (1, 10), 100)
    found = {one.name: one.interval.estimate for one in growth.findings_of("mxnet", *values)}
    assert found["mxnet: issuing an operation when 10 are queued"] == pytest.approx(10)
    assert found["mxnet: dearest depth / cheapest"] == pytest.approx(10)
    assert found["mxnet: training on 2 devices"] == pytest.approx(200)
    assert found["mxnet: 4 devices / 2 devices"] == pytest.approx(2)
    assert found["mxnet: memory that each further device adds"] == pytest.approx(3)
    with (tmp_path / "growth.svg").open("wb") as stream:
        growth.draw_growth({"mxnet": values, "torch": values}, stream)
    assert (tmp_path / "growth.svg").read_bytes().startswith(b"<svg")


def trained(step: float, exposed: float) -> list[Measured]:
    figures = {"step_seconds": step, "exposed_exchange_seconds": exposed, "exchange_seconds": 0.1}
    return [Measured({}, figures, {})] * 3


def test_training_over_a_link_is_measured_by_the_step() -> None:
    mxnet, torch = (network.cell_of(name, "1 Gbit/s") for name in ("mxnet", "torch"))
    given = {
        f"{mxnet}, after": trained(0.4, 0.1),
        f"{mxnet}, during": trained(0.32, 0.016),
        f"{torch}, after": trained(0.2, 0),
        f"{torch}, during": trained(2, 2),
    }
    pairs = [*network.of_pair(mxnet, given), *network.of_pair(torch, given)]
    found = {one.name: one.interval.estimate for one in pairs}
    assert found[f"{mxnet}: a step, during / after"] == pytest.approx(0.8)
    assert found[f"{mxnet}, during: the exchange by itself"] == pytest.approx(100)
    assert network.table_of({"1 Gbit/s": 1e9}, pairs).splitlines()[4:] == [
        "| 1 Gbit/s | after | 640 | 100 ms (25 %) | 1,280 | 0 ms (0 %) |",
        "| 1 Gbit/s | during | 800 | 16 ms (5 %) | 128 | 2,000 ms (100 %) |",
    ]


def test_every_setting_of_variants_on_cpus_is_shown() -> None:
    on_cpus = {
        variant.setting
        for variant in all_variants()
        if not variant.default and any("cpu" in kinds for kinds in found_on(variant.name).values())
    }
    assert on_cpus == set(SHOWN) == {one.setting for one in contrasts()}


def test_a_result_of_an_exercise_is_kept_with_its_problems_and_without_raw_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    invalid = result(parallel("torch"), {"on all together": 1.0}, problems=("It cannot be.",))
    asked: list[str] = []

    async def measure(command: Sequence[str], *_: object) -> Outcome:
        asked[:] = command
        Path(command[command.index("--json") + 1]).write_text(json.dumps(invalid.as_json()))
        return Outcome(1, "A table\n", "", timed_out=False)

    monkeypatch.setattr(exercises, "supervise", measure)
    kept = exercises.run_once("independent-ops", "torch sync")
    assert " ".join(asked[5:]).startswith("parallel_core run independent-ops --backend torch --engine sync --json ")
    assert kept["problems"] == ["It cannot be."]
    assert (kept["cases"], "environment" in kept, "printed" in kept) == ([], False, False)
    assert exercises.run_once(exercises.SHOWN, "torch")["cases"]
    assert exercises.run_once(exercises.TRACED, "torch")["printed"] == ["A table"]
    assert "--trace" in asked


def test_a_run_without_a_result_is_kept_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> Outcome:
        return Outcome(2, "", "parallel-core: not installed\n", timed_out=False)

    monkeypatch.setattr(exercises, "supervise", refuse)
    assert exercises.run_once("overlap", "jax") == {"failed": "not installed"}


def test_a_comparison_without_traces_has_no_picture(tmp_path: Path) -> None:
    saved = ROOT / "benchmarks" / "results" / "epyc-2-cores"
    done = CliRunner().invoke(timelines.main, [str(saved), "--out", str(tmp_path)])
    assert (done.exit_code, done.output.count("\n"), "no traces" in done.output) == (1, 1, True)
    assert not [*tmp_path.iterdir()]


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
        done = CliRunner().invoke(environments.main, [str(python), "--out", str(tmp_path)])
        assert done.exit_code == 0, done.output
    (tried,) = json.loads((tmp_path / environments.NAME).read_text())["environments"]
    assert tried["versions"] == {"python": "3.13.0", "torch": "2.13.0", "numpy": "2.5.5"}
    assert tried["tests"] == {"passed": 20, "failed": 1, "skipped": 0, "failures": ["tests/a.py::test_a[torch]"]}
    assert list(tried["conformance"]) == ["torch on async", "torch on sync"]
    ends = {"async": "disturbed", "parallel": "measured", "overlap": "it | failed"}
    assert tried["experiments"] == {f"{name} on torch": end for name, end in ends.items()}
    row = write_table("environments", tmp_path).splitlines()[2]
    assert row.startswith("| Python 3.13.0, torch 2.13.0, NumPy 2.5.5 | 20 passed, 1 failed | 15 programs, 1 found |")
    assert "2 of 3 ran; overlap on torch: it \\| failed" in row
