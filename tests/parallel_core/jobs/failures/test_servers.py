"""MXNet's scheduler and servers have no successors: if one dies, the job ends. By hand: `rank/test_joining.py`."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parallel_core.jobs.failures.jobs import start

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("role", "name"), [("scheduler", "scheduler"), ("server", "server 0")])
def test_a_scheduler_or_server_that_is_killed(
    role: str, name: str, require: Callable[[str], None], tmp_path: Path
) -> None:
    require("mxnet")
    with start("only_tells", "mxnet", tmp_path) as job:
        job.wait_for_fault()
        (process,) = job.processes(DMLC_ROLE=role)
        process.kill()
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"{name} on {socket.gethostname()} was killed by SIGKILL ")
