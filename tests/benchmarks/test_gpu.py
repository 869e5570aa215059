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
    assert not take_missing(MADE_UP, tmp_path, WORD, monotonic() + 600, "none is built in")
    states = [FAILED, HUNG, FAILED, NOT_RUN, DONE, DONE]
    assert [kept(step, tmp_path)["state"] for step in MADE_UP] == states
    works, hangs = kept(WORKS, tmp_path), kept(HANGS, tmp_path)
    assert (works["status"], works["output"], works["limit"]) == (0, ["well"], 60)
    assert works["command"].startswith(sys.executable)
    assert (hangs["output"], hangs["limit"]) == (["well"], 5)
    assert kept(ANSWERS, tmp_path)["answer"] == [1]
    assert (kept(WRONG, tmp_path)["status"], kept(CRASHES, tmp_path)["status"]) == (1, -6)
    assert kept(WRONG, tmp_path)["reason"] == "ValueError: cannot be"
    assert kept(ON_GPU, tmp_path)["reason"].endswith("none is built in")


def test_a_second_call_runs_what_is_missing_and_first_what_was_never_tried_until_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not take_missing([WORKS], tmp_path, WORD, monotonic())
    assert list(tmp_path.iterdir()) == []
    take_missing([WRONG, WORKS], tmp_path, WORD, monotonic() + 60)
    (tmp_path / "answers.json").write_text('{"state": "done", "answ')
    capfd.readouterr()
    assert not take_missing([WRONG, WORKS, ANSWERS, ON_GPU], tmp_path, WORD, monotonic() + 60)
    assert [line.split(":")[0] for line in capfd.readouterr().out.splitlines()] == [
        "answers",
        "on-gpu",
        "wrong",
    ]
    assert take_missing([WORKS, ANSWERS, ON_GPU], tmp_path, WORD, monotonic() + 60)
    assert capfd.readouterr().out == ""


def test_figures_are_held_against_their_targets(tmp_path: Path) -> None:
    def done(name: str, output: list[str], answer: object = None) -> None:
        what = {"state": DONE, "output": output, "answer": answer}
        (tmp_path / f"{name}.json").write_text(json.dumps(what))

    metrics = {"overlap_efficiency": 0.95, "book_overlap_efficiency": 0.1, "price_of_overlap": 0.0}
    intervals = {"overlap_efficiency": [0.91, 0.99]}
    done("conformance", ["…", "torch: 300 programs, 400 a minute, all equal to NumPy's"])
    done("conformance-mixed", ["torch: 82 programs, 90 a minute, 2 found that are not"])
    done("tests", ["1 failed, 33 passed, 29 skipped, 2 errors in 12.3s"])
    done(
        "overlap",
        [],
        {"metrics": metrics, "metric_intervals": intervals, "problems": ["A copy is wrong."]},
    )
    gpu.judge(STEPS, tmp_path, "A GPU")
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert {one["name"]: (one["estimate"], one["verdict"]) for one in written["findings"]} == {
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
    assert "overlap: A copy is wrong.\n" in written["notes"]
    assert len([note for note in written["notes"] if NOT_RUN in note]) == len(STEPS) - 4


@pytest.mark.long
def test_packages_come_from_wheels_and_without_those_a_command_gets_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A search for packages changes both.
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    wanted = ["numpy>=1.22", "made-up-here>=1"]
    gpu.add_packages(wanted, wheels, site)
    assert (
        "--dest=wheels "
        f"{' '.join(f'--platform=manylinux{one}_x86_64' for one in ('_2_28', '_2_27'))}"
        in (printed := capfd.readouterr().out)
    )
    assert "'made-up-here>=1'" in printed
    about = {"METADATA": "Metadata-Version: 2.1\nName: made-up-here\nVersion: 1.2\n", "RECORD": ""}
    about["WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    with ZipFile(wheels / "made_up_here-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made_up_here.py", "")
        for name, text in about.items():
            wheel.writestr(f"made_up_here-1.2.dist-info/{name}", text)
    gpu.add_packages(wanted, wheels, site)
    assert capfd.readouterr().out == ""
    assert {path.name for path in site.iterdir()} - {"__pycache__"} == {
        "made_up_here-1.2.dist-info",
        "made_up_here.py",
    }
    subprocess.run(
        [sys.executable, "-c", "import made_up_here, benchmarks.gpu"], cwd=tmp_path, check=True
    )


IMAGES = {"images_per_second", "plain_images_per_second"}
FIGURES = {
    "copies": {"to_device", "to_host"},
    "units": {"small_units_speedup", "plain_small_units_speedup", "ours / plain"},
    "launch": {"ours / plain", "with an event / plain"},
    "training": {"ours / plain", *IMAGES},
    "replayed": {"ours / plain graph", *IMAGES},
}


@pytest.mark.parametrize("what", FIGURES)
def test_the_worker_gives_a_ratio_with_its_interval(what: str) -> None:
    worker = pytest.importorskip("benchmarks.workers.gpu", reason="torch is not installed")
    given = worker.measure("cpu", "cpu:1,cpu:2", what)
    assert given["problems"] == []
    names = FIGURES[what]
    assert given["metrics"].keys() == given["metric_intervals"].keys() == names
    for name in names:
        low, high = given["metric_intervals"][name]
        assert low <= given["metrics"][name] <= high
    assert names <= {*gpu.SHOWN, *gpu.AT_LEAST}


@pytest.mark.long
def test_a_rehearsal_runs_every_step_that_cpus_can_run(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("torch")
    command = [sys.executable, "-m", "benchmarks.gpu", "--rehearse", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=gpu.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "rehearsal"
    assert {step.name: kept(step, out)["state"] for step in STEPS} == {
        step.name: NOT_RUN if step.needs_gpu else DONE for step in STEPS
    }
    assert all("needs a GPU" in kept(step, out)["reason"] for step in STEPS if step.needs_gpu)
    assert (out / "trace.json.gz").stat().st_size > 0
    judged = {
        one["name"].partition(": ")[2]
        for one in json.loads((out / "gpu.json").read_text())["findings"]
    }
    only_there = {"passed", "failed", "error"}
    wanted = {name.rpartition(": ")[2] for name in (*gpu.SHOWN, *gpu.AT_LEAST, *gpu.AT_MOST)}
    assert judged == wanted - only_there
