"""What the benchmarks keep of runs and conclude from times and memory; nothing is measured here."""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backends.registry.variants import all_variants, found_on
from benchmarks import processes
from benchmarks.experiments import exercises, timelines
from benchmarks.experiments.variants import SHOWN, contrasts
from benchmarks.harness import environments
from benchmarks.harness.findings import RESULTS, read_json
from benchmarks.harness.side_by_side import Measured, Variant
from parallel_core.system.subprocesses import Outcome
from tests.benchmarks.harness.test_side_by_side import measured
from tests.conftest import FRAMEWORKS
from tests.parallel_core.comparison.made_up import parallel, result

OLD = ("abstraction", "allreduce", "experiments/variants")
"""Whose stored results say more than the benchmarks do now."""
NEW = ("jax-devices", "training/growth", "training/speed")
SINCE = {
    "stream there": "one TCP stream",
    " 4096 B": " 4 KiB",
    " 1000000 B": " 1 MB",
    " 100000000 B": " 100 MB",
}
"""What is written in another way since some of them were measured."""
STORED = [
    *(("epyc-avx512-2-cores", name) for name in (*OLD, *NEW)),
    ("epyc-2-cores", "training/network"),
]


@pytest.mark.parametrize(("machine", "name"), STORED)
def test_stored_findings_follow_from_what_the_processes_gave(
    machine: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (RESULTS / machine / f"{name}.json").read_text()
    for old, new in SINCE.items():
        text = text.replace(old, new)
    stored = json.loads(text)
    left = {title: [Measured(**one) for one in gave] for title, gave in stored["processes"].items()}
    *_, some = left.values()

    def give(variants: Sequence[Variant], *_: int) -> dict[str, list[Measured]]:
        given = {}
        for variant in variants:
            # Frameworks have variants of the same names, and come in order.
            titles = [title for title in left if title.endswith(variant.name)]
            # What is said of a variant that is newer is not looked at.
            given[variant.name] = left.pop(titles[0]) if titles else some
        return given

    module: Any = import_module(f"benchmarks.{name.replace('/', '.').replace('-', '_')}")
    monkeypatch.setattr(module, "take_turns", give)
    monkeypatch.setattr(module, "measured_over", lambda *_: left, raising=False)
    pythons = [
        word for framework in FRAMEWORKS for word in ("--python", f"{framework}={sys.executable}")
    ]
    done = CliRunner().invoke(
        module.main, ["--out", str(tmp_path), *(pythons if name.endswith("variants") else [])]
    )
    assert done.exit_code == 0, done.output
    again = read_json(tmp_path / f"{name}.json")
    found = {one["name"]: one for one in again["findings"]}
    for one in (one for one in stored["findings"] if name not in OLD or one["name"] in found):
        # By how bounds are drawn now, some are others, and so may be verdicts.
        computed = found[one["name"]]
        assert computed["estimate"] == pytest.approx(one["estimate"]), one["name"]
        assert (computed["unit"], computed["target"]) == (one["unit"], one["target"])
    row = "| 10 Gbit/s | after | 4,434 | 7.5 ms (13 %) | 4,649 | 4.7 ms (8.5 %) |"
    assert [row in note.splitlines() for note in again["notes"]] == [True] * (
        name == "training/network"
    )
    assert (tmp_path / f"{name}.svg").exists() == (name == "training/growth")


def test_sums_between_processes_are_held_against_the_stream_of_the_same_process() -> None:
    # The machine drifts; the ratio does not.
    drifting = [
        measured(
            **{"native, 1 MB": (1e-3 * d, 2e-3 * d, 9e-3 * d), "one TCP stream, 1 MB": (1e-3 * d,)}
        )
        for d in (1.0, 3.0, 2.0)
    ]
    taken, speed, stream, share = processes.of_sums("gloo", drifting, [10**6])
    assert (taken.interval.estimate, taken.unit) == (pytest.approx(4000), "μs")
    assert (speed.interval.estimate, stream.interval.estimate) == pytest.approx((0.25, 0.5))
    assert (share.interval.low, share.interval.high) == pytest.approx((50, 50))


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
    kept = exercises.run_once("independent-ops", "torch sync", {"size": 80})
    assert " ".join(asked[3:]).startswith(
        "parallel_core run independent-ops --backend torch --engine sync --size 80 --json "
    )
    assert kept["problems"] == ["It cannot be."]
    assert (kept["cases"], "environment" in kept) == ([], False)


def test_all_sides_of_an_exercise_get_the_sizes_that_the_first_one_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Mapping[str, Any]] = []

    def run_once(_: str, side: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(sizes)
        return (
            {"failed": "not installed"}
            if side == "mxnet"
            else {"parameters": {"size": 80, "rounds": 5}}
        )

    monkeypatch.setattr(exercises, "run_once", run_once)
    monkeypatch.setattr(exercises, "SIDES", ("mxnet", "torch", "torch sync"))
    assert list(exercises.run_on_sides("parallel")) == ["mxnet", "torch", "torch sync"]
    assert asked == [{}, {}, {"size": 80}]


def test_a_run_without_a_result_is_kept_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> Outcome:
        return Outcome(2, "", "parallel-core: not installed\n", timed_out=False)

    monkeypatch.setattr(exercises, "supervise", refuse)
    assert exercises.run_once("overlap", "jax", {}) == {"failed": "not installed"}


def test_a_comparison_without_traces_has_no_picture(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        timelines.main, [str(RESULTS / "epyc-2-cores"), "--out", str(tmp_path)]
    )
    assert (done.exit_code, done.output.count("\n"), "no traces" in done.output) == (1, 1, True)
    assert not [*tmp_path.iterdir()]


PYTHON = """#!/bin/sh
case "$*" in
*platform*) echo '{"python": "3.13.0", "torch": "2.13.0", "numpy": "2.5.5"}';;
*"--require torch tests/backends") echo 'FAILED tests/a.py::test_a[torch] - no'
               echo '1 failed, 20 passed in 3s';;
*conformance*) printf 'torch on async: 12 programs, 60 a minute, all equal to NumPy'"'"'s\\n'
               printf 'torch on sync: 3 programs, 9 a minute, 1 found that is not\\n'
               printf 'jax on sync: skipped: no\\n';;
*async*) exit 3;;
*overlap*) echo 'parallel-core: it | failed' >&2; exit 1;;
esac
"""


def test_an_environment_is_tried_and_replaces_what_was_known_of_its_versions(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for _ in range(2):
        done = CliRunner().invoke(environments.main, [str(python), "--out", str(tmp_path)])
        assert done.exit_code == 0, done.output
    (tried,) = json.loads((tmp_path / environments.NAME).read_text())["environments"]
    assert tried["versions"] == {"python": "3.13.0", "torch": "2.13.0", "numpy": "2.5.5"}
    assert tried["tests"] == {
        "passed": 20,
        "failed": 1,
        "skipped": 0,
        "failures": ["tests/a.py::test_a[torch]"],
    }
    assert list(tried["conformance"]) == ["torch on async", "torch on sync"]
    ends = {"async": "disturbed", "parallel": "measured", "overlap": "it | failed"}
    assert tried["experiments"] == {f"{name} on torch": end for name, end in ends.items()}
