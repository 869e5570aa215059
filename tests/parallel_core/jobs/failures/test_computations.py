"""A computation that fails in one rank, or gives nonsense, ends the job; the rank says what went wrong."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parallel_core.jobs.failures.jobs import TRAINING, start
from tests.parallel_core.jobs.failures.rank import STRUCK

pytestmark = pytest.mark.long

HOST = socket.gethostname()


def test_an_operator_that_fails_on_one_device_of_a_process(framework: str, tmp_path: Path, root: Path) -> None:
    fault = ("tests.parallel_core.jobs.failures.rank", "fails_on_a_device", "alone", "3")
    done = subprocess.run(
        [sys.executable, "-m", *fault, *TRAINING, "--backend", framework],
        cwd=root,
        env={**os.environ, STRUCK: str(tmp_path / "struck")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (tmp_path / "struck").exists()
    assert (done.returncode, done.stdout) == (1, "")
    # MXNet's CUDA build may have said before that it finds no GPU.
    assert re.fullmatch(rf"parallel-core: {framework} on cpu:\d: \w*Error: .*", done.stderr.splitlines()[-1])
    assert done.stderr.count("parallel-core: ") == 1
    assert "Traceback" not in done.stderr


def test_an_operator_that_fails_on_one_device_of_a_rank(framework: str, tmp_path: Path) -> None:
    with start("fails_on_a_device", framework, tmp_path, "--devices", "2") as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 1 on {HOST}: {framework} on cpu:")
    # Not of the other rank, nor of what came after it.
    assert ended.errors.count("parallel-core: ") == 1
    assert ended.output == ""


def test_numbers_that_are_not_finite_on_one_device_of_a_rank(require: Callable[[str], None], tmp_path: Path) -> None:
    require("torch")
    with start("computes_nan", "torch", tmp_path, "--devices", "2") as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 1 on {HOST}: the loss is nan on cpu:2 in epoch 1, step 3 ")
    assert ended.output == ""
