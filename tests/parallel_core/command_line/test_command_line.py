"""The program as a user meets it: results where they belong, one line for what is wrong, and
Ctrl-C.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner import conclusions
from parallel_core.measurement.result import Note
from parallel_core.system.machine import MachineWatch
from tests.conftest import MEASURED, Require, RunProgram
from tests.tree import ROOT

PROGRAM = [sys.executable, "-m", "parallel_core"]
SMALL = shlex.split("run parallel --backend numpy --size 64 --rounds 5")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the program in a process of its own."""
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_table_or_json_and_a_guess_that_is_told_last(program: RunProgram, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = program(*SMALL, "--guess=1e6", "--details", f"--json={path}")
    assert done.returncode in MEASURED, done.stderr
    assert "GFLOP/s on one core\n" in done.stdout
    # One line if the machine was disturbed.
    assert done.stderr.count("\n") == bool(done.returncode)
    last = done.stdout.split("\n\n")[-1]
    assert last.startswith("You guessed 1,000,000; measured ")
    written = json.loads(path.read_text())
    assert written["metrics"]["parallel_speedup"] > 0
    guess = written["guess"]
    assert (guess["metric"], guess["value"]) == ("parallel_speedup", 1e6)
    assert guess["reason"] in " ".join(last.split())
    done = program(*SMALL, "--json=-")
    assert done.returncode in MEASURED
    written = json.loads(done.stdout)
    assert (written["experiment"], "guess" in written) == ("parallel", False)
    assert EXPERIMENTS["parallel"].question in done.stderr
    assert "guessed" not in done.stderr


def test_times_that_leave_all_open_end_with_status_3(
    program: RunProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = MachineWatch(10.0, 2.0, 0.9, 0.0, None, None, None)
    monkeypatch.setattr("parallel_core.measurement.timing.watched", lambda *_: taken)
    done = program(*SMALL, "--json=-")
    assert done.returncode == 3
    written = json.loads(done.stdout)
    assert written["problems"] == []
    assert written["disturbances"] == [{"code": "busy", "sentence": written["explanation"]}]


def test_impossible_times_have_status_3(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    impossible = Note("faster-than-part", "the whole was faster than its part")
    monkeypatch.setattr(conclusions, "why_impossible", lambda *_: impossible)
    done = program(*SMALL, f"--json={path}")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert done.stderr.endswith(f" gave an invalid result: {impossible.sentence}\n")
    assert f"INVALID: {impossible.sentence}" in done.stdout
    written = json.loads(path.read_text())
    assert written["problems"] == written["disturbances"] == [vars(impossible)]


def test_allreduce_shows_a_row_for_each_size_and_a_column_for_each_algorithm(
    program: RunProgram,
) -> None:
    options = "--sizes 1KiB,4KiB..16KiB --algorithm ring,star --algorithm native"
    done = program("run", "allreduce", "--backend=numpy", *options.split())
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["size", "plain", "copy", "ring", "star", "native"] in lines
    rows = [line for line in lines if line[1:2] == ["KiB"]]
    assert [row[0] for row in rows] == ["1", "4", "16"]
    assert all(len([cell for cell in row if cell.endswith("%")]) == 3 for row in rows)


@pytest.mark.parametrize(
    ("engine", "variants", "in_words"),
    [
        ("sync", [], "without queues"),
        ("async", ["copy-on-compute-queue"], "+ our queues with copy-on-compute-queue"),
    ],
)
def test_an_engine_and_a_variant_from_the_command_line(
    require: Require,
    program: RunProgram,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    variants: list[str],
    in_words: str,
) -> None:
    require("torch")
    monkeypatch.setenv("COLUMNS", "200")
    chosen = ("--backend=torch", "--device-kind=cpu", f"--engine={engine}")
    done = program(*SMALL, *chosen, *(f"--variant={name}" for name in variants), "--json=-")
    assert done.returncode in MEASURED, done.stderr
    described = json.loads(done.stdout)["backend"]
    assert (described["name"], described["engine"]) == ("torch", engine)
    assert described["variants"] == variants
    assert f" {in_words}, cpu:1" in done.stderr


def test_synthetic_data_is_told_of(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parallel_core.training.dataset.DEBIAN", Path("/nowhere"))
    monkeypatch.setattr("parallel_core.training.dataset.ORIGIN", "http://127.0.0.1:9/")
    monkeypatch.setattr("parallel_core.training.dataset.synthetic.__defaults__", (300, 50))
    monkeypatch.delenv("PARALLEL_CORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    training = "run data-parallel --backend numpy --epochs 1 --json -"
    done = program(*training.split())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"].startswith("synthetic images")
    assert " ".join(done.stderr.split()).count("data: synthetic images") == 1
    assert done.stderr.index("trains on synthetic images") < done.stderr.index("epoch 1:")


def test_training_that_diverges_is_one_line_and_status_1(
    program: RunProgram, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    training = "run data-parallel --backend numpy --limit 9 --batch-size 16 --lr 1e30 --json"
    done = program(*training.split(), str(path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("parallel-core: the loss is ")
    assert " on cpu:1 in epoch 1, step " in done.stderr
    assert not path.exists()


def test_the_program_states_its_version(program: RunProgram) -> None:
    assert program("--version").stdout.startswith("parallel-core, version ")


@pytest.mark.parametrize("devices", ["2", "cpu:3,cpu:1"])
def test_numpy_conforms_to_itself(program: RunProgram, devices: str) -> None:
    done = program(*shlex.split("conformance --backend numpy --programs 5 --devices"), devices)
    assert done.returncode == 0
    assert done.stdout.startswith("numpy: 5 programs, ")
    assert done.stdout.endswith("all equal to NumPy's\n")


# The program, which says when its framework is there.
SAYING_WHEN = """
import backends
from parallel_core.__main__ import main

load = backends.load

def load_and_say(*arguments, **named):
    loaded = load(*arguments, **named)
    print("loaded", flush=True)
    return loaded

backends.load = load_and_say
main()
"""


@pytest.mark.parametrize(
    ("backend", "work"),
    [
        # Products that take minutes: MXNet's wait does not return to Python before they are done.
        ("mxnet", ["parallel", "--size=3000"]),
        pytest.param("torch", ["data-parallel"], marks=pytest.mark.long),
        ("numpy", ["async"]),
    ],
)
def test_ctrl_c_ends_the_run_and_leaves_nothing(
    require: Require, backend: str, work: list[str]
) -> None:
    if backend != "numpy":
        require(backend)
    run = subprocess.Popen(
        [sys.executable, "-c", SAYING_WHEN, "run", *work, "--backend", backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "loaded\n"
    # Into the work.
    time.sleep(0.5)
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 130
    assert errors.rstrip().endswith("parallel-core: interrupted")
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)


def test_a_folder_backends_of_the_user_s_own_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends/__init__.py").write_text("raise ImportError('not to be imported')")
    command = [sys.executable, "-m", "parallel_core", "list"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert f"{tmp_path}/backends in place of parallel-core's own {ROOT}/backends:" in line
    # Neither an installed program nor this looks into the current folder.
    command.insert(1, "-P")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
