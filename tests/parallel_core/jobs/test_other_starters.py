"""Ranks that others start, by hand, torchrun or mpirun, on one host or two: they train, and end
when a part dies.

Of one that dies or hangs no other is left, and one line names it.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from backends.process_groups.addresses import free_port
from benchmarks.harness.two_hosts import ADDRESSES, TwoHosts
from tests.conftest import Require
from tests.parallel_core.jobs.faulty_rank import STRUCK
from tests.parallel_core.jobs.ranks import wait_until
from tests.parallel_core.jobs.test_faults import (
    BATCH_SIZE,
    STEPS,
    TRAINING,
    synthetic_losses,
)
from tests.parallel_core.training.test_steps import numpy_losses

pytestmark = pytest.mark.long

HOST = socket.gethostname()
RUN = shlex.split("-m parallel_core run data-parallel --epochs 1 --batch-size 24")
PATIENCE = 200
Job = Mapping[str, "subprocess.Popen[bytes]"]


def written_by(result: Path, losses: Sequence[float]) -> dict[str, object]:
    """Return the backend of a result that has these losses."""
    written = json.loads(result.read_text())
    np.testing.assert_allclose(written["series"]["loss"], losses, rtol=1e-4)
    assert written["checks"]["max_replica_difference"] == 0
    return dict(written["backend"])


def place(workers: int, deadline: str = "30") -> dict[str, str]:
    """Return the variables of a job of MXNet's on this machine."""
    return {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port("127.0.0.1")),
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NODE_HOST": "127.0.0.1",
        "PARALLEL_CORE_TIMEOUT": deadline,
    }


def start(log: Path, environment: Mapping[str, str], *options: str) -> "subprocess.Popen[bytes]":
    """Start one process, whose standard error goes to a file."""
    given, none = {**os.environ, **environment}, subprocess.DEVNULL
    with log.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, *RUN, *options], env=given, stdin=none, stdout=none, stderr=errors
        )


@contextmanager
def started(directory: Path, workers: int, *options: str, deadline: str = "30") -> Iterator[Job]:
    """Start a scheduler, a server and workers by hand, and kill at the end what is left of them."""
    environment = place(workers, deadline)
    parts = ("scheduler", "server", *(f"worker {number}" for number in range(workers)))
    directory.mkdir()
    processes = {}
    for part in parts:
        role, *_ = part.split()
        variables = {**environment, "DMLC_ROLE": role}
        processes[part] = start(directory / part, variables, "--backend=mxnet", *options)
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def our_line(log: Path) -> str:
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("parallel-core: ")]
    return line


def test_when_a_part_dies_every_other_process_ends(require: Require, tmp_path: Path) -> None:
    """The jobs run at once, because most of the time they wait."""
    require("mxnet")
    with ExitStack() as jobs:
        under_way = {}
        for victim, workers in (("scheduler", 1), ("server", 1), ("worker 1", 2)):
            keep = (f"--checkpoint={tmp_path}/kept {victim}", "--checkpoint-steps=1")
            under_way[victim] = jobs.enter_context(started(tmp_path / victim, workers, *keep))
        for victim, job in under_way.items():
            kept = tmp_path / f"kept {victim}"
            wait_until(lambda kept=kept: any(kept.glob("*.npz")))
            job[victim].kill()
        for victim, job in under_way.items():
            for part in job.keys() - {victim}:
                assert job[part].wait(PATIENCE) == 1, (victim, part)
                line = our_line(tmp_path / victim / part)
                who = "a worker of" if part.startswith("worker") else f"the {part} on {HOST}"
                assert line.startswith(f"parallel-core: {who} ")
                assert "made no progress for" in line


def test_a_server_that_is_sent_nothing_ends_though_all_are_up(
    require: Require, tmp_path: Path
) -> None:
    require("mxnet")
    kept = tmp_path / "kept"
    with started(tmp_path / "logs", 1, f"--checkpoint={kept}", "--checkpoint-steps=1") as job:
        wait_until(lambda: any(kept.glob("*.npz")))
        job["worker 0"].send_signal(signal.SIGSTOP)
        assert [job[part].wait(PATIENCE) for part in ("server", "scheduler")] == [1, 1]
    line = our_line(tmp_path / "logs" / "server")
    assert line.endswith("made no progress for 30 s: no worker has sent anything")


