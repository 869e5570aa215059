"""Ranks that cannot meet: one does not come, or the place is taken."""

import re
import socket
from pathlib import Path

from tests.parallel_core.jobs.failures.jobs import DEADLINE, start

HOST = socket.gethostname()


def test_a_rank_that_never_joins(framework: str, tmp_path: Path) -> None:
    with start("never_comes", framework, tmp_path, deadline=DEADLINE) as job:
        ended = job.end()
    assert ended.status == 1
    assert re.match(rf"rank 1 on {HOST} has not joined within \d+ s$", ended.verdict)


def test_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with start("only_tells", "torch", tmp_path, options=["--port", port]) as job:
            ended = job.end()
    assert ended.status == 1
    assert port in ended.verdict
    assert "in use" in ended.verdict


def test_a_port_that_is_taken_while_the_job_starts(framework: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with start("finds_its_port_taken", framework, tmp_path, options=["--port", port]) as job:
            ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"{'scheduler' if framework == 'mxnet' else 'rank 0'} on {HOST}")
    assert port in ended.verdict
