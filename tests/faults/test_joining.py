"""Ranks that cannot meet, or that were started differently, are told so before they train."""

import re
import socket
from pathlib import Path

import pytest

from tests.faults.jobs import DEADLINE, start

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


@pytest.mark.parametrize(
    ("fault", "named", "mine", "others"),
    [
        ("is_of_another_version", "parallel-core", "0.1.0", "0.0.9"),
        ("has_other_options", "lr", "0.2", "0.3"),
        ("has_fewer_images", "training images", "60000", "100"),
        ("says_other_shapes", "exchange 3 sums", "[10]", "[128, 10]"),
        ("says_other_dtypes", "exchange 3 sums", "float32", "float64"),
    ],
)
def test_ranks_that_differ(framework: str, tmp_path: Path, fault: str, named: str, mine: str, others: str) -> None:
    with start(fault, framework, tmp_path) as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 0 on {HOST}, rank 1 on {HOST}: the ranks disagree on ")
    for word in (named, mine, others):
        assert word in ended.verdict