def test_a_worker_whose_scheduler_never_comes_ends(require: Require, tmp_path: Path) -> None:
    require("mxnet")
    worker = start(tmp_path / "log", {**place(2, "1"), "DMLC_ROLE": "worker"}, "--backend=mxnet")
    assert worker.wait(PATIENCE) == 1
    said = f"a worker of 2 on {HOST} made no progress for 3 s: not all ranks have joined"
    assert our_line(tmp_path / "log").startswith(f"parallel-core: {said}")


def test_a_server_of_another_framework_s_is_refused_in_one_line(tmp_path: Path) -> None:
    process = start(tmp_path / "log", {**place(1), "DMLC_ROLE": "server"}, "--backend=torch")
    assert process.wait(PATIENCE) == 2
    assert "DMLC_ROLE=server makes this a process of MXNet's" in our_line(tmp_path / "log")


def torchrun(*options: str) -> Sequence[str]:
    words = shlex.split("-m torch.distributed.run --standalone --nproc-per-node 2")
    return (sys.executable, *words, *options, "-m")


def mpirun() -> Sequence[str]:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed: apt-get install openmpi-bin")
    words = f"-n 2 -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT={free_port('127.0.0.1')}"
    options = ("--allow-run-as-root", "--oversubscribe", *words.split())
    return ("mpirun", *options, sys.executable, "-m")


def done(
    command: Sequence[str], root: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command until none of its ranks is left: one would hold the pipe open."""
    # What starts the ranks may be a module of this folder.
    given = {**os.environ, "PYTHONPATH": str(root), **environment}
    return subprocess.run(
        command, cwd=root, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def ended(
    starter: Sequence[str], fault: str, root: Path, tmp_path: Path, *options: str
) -> tuple[int, str]:
    """Start two ranks, a fault in rank 1; return the status and standard error."""
    environment = {
        STRUCK: str(tmp_path / "struck"),
        "PARALLEL_CORE_TIMEOUT": "60",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    faulty = ("tests.parallel_core.jobs.faulty_rank", fault, "4")
    run = done([*starter, *faulty, *TRAINING, "--backend=torch", *options], root, **environment)
    assert (tmp_path / "struck").exists()
    return run.returncode, run.stderr


def test_two_ranks_of_mpirun_train_as_one_process_does(
    require: Require, root: Path, tmp_path: Path
) -> None:
    require("torch")
    result = tmp_path / "result.json"
    status, errors = ended(mpirun(), "only_tells", root, tmp_path, f"--json={result}")
    assert status == 0, errors
    backend = written_by(result, synthetic_losses(BATCH_SIZE, STEPS))
    assert (backend["processes"], backend["transport"]) == (2, "gloo")


def test_torchrun_starts_again_from_the_checkpoint(
    require: Require, root: Path, tmp_path: Path
) -> None:
    require("torch")
    result = tmp_path / "result.json"
    keep = f"--checkpoint {tmp_path}/kept --checkpoint-steps 2 --resume --json {result}".split()
    status, errors = ended(torchrun("--max-restarts=1"), "is_killed", root, tmp_path, *keep)
    assert status == 0, errors
    assert written_by(result, synthetic_losses(BATCH_SIZE, STEPS))["processes"] == 2
    assert json.loads(result.read_text())["parameters"]["processes"] == 2


@pytest.mark.parametrize("framework", ["mxnet", "torch"])
def test_ranks_on_two_hosts_train_as_one_process_does(
    framework: str,
    hosts: TwoHosts,
    require: Require,
    root: Path,
    tmp_path: Path,
) -> None:
    """Each host has an address of its own: network namespaces that are joined by a link."""
    require(framework)
    result = tmp_path / "result.json"
    program = (sys.executable, *RUN, "--backend", framework, "--limit=5", f"--json={result}")
    run = done(hosts.ranks(framework, *program), root)
    assert run.returncode == 0, run.stderr
    backend = written_by(result, numpy_losses(24, steps=5))
    assert (backend["processes"], backend["hosts"]) == (2, list(ADDRESSES))
