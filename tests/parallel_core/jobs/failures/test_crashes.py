"""A rank that dies or hangs ends the job, which says which one, where, and what happened."""

import re
import socket
from pathlib import Path

from tests.parallel_core.jobs.failures.jobs import DEADLINE, start

HOST = socket.gethostname()


def test_a_rank_that_exits(framework: str, tmp_path: Path) -> None:
    with start("exits", framework, tmp_path) as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 1 on {HOST} ended with status 3 ")


def test_a_rank_that_is_killed(framework: str, tmp_path: Path) -> None:
    with start("is_killed", framework, tmp_path) as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 1 on {HOST} was killed by SIGKILL ")


def test_a_rank_that_hangs(framework: str, tmp_path: Path) -> None:
    with start("hangs", framework, tmp_path, deadline=DEADLINE) as job:
        ended = job.end()
    assert ended.status == 1
    assert re.match(rf"rank 1 on {HOST} has made no progress for \d+ s after epoch 1, step 1", ended.verdict)
    # The stacks of all ranks; the one that hangs names the function that it hangs in.
    _, _, stacks = ended.errors.partition(f"── stacks of rank 1 on {HOST} ──")
    assert "in hang_here" in stacks
