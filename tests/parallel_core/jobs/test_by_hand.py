"""Processes of MXNet that users start by hand train, and end when a part dies."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from backends.process_groups.addresses import free_port
from tests.parallel_core.jobs.ranks import wait_until
from tests.parallel_core.training.test_steps import numpy_losses

pytestmark = pytest.mark.long

HOST = socket.gethostname()
RUN = ("-m", "parallel_core", "run", "data-parallel", "--epochs", "1", "--batch-size", "24")
DEADLINE = "30"
PATIENCE = 120
Job = Mapping[str, "subprocess.Popen[bytes]"]


def place(workers: int, deadline: str = DEADLINE) -> dict[str, str]:
    """Return the variables of a job on this machine."""
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
    with log.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, *RUN, *options],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


@contextmanager
def started(directory: Path, workers: int, *options: str, deadline: str = DEADLINE) -> Iterator[Job]:
    """Start a scheduler, a server and workers by hand, and kill at the end what is left of them."""
    environment = place(workers, deadline)
    parts = ("scheduler", "server", *(f"worker {number}" for number in range(workers)))
    directory.mkdir()
    processes = {
        part: start(directory / part, {**environment, "DMLC_ROLE": part.split()[0]}, "--backend", "mxnet", *options)
        for part in parts
    }
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def our_lines(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith("parallel-core: ")]


def test_a_job_started_by_hand_trains_as_one_process_does(require: Callable[[str], None], tmp_path: Path) -> None:
    require("mxnet")
    result, logs = tmp_path / "result.json", tmp_path / "logs"
    with started(logs, 2, "--limit", "2", "--json", str(result), deadline="60") as job:
        statuses = {part: process.wait(PATIENCE) for part, process in job.items()}
    assert statuses == dict.fromkeys(job, 0), [log.read_text() for log in logs.iterdir()]
    written = json.loads(result.read_text())
    assert (written["backend"]["processes"], written["backend"]["transport"]) == (2, "dist_sync")
    np.testing.assert_allclose(written["series"]["loss"], numpy_losses(24, steps=2), rtol=1e-4)


def test_when_a_part_dies_every_other_process_ends(require: Callable[[str], None], tmp_path: Path) -> None:
    """The jobs run at once, because most of the time they wait."""
    require("mxnet")
    with ExitStack() as jobs:
        under_way = {}
        for victim, workers in (("scheduler", 1), ("server", 1), ("worker 1", 2)):
            keep = ("--checkpoint", str(tmp_path / f"kept {victim}"), "--checkpoint-steps", "1")
            under_way[victim] = jobs.enter_context(started(tmp_path / victim, workers, *keep))
        for victim, job in under_way.items():
            kept = tmp_path / f"kept {victim}"
            wait_until(lambda kept=kept: any(kept.glob("*.npz")))
            job[victim].kill()
        for victim, job in under_way.items():
            for part in job.keys() - {victim}:
                assert job[part].wait(PATIENCE) == 1, (victim, part)
                (line,) = our_lines(tmp_path / victim / part)
                who = "a worker of" if part.startswith("worker") else f"the {part} on {HOST}"
                assert line.startswith(f"parallel-core: {who} ")
                assert "made no progress for" in line


def test_a_server_that_is_sent_nothing_ends_though_all_are_there(
    require: Callable[[str], None], tmp_path: Path
) -> None:
    require("mxnet")
    kept = tmp_path / "kept"
    with started(tmp_path / "logs", 1, "--checkpoint", str(kept), "--checkpoint-steps", "1", deadline="30") as job:
        wait_until(lambda: any(kept.glob("*.npz")))
        job["worker 0"].send_signal(signal.SIGSTOP)
        assert [job[part].wait(PATIENCE) for part in ("server", "scheduler")] == [1, 1]
    (line,) = our_lines(tmp_path / "logs" / "server")
    assert line.endswith("made no progress for 30 s: no worker has sent anything")


def test_a_worker_whose_scheduler_never_comes_ends(require: Callable[[str], None], tmp_path: Path) -> None:
    require("mxnet")
    worker = start(tmp_path / "log", {**place(2, "1"), "DMLC_ROLE": "worker"}, "--backend", "mxnet")
    assert worker.wait(PATIENCE) == 1
    (line,) = our_lines(tmp_path / "log")
    assert line.startswith(
        f"parallel-core: a worker of 2 on {HOST} made no progress for 3 s: not all ranks have joined"
    )


def test_a_server_of_another_framework_s_is_refused_in_one_line(tmp_path: Path) -> None:
    process = start(tmp_path / "log", {**place(1), "DMLC_ROLE": "server"}, "--backend", "torch")
    assert process.wait(PATIENCE) == 2
    (said,) = (tmp_path / "log").read_text().splitlines()
    assert said.startswith("parallel-core: ")
    assert "DMLC_ROLE=server makes this a process of MXNet's, and the backend is torch" in said
