"""`run` with a trace, on several backends in turns and with checkpoints, and `launch`, which runs
it in processes.
"""

import json
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backends import Backend
from backends.registry.loading import title
from parallel_core.command_line.launch import launch
from parallel_core.jobs.job import Job
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.result import Result
from parallel_core.run import arguments as program_arguments
from parallel_core.traces.trace_files import read_timeline
from parallel_core.training.checkpoints import FILE
from parallel_core.training.dataset import synthetic
from tests.conftest import MEASURED, Require, RunProgram
from tests.parallel_core.command_line.test_command_line import run

WORKER = "parallel_core.run.worker"
PARALLEL = shlex.split("run parallel --size 64")
SMALL = [*PARALLEL, "--device-kind=cpu", "--rounds=2"]


def test_a_run_leaves_a_trace_and_a_picture_and_tells_what_the_profiler_recorded(
    framework_name: str, tmp_path: Path, require: Require, program: RunProgram
) -> None:
    require(framework_name)
    trace, picture = tmp_path / "trace.json.gz", tmp_path / "timeline.svg"
    # MXNet and JAX take their settings when a process imports them.
    started = program if framework_name == "torch" else run
    written = (f"--trace={trace}", f"--timeline={picture}")
    done = started(*SMALL, "--backend", framework_name, "--details", *written)
    assert done.returncode in MEASURED, done.stderr
    for text in ("parallel_speedup", "longest gap", "Under the profiler it took"):
        assert text in done.stdout, text
    found = read_timeline(trace)
    names = [case.name for case in found.cases]
    assert names == ["on cpu:1 alone", "on cpu:2 alone", "on all together"]
    assert found.source.startswith(title(framework_name))
    assert {"cpu:1", "cpu:2", "host"} <= {span.device for span in found.spans}
    assert "cpu:2 compute" in picture.read_text()


