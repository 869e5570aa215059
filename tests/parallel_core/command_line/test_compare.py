"""`parallel-core compare` as a user meets it: real processes, failures that do not end it, signals
that do.

It runs in the tests' process unless a fixture shares its results, or a signal or a pipe takes part.
"""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parallel_core.experiments import EXPERIMENTS
from tests.conftest import Require, RunProgram
from tests.parallel_core.command_line.refused import assert_refused
from tests.parallel_core.command_line.test_command_line import PROGRAM, run
from tests.parallel_core.jobs.ranks import are_gone, wait_for_lines, wait_until

COMPARE = [*PROGRAM, "compare"]
ON_NUMPY = shlex.split("--backends numpy --engines sync --no-traces")
WORKER = "parallel_core.run.worker"
BRIEF = ["building-blocks", *ON_NUMPY]
"""An experiment that is over in a moment."""

# What becomes of results must not depend on how busy the machine is: none is doubted.
CREDULOUS = """
import json, sys
from dataclasses import replace
from parallel_core.experiments.runner import conclusions
from parallel_core.run import worker

conclusions.why_impossible = conclusions.about_excess = lambda *_: None
measure, log = worker.measure, sys.argv.pop(1)

def measure_less(request, *arguments, **named):
    work = request.work
    with open(log, "a") as file:
        file.write(json.dumps([work.experiment, *work.parameters]) + "\\n")
    # Smaller matrices than would be chosen.
    less = replace(request, work=replace(work, parameters={**work.parameters, "size": 100}))
    return measure(less, *arguments, **named)

worker.measure = measure_less
worker.main()
"""


HANGING = """
import subprocess, sys
from parallel_core.run import worker

measure, note = worker.measure, sys.argv.pop(1)

def hang(request, *arguments, **named):
    if request.work.experiment == "parallel":
        child = subprocess.Popen(["sleep", "1000"])
        with open(note, "w") as file:
            file.write(f"{child.pid}\\n")
        child.wait()
    return measure(request, *arguments, **named)

worker.measure = hang
worker.main()
"""


