"""What ten minutes on a GPU are used for, rehearsed where there is none."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from zipfile import ZipFile

import pytest

from benchmarks import gpu
from benchmarks.gpu import DONE, FAILED, HUNG, NOT_RUN, STEPS, Step, kept, take_missing

PRINTS = "-c 'print(\"$word\", flush=True)'"
WORKS = Step("works", PRINTS, 60, "well")
ANSWERS = Step("answers", """-c 'print("{}".format([1]))'""", 60)
CRASHES = Step("crashes", "-c 'import os; print(\"well\", flush=True); os.abort()'", 60, "well")
WRONG = Step("wrong", "-c 'raise ValueError(\"cannot be\")'", 60, "well")
HANGS = Step("hangs", "-c 'import time; print(\"well\", flush=True); time.sleep(600)'", 5, "well")
ON_GPU = Step("on-gpu", PRINTS, 60, "well", needs_gpu=True)
MADE_UP = (CRASHES, HANGS, WRONG, ON_GPU, WORKS, ANSWERS)
WORD = {"word": "well"}


def test_a_step_that_fails_or_hangs_ends_no_other_and_each_is_kept(tmp_path: Path) -> None:
    all_done = take_missing(MADE_UP, tmp_path, WORD, monotonic() + 600, "none is built in")
    assert not all_done
    steps = {step.name: kept(step, tmp_path) for step in MADE_UP}
    assert {name: step["state"] for name, step in steps.items()} == {
        "crashes": FAILED,
        "hangs": HUNG,
        "wrong": FAILED,
        "on-gpu": NOT_RUN,
        "works": DONE,
        "answers": DONE,
    }
    works, hangs, wrong = steps["works"], steps["hangs"], steps["wrong"]
    assert works["command"].startswith(sys.executable)
    assert (works["status"], works["limit"], works["output"]) == (0, 60, ["well"])
    assert (hangs["limit"], hangs["output"]) == (5, ["well"])
    assert (wrong["status"], wrong["reason"]) == (1, "ValueError: cannot be")
    assert steps["crashes"]["status"] == -6
    assert steps["answers"]["answer"] == [1]
    assert steps["on-gpu"]["reason"].endswith("none is built in")


def test_nothing_is_run_after_the_end(tmp_path: Path) -> None:
    assert not take_missing([WORKS], tmp_path, WORD, monotonic())
    assert list(tmp_path.iterdir()) == []


def test_a_second_call_runs_what_is_missing_and_first_what_was_never_tried(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    take_missing([WRONG, WORKS], tmp_path, WORD, monotonic() + 60)
    # What was written in part counts as not tried.
    (tmp_path / "answers.json").write_text('{"state": "done", "answ')
    capfd.readouterr()
    assert not take_missing([WRONG, WORKS, ANSWERS, ON_GPU], tmp_path, WORD, monotonic() + 60)
    steps_run = [line.split(":")[0] for line in capfd.readouterr().out.splitlines()]
    assert steps_run == ["answers", "on-gpu", "wrong"]
    assert take_missing([WORKS, ANSWERS, ON_GPU], tmp_path, WORD, monotonic() + 60)
    assert capfd.readouterr().out == ""


def test_figures_are_held_against_their_targets(tmp_path: Path) -> None:
    def keep(step: str, output: list[str], answer: object = None) -> None:
        document = {"state": DONE, "output": output, "answer": answer}
        (tmp_path / f"{step}.json").write_text(json.dumps(document))

    keep("conformance", ["…", "torch: 300 programs, 400 a minute, all equal to NumPy's"])
    keep("conformance-mixed", ["torch: 82 programs, 90 a minute, 2 found that are not"])
    keep("tests", ["1 failed, 33 passed, 29 skipped, 2 errors in 12.3s"])
    overlap = {
        "metrics": {
            "overlap_efficiency": 0.95,
            "book_overlap_efficiency": 0.1,
            "price_of_overlap": 0.0,
        },
        "metric_intervals": {"overlap_efficiency": [0.91, 0.99]},
        "problems": ["A copy is wrong."],
    }
    keep("overlap", [], overlap)
    gpu.judge(STEPS, tmp_path, "A GPU")
    report = json.loads((tmp_path / "gpu.json").read_text())
    estimates_and_verdicts = {
        finding["name"]: (finding["estimate"], finding["verdict"]) for finding in report["findings"]
    }
    assert estimates_and_verdicts == {
        "conformance: found": (0, "met"),
        "conformance: programs": (300, None),
        "conformance-mixed: found": (2, "missed"),
        "conformance-mixed: programs": (82, None),
        "tests: failed": (1, "missed"),
        "tests: error": (2, "missed"),
        "tests: passed": (33, "met"),
        "overlap: overlap_efficiency": (0.95, "met"),
        "overlap: book_overlap_efficiency": (0.1, None),
    }
    assert "overlap: A copy is wrong.\n" in report["notes"]
    not_run = [note for note in report["notes"] if NOT_RUN in note]
    assert len(not_run) == len(STEPS) - 4


def build_wheel(folder: Path) -> None:
    """Write the wheel of a package that holds one empty module."""
    metadata = {
        "METADATA": "Metadata-Version: 2.1\nName: made-up-here\nVersion: 1.2\n",
        "RECORD": "",
        "WHEEL": (
            "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    with ZipFile(folder / "made_up_here-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made_up_here.py", "")
        for name, text in metadata.items():
            wheel.writestr(f"made_up_here-1.2.dist-info/{name}", text)


@pytest.mark.long
def test_packages_come_from_wheels_and_without_those_a_command_gets_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A search for packages changes both.
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    requirements = ["numpy>=1.22", "made-up-here>=1"]
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    gpu.add_packages(requirements, wheels, site)
    command = capfd.readouterr().out
    platforms = "--platform=manylinux_2_28_x86_64 --platform=manylinux_2_27_x86_64"
    assert f"--dest=wheels {platforms}" in command
    assert "'made-up-here>=1'" in command

    build_wheel(wheels)
    gpu.add_packages(requirements, wheels, site)
    assert capfd.readouterr().out == ""
    installed = {path.name for path in site.iterdir()} - {"__pycache__"}
    assert installed == {"made_up_here-1.2.dist-info", "made_up_here.py"}
    program = [sys.executable, "-c", "import made_up_here, benchmarks.gpu"]
    subprocess.run(program, cwd=tmp_path, check=True)


IMAGES = {"images_per_second", "plain_images_per_second"}
FIGURES = {
    "copies": {"to_device", "to_host"},
    "units": {"small_units_speedup", "plain_small_units_speedup", "ours / plain"},
    "launch": {"ours / plain"},
    "training": {"ours / plain", *IMAGES},
    "replayed": {"ours / plain graph", *IMAGES},
}


@pytest.mark.parametrize("measurement", FIGURES)
def test_the_worker_gives_a_ratio_with_its_interval(measurement: str) -> None:
    worker = pytest.importorskip("benchmarks.workers.gpu", reason="torch is not installed")
    answer = worker.measure("cpu", "cpu:1,cpu:2", measurement)
    names = FIGURES[measurement]
    assert answer["problems"] == []
    assert answer["metrics"].keys() == names
    assert answer["metric_intervals"].keys() == names
    for name in names:
        low, high = answer["metric_intervals"][name]
        assert low <= answer["metrics"][name] <= high
    assert names <= {*gpu.SHOWN, *gpu.AT_LEAST}


@pytest.mark.long
def test_a_rehearsal_runs_every_step_that_cpus_can_run(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("torch")
    command = [sys.executable, "-m", "benchmarks.gpu", "--rehearse", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=gpu.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "rehearsal"
    for step in STEPS:
        state = kept(step, folder)["state"]
        assert state == (NOT_RUN if step.needs_gpu else DONE), step.name
    assert (folder / "trace.json.gz").stat().st_size > 0
    # Findings are named like "overlap: overlap_efficiency".
    findings = json.loads((folder / "gpu.json").read_text())["findings"]
    judged_figures = {finding["name"].partition(": ")[2] for finding in findings}
    figures = {name.rpartition(": ")[2] for name in (*gpu.SHOWN, *gpu.AT_LEAST, *gpu.AT_MOST)}
    figures_of_tests_on_gpus = {"passed", "failed", "error"}
    assert judged_figures == figures - figures_of_tests_on_gpus
