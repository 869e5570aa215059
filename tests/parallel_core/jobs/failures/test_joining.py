"""Ranks that cannot meet: one does not come, or the port is taken. A port that is taken before: `test_launch.py`."""

import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.parallel_core.jobs.failures.jobs import DEADLINE, start

pytestmark = pytest.mark.long

HOST = socket.gethostname()


def test_a_rank_that_never_joins(frameworks: Sequence[str], tmp_path: Path) -> None:
    """The jobs of all frameworks run at once, because they wait for their deadline."""
    with ExitStack() as jobs:
        under_way = []
        for framework in frameworks:
            job = start("never_comes", framework, tmp_path / framework, deadline=DEADLINE)
            under_way.append(jobs.enter_context(job))
        for ended in [job.end() for job in under_way]:
            assert ended.status == 1
            assert re.match(rf"rank 1 on {HOST} has not joined within \d+ s$", ended.verdict)


def test_a_port_that_is_taken_while_the_job_starts(framework: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with start("finds_its_port_taken", framework, tmp_path, options=["--port", port]) as job:
            ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"{'scheduler' if framework == 'mxnet' else 'rank 0'} on {HOST}")
    assert port in ended.verdict
