"""A computation that fails in one rank, or gives nonsense, ends the job; the rank says what went wrong."""

import socket
from pathlib import Path

from tests.faults.jobs import start

HOST = socket.gethostname()


def test_an_operator_that_fails_on_one_device_of_a_rank(framework: str, tmp_path: Path) -> None:
    with start("fails_on_a_device", framework, tmp_path, "--devices", "2") as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 1 on {HOST}: {framework} on cpu:")
    assert ended.errors.count("Error") == 1
    assert ended.output == ""


def test_numbers_that_are_not_finite_on_one_device_of_a_rank(framework: str, tmp_path: Path) -> None:
    with start("computes_nan", framework, tmp_path, "--devices", "2") as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 1 on {HOST}: the loss is nan on cpu:2 in epoch 1, step 3 ")
    assert ended.output == ""
