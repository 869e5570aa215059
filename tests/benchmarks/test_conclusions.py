"""What the benchmarks keep of runs and conclude from times and memory; nothing is measured here."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backends.registry.variants import all_variants, found_on
from benchmarks.__main__ import command_of
from benchmarks.harness import runs
from benchmarks.harness.results import RESULTS, read_json
from benchmarks.harness.side_by_side import Measured, Variant
from benchmarks.measurements import (
    abstraction,
    allreduce,
    exercises,
    network,
    processes,
    speed,
    variants,
)
from benchmarks.measurements.variants import SHOWN, contrasts
from benchmarks.tables import timelines
from parallel_core.measurement.result import Note
from parallel_core.system.subprocesses import Outcome
from tests.benchmarks.harness.test_side_by_side import measured
from tests.conftest import FRAMEWORKS
from tests.parallel_core.compare.made_up import parallel, result

STORED = {
    "abstraction": abstraction,
    "allreduce": allreduce,
    "experiments/variants": variants,
    "training/speed": speed,
    "training/network": network,
}
"""By file; some say more than is measured now."""
ON_OLDER_MACHINE = ("training/network",)
RENAMED = {
    "stream there": "one TCP stream",
    " 4096 B": " 4 KiB",
    " 1000000 B": " 1 MB",
    " 100000000 B": " 100 MB",
    "mxnet book": "mxnet's own",
    "mxnet kvstore": "kvstore's own",
    "torch book": "torch's own",
}
"""What is written in another way since some of them were measured."""


def stored_document(file: str) -> dict[str, Any]:
    """Return what a measurement stored, in today's words."""
    machine = "epyc-2-cores" if file in ON_OLDER_MACHINE else "epyc-avx512-2-cores"
    text = (RESULTS / machine / f"{file}.json").read_text()
    for old, new in RENAMED.items():
        text = text.replace(old, new)
    document: dict[str, Any] = json.loads(text)
    return document


class StoredProcesses:
    """What the processes of a stored benchmark gave, in place of new processes."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.left = {
            title: [Measured(**fields) for fields in processes]
            for title, processes in document["processes"].items()
        }

    def take_turns(self, variants: Sequence[Variant], *_: int) -> dict[str, list[Measured]]:
        """Return what each variant's processes gave, which no other variant gets."""
        taken = {}
        for variant in variants:
            # Frameworks have variants of the same names, and come in order.
            title = next(title for title in self.left if title.endswith(variant.name))
            taken[variant.name] = self.left.pop(title)
        return taken


@pytest.mark.parametrize("file", STORED)
def test_stored_findings_follow_from_what_the_processes_gave(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = stored_document(file)
    processes = StoredProcesses(stored)
    module = STORED[file]
    monkeypatch.setattr(module, "take_turns", processes.take_turns)
    monkeypatch.setattr(module, "measured_over", lambda *_: processes.left, raising=False)
    arguments = ["--out", str(tmp_path)]
    if module is variants:
        for framework in FRAMEWORKS:
            arguments += ["--python", f"{framework}={sys.executable}"]
    done = CliRunner().invoke(command_of(module.MEASUREMENT), arguments)
    assert done.exit_code == 0, done.output

    document = read_json(tmp_path / f"{file}.json")
    stored_findings = {finding["name"]: finding for finding in stored["findings"]}
    assert document["findings"]
    for finding in document["findings"]:
        # By how bounds are drawn now, some are others, and so may be verdicts.
        stored_finding = stored_findings[finding["name"]]
        assert finding["estimate"] == pytest.approx(stored_finding["estimate"]), finding["name"]
        for field in ("unit", "target"):
            assert finding[field] == stored_finding[field], finding["name"]
    if module is network:
        row = "| 10 Gbit/s | after | 4,434 | 7.5 ms (13 %) | 4,649 | 4.7 ms (8.5 %) |"
        (note,) = document["notes"]
        assert row in note.splitlines()
    else:
        assert document["notes"] == []


def test_sums_between_processes_are_held_against_the_stream_of_the_same_process() -> None:
    def process(drift: float) -> Measured:
        """Return what a process gave while the machine was this much slower."""
        sums = (1e-3 * drift, 2e-3 * drift, 9e-3 * drift)
        return measured(**{"native, 1 MB": sums, "one TCP stream, 1 MB": (1e-3 * drift,)})

    drifting = [process(1.0), process(3.0), process(2.0)]
    duration, share = processes.findings_of("gloo", 10**6, drifting)
    assert (duration.interval.estimate, duration.unit) == (pytest.approx(4000), "μs")
    # The machine drifts; the ratio does not.
    assert (share.interval.low, share.interval.high) == pytest.approx((50, 50))


def test_every_setting_of_variants_on_cpus_is_shown() -> None:
    settings_on_cpus = set()
    for variant in all_variants():
        kinds_by_framework = found_on(variant.name)
        is_on_cpus = any("cpu" in kinds for kinds in kinds_by_framework.values())
        if is_on_cpus and not variant.default:
            settings_on_cpus.add(variant.setting)
    assert set(SHOWN) == settings_on_cpus
    assert {contrast.setting for contrast in contrasts()} == settings_on_cpus


def test_a_result_of_an_exercise_is_kept_with_its_problems_and_without_raw_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Note("values-differ", "It cannot be.")
    invalid = result(parallel("torch"), {"on all together": 1.0}, problems=(problem,))
    asked: list[str] = []

    def run_experiment(*words: str) -> tuple[Outcome, dict[str, Any]]:
        asked.extend(words)
        return Outcome(1, "", "", timed_out=False), invalid.as_json()

    monkeypatch.setattr(exercises, "run_experiment", run_experiment)
    kept = exercises.run_once("independent-ops", "torch", {"size": 80})
    assert asked == ["independent-ops", "--backend", "torch", "--size", "80"]
    assert kept["problems"] == [vars(problem)]
    assert kept["cases"] == []
    assert "environment" not in kept


def test_all_sides_of_an_exercise_get_the_sizes_that_the_first_result_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes_of_runs: list[Mapping[str, Any]] = []

    def run_once(_: str, side: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
        sizes_of_runs.append(sizes)
        if side == "mxnet":
            return {"failed": "not installed"}
        return {"parameters": {"size": 80, "rounds": 5}}

    monkeypatch.setattr(exercises, "run_once", run_once)
    monkeypatch.setattr(exercises, "SIDES", ("mxnet", "torch", "jax"))
    sides = list(exercises.run_on_sides("parallel"))
    assert sides == ["mxnet", "torch", "jax"]
    assert sizes_of_runs == [{}, {}, {"size": 80}]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(2, "", "parallel-core: not installed\n", timed_out=False),
        Outcome(0, '{"metrics": {}}', "", timed_out=True),
    ],
    ids=["refused", "killed"],
)
def test_a_run_without_a_result_is_kept_with_the_reason(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def supervise(*_: object) -> Outcome:
        return outcome

    monkeypatch.setattr(runs, "supervise", supervise)
    kept = exercises.run_once("overlap", "jax", {})
    assert kept == {"failed": outcome.reason(runs.DEADLINE)}


def test_a_comparison_without_traces_has_no_picture(tmp_path: Path) -> None:
    arguments = [str(RESULTS / "epyc-2-cores"), "--out", str(tmp_path)]
    done = CliRunner().invoke(timelines.main, arguments)
    (line,) = done.output.splitlines()
    assert done.exit_code == 1
    assert "no traces" in line
    assert list(tmp_path.iterdir()) == []
