"""Ranks of real frameworks in which something goes wrong: they say what, and the job ends with a
line that names one.

Computations and memory fail, and nothing is half written. Ranks without a framework are in
`test_launcher.py`.
"""

import ipaddress
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest

import backends
from parallel_core.training.batches import Settings
from parallel_core.training.lenet import initial_parameters
from tests.conftest import Require
from tests.parallel_core.jobs.faulty_rank import STRUCK, synthetic_images
from tests.parallel_core.jobs.ranks import wait_until
from tests.parallel_core.training.test_steps import first_epoch
from tests.tree import ROOT

pytestmark = pytest.mark.long

HOST = re.escape(socket.gethostname())
MARK = "PARALLEL_CORE_TEST_JOB"
DEADLINE = 40
"""Seconds without progress after which a job is given up, if a test waits for that."""
PATIENCE = 30
"""The same if the launcher must notice a fault at once."""
ENDING_SECONDS = 90
"""What a job may take from its deadline to its end."""
GONE_SECONDS = 10
STEPS = 6
BATCH_SIZE = 16
TRAINING = f"run data-parallel --epochs 1 --limit {STEPS} --batch-size {BATCH_SIZE}".split()
FAULTY = (sys.executable, "-m", "tests.parallel_core.jobs.faulty_rank")


class Ended(NamedTuple):
    """What became of a job's launcher."""

    status: int
    output: str
    errors: str

    def assert_failed(self, end: str, said: str = "") -> None:
        """Assert that there is no result, what the launcher says at the end, and what a process
        said before.
        """
        assert (self.status, self.output) == (1, "")
        assert re.match(f"parallel-core: {end}", self.errors.splitlines()[-1]), self.errors
        assert re.search(f"parallel-core: {said}", self.errors), self.errors


class Job(NamedTuple):
    """A job under way. All its processes have a mark in their environment; it writes its files into
    `directory`.
    """

    process: "subprocess.Popen[bytes]"
    directory: Path
    deadline: int
    mark: str

    @property
    def files(self) -> Path:
        """The directory that results and checkpoints of the job go to."""
        return self.directory / "files"

    def wait_for_fault(self) -> None:
        """Wait until the fault has happened, or the job has ended."""
        wait_until(lambda: (self.directory / "struck").exists() or self.process.poll() is not None)

    def end(self) -> Ended:
        """Wait for the end of a job whose fault is to happen, and check what must be true of every
        job that failed.
        """
        self.wait_for_fault()
        status = self.process.wait(self.deadline + ENDING_SECONDS)
        assert self.processes() == []
        output = (self.directory / "output").read_text()
        return Ended(status, output, (self.directory / "errors").read_text())

    def processes(self) -> Sequence[psutil.Process]:
        """List the job's processes that run."""
        running = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_marked = process.environ().get(MARK) == self.mark
                if is_marked and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(process)
        return running


def synthetic_losses(batch_size: int, steps: int) -> Sequence[float]:
    """Return NumPy's losses of one process, on the images that the ranks of these jobs have."""
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    return first_epoch(reference, synthetic_images(), Settings(1, batch_size, limit=steps)).losses


@contextmanager
def start(
    fault: str,
    backend: str,
    directory: Path,
    *more: str,
    at: int = 3,
    deadline: int = PATIENCE,
    options: Sequence[str] = ("--processes=2",),
) -> Iterator[Job]:
    """Launch ranks, in one of which something goes wrong; nothing of them is left afterwards.

    `more` are options of the run, and `options` those of the launcher. The fault is at exchange
    `at` of rank 1.
    """
    files, mark = directory / "files", uuid.uuid4().hex
    files.mkdir(parents=True, exist_ok=True)
    launch = f"{fault} {at} launch --backend {backend} --timeout {deadline}".split()
    written = f"--json={files}/result.json"
    command = [*FAULTY, *launch, *options, "--", *TRAINING, *more, written]
    # A line stays a line.
    variables = {MARK: mark, STRUCK: str(directory / "struck"), "COLUMNS": "1000"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    with (directory / "output").open("wb") as output, (directory / "errors").open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=errors)
    job = Job(process, directory, deadline, mark)
    try:
        yield job
    finally:
        for left in job.processes():
            left.kill()
        process.wait(GONE_SECONDS)


BETWEEN_PROCESSES = ("mxnet", "torch")
"""The frameworks that run on several processes."""
LISTENERS = {"torch": 3, "mxnet": 4}
"""PyTorch: each rank for the other one, and the store. MXNet: a scheduler, a server and two
workers.
"""
NO_PROGRESS = f"made no progress for {DEADLINE + 2} s"
FAILED = "rank [01] ended with status 1$"
DISAGREE = f"rank 0 on {HOST}: the ranks disagree on "


@pytest.mark.parametrize(
    ("fault", "backend", "said"),
    [
        ("fails_on_a_device", "mxnet", f"rank 1 on {HOST}: mxnet on cpu:"),
        ("computes_nan", "torch", "rank 1 .*: the loss is nan on cpu:2 in epoch 1, step 3 "),
        # The same code compares what ranks join with, and their data (`test_rank.py`).
        ("is_of_another_version", "torch", rf"{DISAGREE}.*parallel-core.*0\.0\.9"),
        ("has_other_options", "torch", rf"{DISAGREE}.*lr.*0\.2.*0\.3"),
        (
            "says_other_shapes",
            "mxnet",
            rf"{DISAGREE}.*exchange 3 sums.*float32 \[128\], float32 \[128, 10\] on rank 1",
        ),
    ],
)
def test_a_fault_in_one_rank_ends_the_job(
    fault: str, backend: str, said: str, require: Require, tmp_path: Path
) -> None:
    require(backend)
    with start(fault, backend, tmp_path, "--devices=2") as job:
        job.end().assert_failed(FAILED, said)


