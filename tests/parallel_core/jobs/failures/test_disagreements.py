"""Ranks that were started differently, or do different things, fail before they sum anything."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.registry import package_version
from tests.parallel_core.jobs.failures.jobs import start

pytestmark = pytest.mark.long

HOST = socket.gethostname()


def check(fault: str, framework: str, directory: Path, *words: str) -> None:
    with start(fault, framework, directory) as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 0 on {HOST}, rank 1 on {HOST}: the ranks disagree on ")
    for word in words:
        assert word in ended.verdict


# The same code compares what ranks join with, and their data (`rank/test_shared_inputs.py`), on every framework.
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("is_of_another_version", ("parallel-core", package_version(), "0.0.9")),
        ("has_other_options", ("lr", "0.2", "0.3")),
    ],
)
def test_on_what_they_were_started_with(
    fault: str, words: tuple[str, ...], require: Callable[[str], None], tmp_path: Path
) -> None:
    require("torch")
    check(fault, "torch", tmp_path, *words)


def test_on_the_shapes_of_an_exchange(framework: str, tmp_path: Path) -> None:
    check("says_other_shapes", framework, tmp_path, "exchange 3 sums", "float32 [128], float32 [128, 10] on rank 1")