def cells(folder: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    read = json.loads((folder / "comparison.json").read_text())
    return {
        f"{cell['experiment']} {cell['backend']} {cell['engine']}": cell for cell in read["cells"]
    }


def interpreter(path: Path, behaviour: str, asked_whether_it_can_run: str = "exit 0") -> str:
    """Write a program that stands in for a Python: it can run parallel-core, and behaves as told
    when it runs it.
    """
    path.write_text(
        f'#!/bin/sh\nif [ "$2" = -c ]; then {asked_whether_it_can_run}; fi\n{behaviour}\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
def test_a_framework_compared_for_real(
    require: Require, program: RunProgram, tmp_path: Path
) -> None:
    require("torch")
    folder = tmp_path / "out"
    asked = "compare parallel building-blocks --backends numpy,torch --engines sync"
    briefly = "--quick --rounds 1 --minutes 0.2"
    done = program(*asked.split(), *briefly.split(), f"--out={folder}")
    assert done.returncode == 0, done.stderr
    assert "Devices at once" in done.stdout
    assert f"Report:  {folder / 'report.html'}" in done.stdout
    # Both experiments on a framework share a process.
    assert "round 1 of 1: 0 of 4 results" in done.stderr
    read = cells(folder)
    names = ("parallel", "building-blocks")
    assert list(read) == [
        f"{name} {backend} sync" for name in names for backend in ("numpy", "torch")
    ]
    assert all(cell["results"] for cell in read.values())
    of_numpy, of_torch = read["parallel numpy sync"], read["parallel torch sync"]
    parameters = of_numpy["results"][0]["parameters"]
    assert parameters["size"] == EXPERIMENTS["parallel"].options["quick"]["size"]
    assert of_torch["results"][0]["parameters"] == parameters
    page = (folder / "report.html").read_text()
    assert "<html" in page
    assert 'id="chart-timelines-parallel"' in page


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compare two experiments, one with a size to choose, in two rounds, and keep a log of their
    processes.

    A second framework fails: its experiment of copies once and again, the other one by a refusal.
    """
    folder = tmp_path_factory.mktemp("interleaved")
    (folder / "credulous.py").write_text(CREDULOUS)
    smaller = f"exec {sys.executable} -P {folder / 'credulous.py'} {folder / 'log'} $4"
    numpy = interpreter(folder / "python", smaller, f'exec {sys.executable} "$@"')
    torch = interpreter(
        folder / "failing",
        "read asked; case $asked in *overlap*) kill -SEGV $$;; esac; echo no luck >&2; exit 2",
    )
    options = "--backends numpy,torch --engines sync --no-traces --rounds 2 --deadline 500"
    pythons = (f"--python=numpy={numpy}", f"--python=torch={torch}")
    words = ("overlap", "parallel", *options.split(), *pythons)
    done = run("compare", *words, f"--out={folder}/out")
    assert done.returncode == 0, done.stderr
    assert "on PyTorch without queues: failed: no luck" in " ".join(done.stdout.split())
    return folder


def test_rounds_are_interleaved_sizes_chosen_once_and_failed_runs_made_up_for(
    interleaved: Path,
) -> None:
    asked = [json.loads(line) for line in (interleaved / "log").read_text().splitlines()[:4]]
    assert [experiment for experiment, *_ in asked] == ["overlap", "parallel"] * 2
    first, second = (sizes for experiment, *sizes in asked if experiment == "overlap")
    assert "copies" not in first
    assert "copies" in second
    read = cells(interleaved / "out")
    results = read["overlap numpy sync"]["results"]
    assert [result["parameters"] for result in results] == [results[0]["parameters"]] * 2
    # A run that fails is made up for, and what is refused once would be refused again.
    for name, rounds in (("overlap", [1, 2]), ("parallel", [1])):
        failures = read[f"{name} torch sync"]["failures"]
        assert [failure["round"] for failure in failures] == rounds
    options = json.loads((interleaved / "out" / "comparison.json").read_text())["options"]
    assert options["deadline_seconds"] == 500


def test_saved_sizes_are_taken_over_and_json_stands_alone(
    interleaved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read = json.loads((interleaved / "out" / "comparison.json").read_text())
    for cell in read["cells"]:
        for result in cell["results"]:
            if cell["experiment"] == "overlap":
                result["parameters"]["copies"] = 7
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(read))
    python = f"--python=numpy={interleaved / 'python'}"
    like_saved = ("--rounds=1", f"--like={saved}", "--json=-")
    # No folder is named.
    done = run("compare", "overlap", *ON_NUMPY, python, *like_saved)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    (result,) = cells(folder)["overlap numpy sync"]["results"]
    assert (result["parameters"]["copies"], result["parameters"]["size"]) == (7, 100)
    assert json.loads(done.stdout) == json.loads((folder / "comparison.json").read_text())
    assert "Copies hidden" in done.stderr
    # It is named by the time.
    assert folder.name.startswith("comparison-2")
    assert f"Report:  runs/{folder.name}/report.html" in done.stderr


def test_little_time_takes_the_sizes_of_quick_and_so_does_what_is_like_it(tmp_path: Path) -> None:
    usual = ["compare", *BRIEF, "--rounds=1"]
    made = {}
    for name, options in {
        "little": ["--minutes=1"],
        "much": ["--minutes=2"],
        "like": [f"--like={tmp_path}/little"],
    }.items():
        done = run(*usual, *options, f"--out={tmp_path}/{name}")
        assert done.returncode == 0, done.stderr
        made[name] = json.loads((tmp_path / name / "comparison.json").read_text())
    is_quick = {name: comparison["quick"] for name, comparison in made.items()}
    assert is_quick == {"little": True, "much": False, "like": True}


def test_a_pipe_that_closes_early_costs_no_result(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = [*COMPARE, *BRIEF, "--rounds=1", f"--out={folder}"]
    run = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout is not None
    run.stdout.close()
    run.wait(timeout=60)
    assert (folder / "report.html").exists()
    assert (folder / "pyperf" / "numpy-sync.json").exists()


def test_nothing_measured_is_one_line_and_status_1(program: RunProgram, tmp_path: Path) -> None:
    folder = tmp_path / "out [/b]"
    python = interpreter(tmp_path / "python", "echo 'parallel-core: no luck' >&2; exit 1")
    done = program("compare", *BRIEF, f"--python=numpy={python}", f"--out={folder}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "parallel-core: nothing could be measured: no luck"
    # The folder is no markup, and the command can be pasted.
    again = f"Tables:  parallel-core report '{folder}' --details\n"
    assert f"Report:  {folder}/report.html\n{again}" in done.stdout


def test_a_signal_kills_what_runs_and_keeps_what_was_measured(
    program: RunProgram, tmp_path: Path
) -> None:
    note, folder = tmp_path / "pid", tmp_path / "out [a]"
    (tmp_path / "hanging.py").write_text(HANGING)
    hangs = f"exec {sys.executable} -P {tmp_path / 'hanging.py'} {note} $4"
    python = interpreter(tmp_path / "python", hangs)
    arguments = ["building-blocks", "parallel", *ON_NUMPY, f"--python=numpy={python}"]
    command, pipe = [*COMPARE, *arguments, f"--out={folder}"], subprocess.PIPE
    run = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    (pid,) = wait_for_lines(1, note)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    kept = (
        "parallel-core: interrupted; see what was measured until then: parallel-core report "
        f"'{folder}'"
    )
    assert (run.returncode, errors.splitlines()[-1]) == (130, kept)
    printed = program("report", str(folder)).stdout
    assert printed.rstrip().endswith(f"Report:  {folder / 'report.html'}")
    assert (folder / "report.html").exists()
    read = cells(folder)
    assert len(read["building-blocks numpy sync"]["results"]) == 1
    assert read["parallel numpy sync"]["results"] == []
    assert are_gone([pid])


def children(process: int) -> list[str]:
    """Return the numbers of a process's children that measure."""
    started = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [child for child in started if WORKER in Path(f"/proc/{child}/cmdline").read_text()]


@pytest.mark.parametrize("as_soon_as_possible", [True, False])
def test_what_measures_ends_when_the_comparison_is_killed(
    tmp_path: Path, as_soon_as_possible: bool
) -> None:
    command = [*COMPARE, "overlap", *ON_NUMPY, f"--out={tmp_path}/out"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        wait_until(lambda: bool(children(run.pid)))
        measuring = children(run.pid)
        if not as_soon_as_possible:
            # It has begun to compute when it has loaded NumPy.
            (child,) = measuring
            maps = Path(f"/proc/{child}/maps")
            wait_until(lambda: "numpy" in maps.read_text())
        run.kill()
    assert len(measuring) == 1
    assert are_gone(measuring)


@pytest.mark.parametrize("name", ["comparison.json", "report.html"])
def test_a_folder_with_results_is_left_alone(
    program: RunProgram, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("kept")
    done = program("compare", *BRIEF, f"--out={tmp_path}")
    assert_refused(done, f"holds {name} already")
    assert (tmp_path / name).read_text() == "kept"