@pytest.mark.parametrize(
    ("fault", "backend", "said"),
    [
        ("hangs", "mxnet", f"rank 1 of 2 on {HOST} {NO_PROGRESS}: it has launched 2 exchanges"),
        ("never_comes", "torch", f"rank 0 .*on {HOST}.* join"),
    ],
)
def test_a_rank_that_is_waited_for(
    fault: str, backend: str, said: str, require: Require, tmp_path: Path
) -> None:
    require(backend)
    with start(fault, backend, tmp_path, deadline=DEADLINE) as job:
        ended = job.end()
    ended.assert_failed(FAILED, said)
    # The stacks of rank 1 name the function in which it hangs.
    is_named = bool(re.search(r"\[rank 1\] .* in hang_here", ended.errors))
    assert is_named is (fault == "hangs")


@pytest.mark.parametrize("backend", BETWEEN_PROCESSES)
def test_a_job_listens_on_loopback_alone_and_ends_with_its_launcher(
    backend: str, require: Require, tmp_path: Path
) -> None:
    """What the frameworks speak is not authenticated. One rank hangs, and the other waits for it
    inside a framework.
    """
    require(backend)
    with start("hangs", backend, tmp_path) as job:
        job.wait_for_fault()
        connections = []
        for process in job.processes():
            connections += process.net_connections("inet")
        addresses = [
            connection.laddr.ip
            for connection in connections
            if connection.status == psutil.CONN_LISTEN
        ]
        assert len(addresses) >= LISTENERS[backend]
        assert all(ipaddress.ip_address(address).is_loopback for address in addresses), addresses
        # Ranks, scheduler and server must leave by themselves.
        job.process.kill()
        wait_until(lambda: not job.processes(), ENDING_SECONDS)


def test_a_job_that_is_launched_again_gives_the_losses_of_an_undisturbed_one(
    require: Require, tmp_path: Path
) -> None:
    """A rank reaches its memory limit; the next job goes on from the checkpoint."""
    require("mxnet")
    keep = (f"--checkpoint={tmp_path}/files", "--checkpoint-steps=2", "--resume")
    with start("runs_out_of_memory", "mxnet", tmp_path, *keep, at=4) as job:
        # The framework's own words: std::bad_alloc.
        job.end().assert_failed(FAILED, "rank 1 .*alloc")
        # Rank 0 may have been killed while it wrote the next one, beside the whole one.
        assert {path.name for path in job.files.glob("[!.]*")} == {"checkpoint.npz"}
        (job.files / ".checkpoint.npz.unfinished").touch()
    # No rank is disturbed twice.
    with start("runs_out_of_memory", "mxnet", tmp_path, *keep, at=4) as job:
        ended = job.end()
        losses = json.loads((job.files / "result.json").read_text())["series"]["loss"]
        assert {path.name for path in job.files.iterdir()} == {"checkpoint.npz", "result.json"}
    assert ended.status == 0, ended.errors
    assert len(losses) == STEPS
    np.testing.assert_allclose(losses, synthetic_losses(BATCH_SIZE, STEPS), rtol=1e-4)


@pytest.mark.parametrize(("backend", "unread"), [("torch", "stdout"), ("mxnet", "stderr")])
def test_a_job_ends_though_nobody_reads_what_it_writes(
    backend: str, unread: str, require: Require, tmp_path: Path
) -> None:
    """As in `launch … | true`, and `launch … 2>&1 >/dev/null | true`."""
    require(backend)
    (tmp_path / "struck").touch()
    launch = f"only_tells 3 launch --backend {backend} --processes 2 --"
    command = [*FAULTY, *launch.split(), *TRAINING]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), STRUCK: str(tmp_path / "struck")}
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "written").open("wb") as written:
        outputs = {"stdout": written, "stderr": written, unread: writing}
        ended = subprocess.run(
            command, env=environment, timeout=2 * ENDING_SECONDS, check=False, **outputs
        )  # type: ignore[call-overload]
    os.close(writing)
    assert ended.returncode == 1
    assert "Traceback" not in (tmp_path / "written").read_text()


@pytest.mark.parametrize(("backend", "processes"), [("mxnet", 3), ("torch", 2)])
def test_nothing_fails_with_several_devices_and_uneven_shards(
    backend: str, processes: int, require: Require, tmp_path: Path
) -> None:
    require(backend)
    more = shlex.split("--devices 2 --exchange during --batch-size 27")
    options = (f"--processes={processes}",)
    with start("only_tells", backend, tmp_path, *more, options=options) as job:
        ended = job.end()
        result = json.loads((job.files / "result.json").read_text())
    assert ended.status == 0, ended.errors
    np.testing.assert_allclose(result["series"]["loss"], synthetic_losses(27, STEPS), rtol=1e-4)
    assert result["checks"]["max_replica_difference"] == 0
    assert result["backend"]["processes"] == len(result["backend"]["hosts"]) == processes
    assert result["metrics"]["scaling_efficiency"] > 0
    assert result["metrics"]["exchanged_bytes"] == STEPS * sum(
        array.nbytes for array in initial_parameters()
    )
