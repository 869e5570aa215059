"""`parallel-core compare` as a user meets it: real processes, failures that do not end it, signals that do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "parallel_core"]
COMPARE = [*PROGRAM, "compare"]
ON_NUMPY = ["--backends", "numpy", "--engines", "sync", "--quick"]


def compare(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMPARE, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


def cells(folder: Path) -> dict[str, dict[str, list[dict[str, object]]]]:
    read = json.loads((folder / "comparison.json").read_text())
    return {f"{cell['experiment']} {cell['backend']} {cell['engine']}": cell for cell in read["cells"]}


def interpreter(path: Path, behaviour: str) -> str:
    """Write a program that stands in for a Python: it can import parallel-core, and behaves as told when it runs it."""
    path.write_text(f'#!/bin/sh\nif [ "$2" = -c ]; then exec {sys.executable} "$@"; fi\n{behaviour}\n')
    path.chmod(0o755)
    return str(path)


def test_both_frameworks_compared_for_real(require: Callable[[str], None], tmp_path: Path) -> None:
    require("mxnet")
    require("torch")
    folder = tmp_path / "out"
    done = compare("parallel", "--quick", "--rounds", "1", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert "parallel_speedup" in done.stdout
    assert done.stdout.rstrip().endswith(f"Report: {folder / 'report.html'}")
    assert "round 1 of 1: 0 of 4 runs done" in done.stderr
    found = cells(folder)
    assert list(found) == [f"parallel {side}" for side in ("mxnet async", "mxnet sync", "torch async", "torch sync")]
    for cell in found.values():
        (result,) = [*cell["results"], *cell["failures"]][:1]
        assert result["parameters"]["size"] == 400  # type: ignore[index]
        assert result["backend"]["engine"] == cell["engine"]  # type: ignore[index]
    assert "<html" in (folder / "report.html").read_text()


def test_the_suites_are_read_by_pyperf_s_own_tools(tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = compare("parallel", *ON_NUMPY, "--rounds", "2", "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
    one, two = (str(tmp_path / name / "pyperf" / "numpy-sync.json") for name in ("one", "two"))

    def pyperf(*arguments: str) -> str:
        command = [sys.executable, "-m", "pyperf", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "parallel: on all together" in pyperf("compare_to", one, two, "--verbose")
    # It names unstable benchmarks only, and which those are is the machine's affair.
    assert "stable" in pyperf("check", one)
    told = pyperf("stats", one)
    assert "Number of run with values: 2" in told
    assert "Number of warmup per run: 1" in told
    shown = pyperf("metadata", one)
    for key in ("framework: numpy", "engine: sync", "cpu_affinity:", "threads_per_device:", "device_cores:"):
        assert key in shown


def test_rounds_are_interleaved_and_sizes_chosen_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    python = interpreter(tmp_path / "python", f'echo "$*" >> {log}\nexec {sys.executable} "$@"')
    folder = tmp_path / "out"
    done = compare(
        "overlap", "parallel", *ON_NUMPY, "--rounds", "2", "--out", str(folder), "--python", f"numpy={python}"
    )
    assert done.returncode == 0, done.stderr
    commands = log.read_text().splitlines()
    assert [command.split()[4] for command in commands] == ["overlap", "overlap", "parallel", "overlap", "parallel"]
    calibrating, *counted = (command for command in commands if "run overlap" in command)
    assert "--copies" not in calibrating
    assert all("--copies" in command for command in counted)
    results = cells(folder)["overlap numpy sync"]["results"]
    assert len({json.dumps(result["parameters"]) for result in results}) == 1


def test_the_sizes_of_a_saved_comparison_are_taken_over(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    arguments = ["overlap", *ON_NUMPY, "--rounds", "1"]
    assert compare(*arguments, "--out", str(first)).returncode == 0
    read = json.loads((first / "comparison.json").read_text())
    read["cells"][0]["results"][0]["parameters"]["copies"] = 7
    (first / "comparison.json").write_text(json.dumps(read))
    assert compare(*arguments, "--out", str(second), "--like", str(first)).returncode == 0
    assert cells(second)["overlap numpy sync"]["results"][0]["parameters"]["copies"] == 7  # type: ignore[index]


def test_other_work_than_the_saved_comparison_s_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    assert compare("parallel", *ON_NUMPY, "--rounds", "1", "--out", str(folder)).returncode == 0
    done = compare("parallel", "--like", str(folder), "--out", str(tmp_path / "new"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"--like {folder} was made with mode quick, not full: see --quick" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_pipe_that_closes_early_costs_no_result(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = [*COMPARE, "parallel", *ON_NUMPY, "--rounds", "1", "--out", str(folder)]
    run = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout is not None
    run.stdout.close()
    run.wait(timeout=60)
    assert (folder / "report.html").exists()
    assert (folder / "pyperf" / "numpy-sync.json").exists()


def test_a_missing_framework_is_a_row_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    arguments = ["parallel", "--backends", "torch,numpy", "--engines", "sync", "--quick", "--rounds", "2"]
    done = compare(*arguments, "--out", str(tmp_path / "out"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "torch sync: torch is not installed: pip install 'parallel-core[torch]'" in done.stdout
    found = cells(tmp_path / "out")
    assert len(found["parallel numpy sync"]["results"]) == 2
    # What is refused once would be refused again.
    assert [failure["round"] for failure in found["parallel torch sync"]["failures"]] == [1]
    assert "torch is not installed" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("sleep 1000 & sleep 1000", "gave no result within 10 s and was killed"),
        ("kill -SEGV $$", "was killed by SIGSEGV"),
        ("echo '{'", "gave something else than the result that was asked for"),
        ("echo 'parallel-core: out of memory' >&2; exit 1", "out of memory"),
    ],
)
def test_a_process_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path, behaviour: str, reason: str) -> None:
    python = interpreter(tmp_path / "python", behaviour)
    arguments = ["parallel", "--backends", "torch,numpy", "--engines", "sync", "--quick", "--rounds", "2"]
    done = compare(*arguments, "--deadline", "10", "--python", f"torch={python}", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    found = cells(tmp_path / "out")
    # One more chance, in another round, and then no more.
    assert [failure["round"] for failure in found["parallel torch sync"]["failures"]] == [1, 2]
    assert found["parallel torch sync"]["failures"][0]["reason"] == reason
    assert len(found["parallel numpy sync"]["results"]) >= 2


def test_runs_that_fail_are_made_up_for(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    fails_once = f'if [ ! -e {flag} ]; then touch {flag}; exit 1; fi\nexec {sys.executable} "$@"'
    python = interpreter(tmp_path / "python", fails_once)
    folder = tmp_path / "out"
    done = compare("parallel", *ON_NUMPY, "--rounds", "2", "--python", f"numpy={python}", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    cell = cells(folder)["parallel numpy sync"]
    assert (len(cell["results"]), len(cell["failures"])) == (2, 1)


def test_nothing_measured_is_one_line_and_status_1(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "python", "echo 'parallel-core: no luck' >&2; exit 1")
    done = compare("parallel", *ON_NUMPY, "--python", f"numpy={python}", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "parallel-core: nothing could be measured: no luck"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_kills_what_runs_and_keeps_what_was_measured(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    note = tmp_path / "pid"
    python = interpreter(tmp_path / "python", f"sleep 1000 & echo $! > {note}; wait")
    folder = tmp_path / "out"
    arguments = ["parallel", "--backends", "numpy,torch", "--engines", "sync", "--quick", "--out", str(folder)]
    run = subprocess.Popen(
        [*COMPARE, *arguments, "--python", f"torch={python}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while run.poll() is None and not (note.exists() and note.read_text().endswith("\n")):
        time.sleep(0.1)
    run.send_signal(number)
    _, errors = run.communicate(timeout=5)
    assert run.returncode == status
    kept = f"parallel-core: interrupted; see what was measured until then: parallel-core report {folder}"
    assert errors.splitlines()[-1] == kept
    shown = subprocess.run([*PROGRAM, "report", str(folder)], capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith(f"Report: {folder / 'report.html'}")
    assert (folder / "report.html").exists()
    found = cells(folder)
    assert len(found["parallel numpy sync"]["results"]) == 1
    assert found["parallel torch sync"]["results"] == []
    for _ in range(100):
        try:
            os.kill(int(note.read_text()), 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("a process was left behind")


def test_json_has_standard_output_to_itself(tmp_path: Path) -> None:
    done = compare("parallel", *ON_NUMPY, "--rounds", "1", "--json", "-", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert "parallel_speedup" in done.stderr


def test_the_folder_is_named_by_the_time(tmp_path: Path) -> None:
    command = [*COMPARE, "parallel", *ON_NUMPY, "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("comparison-2")
    assert done.stdout.rstrip().endswith(f"Report: {folder.name}/report.html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "unknown experiment 'nonsense' (known: async, barriers, "),
        (["--backends", "nonsense"], "unknown backend 'nonsense' (known: mxnet, numpy, torch)"),
        (["--backends", "torch,torch"], "'torch,torch' names one backend twice"),
        (["--engines", "lazy"], "unknown engine 'lazy' (known: async, sync)"),
        (["--rounds", "0"], "0 is not in the range x>=1"),
        (["--deadline", "soon"], "'soon' is not a positive number"),
        (["--device-kind", "tpu"], "unknown device kind 'tpu' (known: auto, cpu, gpu)"),
        (["--python", "torch"], "'torch' is not of the form NAME=PATH"),
        (["--python", "torch=/nowhere/python"], "'/nowhere/python' is not a program that can be run"),
        (["--python", "numpy=python3"], "--python names 'numpy', which is not compared"),
        (["--python", "torch=/bin/false"], "/bin/false cannot run parallel-core (it said nothing)"),
        (["--out", "/dev/null/x"], "cannot make the folder /dev/null/x"),
        (["--like", "/nowhere"], "cannot read /nowhere: No such file or directory"),
        (["--like", "/dev/null"], "/dev/null is not a comparison that parallel-core compare wrote"),
        (["--json", "/nowhere/x.json"], "cannot write to /nowhere/x.json"),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = subprocess.run([*COMPARE, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_results_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text("kept")
    done = compare("parallel", *ON_NUMPY, "--out", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "holds a comparison already" in done.stderr
    assert (tmp_path / "comparison.json").read_text() == "kept"
