"""A rank that dies or hangs inside a framework's job ends the job. Other ends are in `test_launcher.py`."""

import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.parallel_core.jobs.failures.jobs import DEADLINE, start

pytestmark = pytest.mark.long

HOST = socket.gethostname()


def test_a_rank_that_is_killed(framework: str, tmp_path: Path) -> None:
    with start("is_killed", framework, tmp_path) as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 1 on {HOST} was killed by SIGKILL ")


def test_a_rank_that_hangs(frameworks: Sequence[str], tmp_path: Path) -> None:
    """The jobs of all frameworks run at once, because they wait for their deadline."""
    with ExitStack() as jobs:
        under_way = [
            jobs.enter_context(start("hangs", framework, tmp_path / framework, deadline=DEADLINE))
            for framework in frameworks
        ]
        for ended in [job.end() for job in under_way]:
            assert ended.status == 1
            assert re.match(rf"rank 1 on {HOST} has made no progress for \d+ s after epoch 1, step 1", ended.verdict)
            # The stacks of all ranks are shown; that of the culprit names the function in which it hangs.
            _, _, stacks = ended.errors.partition(f"── stacks of rank 1 on {HOST} ──")
            assert "in hang_here" in stacks