def repeating(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """Return the words of the command that repeats a run, as the run says them."""
    (again,) = (line for line in done.stdout.splitlines() if line.startswith("Again:"))
    _, program, *words = shlex.split(again)
    assert program == "parallel-core"
    return words


def test_a_run_that_chose_its_size_ends_with_the_command_that_repeats_it(
    program: RunProgram, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    given = shlex.split("--backend numpy --threads 1 --budget 0.5 --rounds 2")
    done = program("run", "parallel", *given, f"--json={path}", "--guess=1")
    assert done.returncode in MEASURED, done.stderr
    parameters = json.loads(path.read_text())["parameters"]
    words = repeating(done)
    assert words == ["run", "parallel", *given, "--size", str(parameters["size"])]
    repeated = program(*words, f"--json={path}")
    assert repeated.returncode in MEASURED, repeated.stderr
    assert json.loads(path.read_text())["parameters"] == parameters
    assert "Again:" not in repeated.stdout


ENGINE = """
from backends.numpy.backend import NumPyBackend

class MyEngine:
    def __init__(self, devices, kind, engine, threads):
        self.inner = NumPyBackend(devices, kind, engine, threads)
    def __getattr__(self, name):
        return getattr(self.inner, name)
"""


def test_the_command_that_repeats_a_run_names_an_engine_s_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "engine.py").write_text(ENGINE)
    backend = "queue/engine.py:MyEngine"
    # In separate processes, where the engine becomes known by its name.
    done = run("run", "parallel", "--backend", backend, "--budget=0.5", "--rounds=2")
    assert done.returncode in MEASURED, done.stderr
    words = repeating(done)
    assert words[words.index("--backend") + 1] == backend
    repeated = run(*words)
    assert repeated.returncode in MEASURED, repeated.stderr


def test_all_is_written_before_profiling(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    written: list[object] = []

    def record_instead(_: Backend, result: Result, *__: object) -> None:
        written.append(json.loads(path.read_text()))
        assert written == [json.loads(json.dumps(result.as_json()))]
        assert all(len(case.seconds) == 2 and case.again for case in result.cases)

    module = "parallel_core.command_line.run.one_backend"
    monkeypatch.setattr(f"{module}.record_and_draw", record_instead)
    monkeypatch.setattr(f"{module}.check_profiler", lambda _: None)
    files = (f"--json={path}", f"--trace={tmp_path}/trace.json")
    done = program(*SMALL, "--backend=numpy", *files)
    assert len(written) == 1, done.stderr
    assert json.loads(path.read_text()) == written[0]


def test_a_worker_measures_even_if_it_cannot_be_profiled(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    options = {"backend": "numpy", "device_kind": "cpu", "size": 64, "rounds": 2, "trace": path}
    result = measure_elsewhere("parallel", options)
    assert result.experiment == "parallel"
    assert not path.exists()
    assert (tmp_path / "trace.txt").read_text().startswith("numpy has no profiler")


@pytest.mark.long
def test_several_backends_do_the_same_work_each_on_its_own_python(tmp_path: Path) -> None:
    path, other = tmp_path / "both.json", tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    done = run(*PARALLEL, "--backend=numpy,torch", f"--python=torch={other}", f"--json={path}")
    assert done.returncode in MEASURED, done.stderr
    answer = " ".join(done.stdout.split())
    torch, numpy = "PyTorch + our queues", "NumPy without queues"
    assert answer.startswith(f"{numpy} and {torch}: ")
    assert answer.count("What would change it: ") == 1
    for heading in (f"{torch} against {numpy}: ", f"{numpy}: ", f"{torch}: "):
        assert heading in answer
    cells = json.loads(path.read_text())["cells"]
    of_numpy, of_torch = cells
    assert (of_numpy["backend"], of_numpy["engine"]) == ("numpy", "sync")
    assert (of_torch["backend"], of_torch["engine"]) == ("torch", "async")
    for result in (*of_numpy["results"], *of_torch["results"]):
        assert result["parameters"]["size"] == 64
    # Only the processes of PyTorch run on it, and whoever looks whether they can.
    _, *started = (tmp_path / "asked").read_text().splitlines()
    assert len(started) == len(of_torch["results"])
    assert all(words.startswith(f"-P -m {WORKER}") for words in started)


Train = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def train(program: RunProgram, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Train on a few images; a file may be no longer than `most`, as if the disk became full in a
    write.
    """
    data = synthetic("a test needs no more", train=40, test=5)
    monkeypatch.setattr(program_arguments, "load_fashion_mnist", lambda _: data)
    training = shlex.split("run data-parallel --backend numpy --batch-size 16 --json -")

    def start(*arguments: str, most: int | None = None) -> "subprocess.CompletedProcess[str]":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most or before[0], before[1]))
            return program(*training, *arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return start


def said(done: "subprocess.CompletedProcess[str]") -> str:
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("parallel-core: "))
    return line.removeprefix("parallel-core: ")


def test_a_job_that_is_started_again_and_again_with_the_same_options_gets_there(
    train: Train, tmp_path: Path
) -> None:
    folder = tmp_path / "made" / "with those above"
    options = (f"--checkpoint={folder}", "--checkpoint-steps=2", "--resume")
    first = train("--epochs=1", *options)
    assert first.returncode == 0, first.stderr
    assert said(first) == f"no checkpoint in {folder} yet: training starts from the beginning"
    second = train("--epochs=2", *options)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["notes"][0]["code"] == "from-checkpoint"
    assert [entry.name for entry in folder.iterdir()] == [FILE]


def test_bad_requests_full_disks_and_damaged_files_are_one_line_each(
    train: Train, tmp_path: Path
) -> None:
    path, kept = tmp_path / FILE, f"--checkpoint={tmp_path}"
    options = ("--epochs=2", kept)
    full = train(*options, most=100_000)
    assert (full.returncode, [*tmp_path.iterdir()]) == (1, [])
    assert said(full).startswith(f"cannot write {path} (")
    assert "there is no older one" in said(full)
    assert train("--epochs=1", kept).returncode == 0
    old = path.read_bytes()
    full = train(*options, "--resume", most=100_000)
    assert (full.returncode, [*tmp_path.iterdir()], path.read_bytes()) == (1, [path], old)
    assert "the older one is whole" in said(full)
    done = train(*options)
    assert done.returncode == 2
    assert said(done).startswith(f"{path} exists: add --resume")
    path.write_bytes(old[:-1000])
    done = train(*options, "--resume")
    assert done.returncode == 1
    assert said(done).startswith(f"{path} is no whole checkpoint (")


Asked = Callable[[str], Job]
LAUNCHED = "-- run data-parallel --epochs 2"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return the job that a command line asks the launcher for."""
    jobs: list[Job] = []
    # The command stands in the place of its module.
    module = sys.modules["parallel_core.command_line.launch"]
    monkeypatch.setattr(module, "launch_job", jobs.append)

    def launched(line: str) -> Job:
        launch.main(line.split(), standalone_mode=False)
        return jobs[-1]

    return launched


def test_the_command_of_each_rank_is_our_own_program_with_its_backend(asked: Asked) -> None:
    job = asked(f"--processes 3 --backend torch {LAUNCHED}")
    program = (sys.executable, *shlex.split("-P -m parallel_core run data-parallel --epochs 2"))
    assert job.command == (*program, "--backend", "torch")
    assert (job.processes, job.backend, job.timeout) == (3, "torch", 30.0)
    assert job.port > 0
    job = asked(f"--processes 3 {LAUNCHED} --backend=torch")
    assert job.command == (*program, "--backend=torch")
