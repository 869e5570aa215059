"""The check of GPUs, rehearsed on a CPU where NumPy and PyTorch are all there is; its figures mean nothing here."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_check
from benchmarks.gpu import cuda_tests
from benchmarks.gpu.cuda_tests import run_tests
from benchmarks.gpu.parts import PartResult, Place, run_part
from benchmarks.harness.targets import Finding, Target
from parallel_core.measurement.confidence_intervals import Interval

small_operations: Any = pytest.importorskip("benchmarks.gpu.small_operations", reason="torch is not installed")

PLACE = Place("torch", "cpu", 2)
ABSENT = (
    *("click", "humanize", "hypothesis", "jinja2", "markupsafe", "msgspec", "mxnet", "platformdirs"),
    *("pooch", "psutil", "pygments", "pyperf", "pytest", "rich", "threadpoolctl"),
)
# Python imports this module at its start, in every process. Nothing is installed there, this package included.
SITECUSTOMIZE = f"""
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {ABSENT!r} else find(name, path, target)

PathFinder.find_spec = find_spec
PathFinder.find_distributions = lambda *_: ()
"""


def check(root: Path, folder: Path, *arguments: str, installed: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run the check as a script; without what is absent on a GPU machine, unless `installed`."""
    if not installed:
        (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    return subprocess.run(
        [sys.executable, str(root / "benchmarks" / "gpu_check.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
    )


def test_a_rehearsal_measures_all_parts_where_nothing_but_numpy_and_torch_is_there(root: Path, tmp_path: Path) -> None:
    done = check(root, tmp_path, "--device", "cpu", "--out", str(tmp_path), installed=False)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "gpu-rehearsal.json").read_text())
    measured = {name for name, part in written["parts"].items() if part["findings"]}
    assert measured == {"overlap", "small operations", "training", "bus", "matrix products"}
    assert not [problem for part in written["parts"].values() for problem in part["problems"]]
    assert all(part["seconds"] for name, part in written["parts"].items() if name in measured)
    assert written["parts"]["CUDA tests, async engine"]["skipped"] == ["pytest is not installed"]
    assert written["parts"]["mxnet"]["skipped"] == ["mxnet is not installed: pip install 'parallel-core[mxnet]'"]
    findings = [finding for part in written["parts"].values() for finding in part["findings"]]
    assert {finding["name"].split(",")[0]: finding["target"] for finding in findings if finding["target"]} == {
        "torch: overlap_efficiency": {"at least": 0.9},
        "torch: two streams of units / one stream of units": {"at least": 1.5},
        "host to device: ours / the bus": {"at least": 0.9},
        "device to host: ours / the bus": {"at least": 0.9},
    }
    assert written["rehearsal"]
    assert "no figure here means anything" in (tmp_path / "gpu-rehearsal.md").read_text()
    assert "no figure here means anything" in done.stdout


def test_without_a_gpu_one_line_says_so(root: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = check(root, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gpu_check: there is no GPU to check: torch ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def works(_: Place) -> PartResult:
    return PartResult(notes=("done",))


def raises(_: Place) -> PartResult:
    raise ValueError("first line\nsecond line")


def hangs(_: Place) -> PartResult:
    time.sleep(60)
    return PartResult()


def crashes(_: Place) -> PartResult:
    os._exit(3)


@pytest.mark.parametrize(
    ("name", "seconds", "limit", "found"),
    [
        ("works", 60, 60, PartResult(notes=("done",))),
        ("crashes", 60, 60, PartResult(problems=("the process ended with status 3",))),
        ("raises", 60, 60, PartResult(problems=("ValueError: first line",))),
        ("hangs", 60, 1, PartResult(problems=("stopped: it was not done after 1 s",))),
        ("works", 0, 60, PartResult(skipped=("no time was left",))),
    ],
)
def test_a_part_that_fails_or_hangs_says_so(name: str, seconds: float, limit: float, found: PartResult) -> None:
    assert run_part(f"{__name__}:{name}", PLACE, seconds, limit) == found


TESTS = """
import pytest

def test_passes(): pass
def test_fails(): assert 1 == 2
@pytest.mark.parametrize("_", [1, 2])
def test_skips(_): pytest.skip("no second GPU")
"""
CONFTEST = "def pytest_addoption(parser):\n    parser.addoption('--engine')\n"


def test_outcomes_of_tests_are_counted_and_faults_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tests/backends/protocol"
    folder.mkdir(parents=True)
    (folder / "test_gpu.py").write_text(TESTS)
    (folder / "test_gpu_absent.py").write_text("import no_such_package")
    (folder / "conftest.py").write_text(CONFTEST)
    monkeypatch.setattr(cuda_tests, "ROOT", tmp_path)
    found = run_tests("async", 60)
    assert found.notes == ("1 passed, 2 failed, 2 skipped.",)
    assert found.problems == (
        "tests.backends.protocol.test_gpu_absent: ModuleNotFoundError: No module named 'no_such_package'",
        "test_fails: assert 1 == 2",
    )
    assert found.skipped == ("2 tests: no second GPU",)
    assert run_tests("async", 0.01).problems == ("stopped: they were not done after 0.01 s",)
    assert run_tests("async", -1).skipped == ("no time was left",)
    assert list(root.glob(cuda_tests.FILES)), "the tests that need a GPU"


@pytest.mark.parametrize(
    ("seconds", "size"),
    [((1.0, 1.0, 1.0, 1.0), None), ((1.0, 1.25, 2.0, 3.0), 16.0), ((1.0, 1.0, 1.5625, 9.0), 16 * 2**0.5)],
)
def test_computing_is_the_limit_from_where_times_begin_to_grow(seconds: tuple[float, ...], size: float | None) -> None:
    assert small_operations.crossing((8, 16, 32, 64), seconds) == (None if size is None else pytest.approx(size))


def test_a_small_operation_takes_three_times_as_long_as_launching() -> None:
    assert small_operations.small_size((8, 16, 32), 2 * 16 * 16) == 16
    assert small_operations.small_size((8, 16, 32), 2 * 32 * 32 - 1) == 16
    assert small_operations.small_size((8, 16, 32), 2) == 8


def test_a_summary_counts_targets_and_names_what_failed_and_files_the_gpu() -> None:
    met = PartResult(findings=(Finding("a", Interval(2, 1.9, 2.1), target=Target("at least", 1.5)),))
    parts = {"bus": met, "overlap": replace(met, problems=("wrong",)), "mxnet": PartResult(skipped=("not installed",))}
    assert gpu_check.summary(parts) == "2 targets met, 0 missed, 0 undecided; failed: overlap; left out: mxnet"
    assert gpu_check.file_name("Tesla V100-SXM2-16GB (MIG)") == "gpu-tesla-v100-sxm2-16gb-mig"
