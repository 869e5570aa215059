"""MXNet's scheduler and server have no successor: where one dies the job ends."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parallel_core.jobs.failures.jobs import start


@pytest.mark.parametrize(("role", "name"), [("server", "server 0"), ("scheduler", "scheduler")])
def test_one_that_is_killed(role: str, name: str, require: Callable[[str], None], tmp_path: Path) -> None:
    require("mxnet")
    with start("only_tells", "mxnet", tmp_path) as job:
        job.wait_for_fault()
        (server,) = job.processes(DMLC_ROLE=role)
        server.kill()
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"{name} on {socket.gethostname()} was killed by SIGKILL ")
