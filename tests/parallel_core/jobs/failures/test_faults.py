"""Ranks of real frameworks in which something goes wrong: the job ends with one line that names who, how and when.

Other ends are in `test_launcher.py`, signals to the launcher in `test_signals.py`.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from backends.registry import package_version
from tests.conftest import FRAMEWORKS, reason_against
from tests.parallel_core.jobs.failures.jobs import DEADLINE, ENDING_SECONDS, Ended, start
from tests.parallel_core.jobs.ranks import wait_until

pytestmark = pytest.mark.long

LISTENERS = {"jax": 2, "torch": 3, "mxnet": 4}
"""JAX: each rank for the others. PyTorch: the store too. MXNet: a scheduler, a server and two workers."""
LONG = ("run", "data-parallel", "--epochs", "10000")


def failed(ended: Ended, pattern: str) -> None:
    assert ended.status == 1
    assert re.match(pattern, ended.verdict), ended.verdict


def test_a_rank_that_is_killed(framework_name: str, tmp_path: Path) -> None:
    with start("is_killed", framework_name, tmp_path) as job:
        failed(job.end(), "rank 1 was killed by SIGKILL ")


@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        ("hangs", r"rank 1 made no progress for \d+ s after epoch 1, step 1"),
        ("never_comes", r"rank 1 did not join within \d+ s$"),
    ],
)
def test_a_rank_that_is_waited_for(fault: str, pattern: str, tmp_path: Path) -> None:
    """The jobs of all frameworks run at once, because they wait for their deadline."""
    with ExitStack() as jobs:
        under_way = [
            jobs.enter_context(start(fault, framework, tmp_path / framework, deadline=DEADLINE))
            for framework in FRAMEWORKS
            if not reason_against(framework)
        ]
        for ended in [job.end() for job in under_way]:
            failed(ended, pattern)
            # The stacks of all ranks are shown; that of the culprit names the function in which it hangs.
            _, _, stacks = ended.errors.partition("── stacks of rank 1 ──")
            assert ("in hang_here" in stacks) is (fault == "hangs")


@pytest.mark.parametrize(("role", "name"), [("scheduler", "scheduler"), ("server", "server 0")])
def test_a_scheduler_or_server_of_mxnet_s_that_is_killed(
    role: str, name: str, require: Callable[[str], None], tmp_path: Path
) -> None:
    require("mxnet")
    with start("only_tells", "mxnet", tmp_path) as job:
        job.wait_for_fault()
        (process,) = job.processes(DMLC_ROLE=role)
        process.kill()
        failed(job.end(), f"{name} was killed by SIGKILL ")


def test_a_port_that_is_taken_while_the_job_starts(framework_name: str, tmp_path: Path) -> None:
    """A port that is taken before is in `test_launch.py`."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with start(
            "finds_its_port_taken", framework_name, tmp_path, options=("--processes", "2", "--port", port)
        ) as job:
            failed(job.end(), f"{'scheduler' if framework_name == 'mxnet' else 'rank 0'}.*{port}")


def test_a_job_listens_on_loopback_alone_and_leaves_when_its_launcher_is_killed(
    framework_name: str, tmp_path: Path
) -> None:
    """What the frameworks speak is not authenticated. One rank hangs, and the other waits for it inside a framework."""
    with start("hangs", framework_name, tmp_path, training=LONG) as job:
        job.wait_for_fault()
        addresses = [
            connection.laddr.ip
            for process in job.processes()
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert len(addresses) >= LISTENERS[framework_name]
        assert all(ipaddress.ip_address(address).is_loopback for address in addresses), addresses
        # Ranks, scheduler and server must leave by themselves.
        job.process.kill()
        wait_until(lambda: not job.processes(), ENDING_SECONDS)


# The same code compares what ranks join with, and their data (`rank/test_rank.py`), on every framework.
@pytest.mark.parametrize(
    ("fault", "backend", "words"),
    [
        ("is_of_another_version", "torch", ("parallel-core", package_version(), "0.0.9")),
        ("has_other_options", "torch", ("lr", "0.2", "0.3")),
        *(
            ("says_other_shapes", backend, ("exchange 3 sums", "float32 [128], float32 [128, 10] on rank 1"))
            for backend in LISTENERS
        ),
    ],
)
def test_ranks_that_differ_fail_before_they_sum_anything(
    fault: str, backend: str, words: Sequence[str], require: Callable[[str], None], tmp_path: Path
) -> None:
    require(backend)
    with start(fault, backend, tmp_path) as job:
        ended = job.end()
    failed(ended, "rank 0, rank 1: the ranks disagree on ")
    assert all(word in ended.verdict for word in words)
