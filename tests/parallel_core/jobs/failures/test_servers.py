"""MXNet's server has no successor: if it dies, the job ends. Scheduler and server by hand: `rank/test_joining.py`."""

import socket
from collections.abc import Callable
from pathlib import Path

from tests.parallel_core.jobs.failures.jobs import start


def test_a_server_that_is_killed(require: Callable[[str], None], tmp_path: Path) -> None:
    require("mxnet")
    with start("only_tells", "mxnet", tmp_path) as job:
        job.wait_for_fault()
        (server,) = job.processes(DMLC_ROLE="server")
        server.kill()
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"server 0 on {socket.gethostname()} was killed by SIGKILL ")
