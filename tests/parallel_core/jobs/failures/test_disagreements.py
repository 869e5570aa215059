"""Ranks that were started differently, or do different things, are told so before they sum anything."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parallel_core.jobs.failures.jobs import start

HOST = socket.gethostname()


def check(fault: str, framework: str, directory: Path, *words: str) -> None:
    with start(fault, framework, directory) as job:
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 0 on {HOST}, rank 1 on {HOST}: the ranks disagree on ")
    for word in words:
        assert word in ended.verdict


# What is compared when they join is compared by the same code on both.
@pytest.mark.parametrize(
    ("framework", "fault", "words"),
    [
        ("mxnet", "is_of_another_version", ("parallel-core", "0.1.0", "0.0.9")),
        ("torch", "has_other_options", ("lr", "0.2", "0.3")),
    ],
)
def test_on_what_they_were_started_with(
    framework: str, fault: str, words: tuple[str, ...], require: Callable[[str], None], tmp_path: Path
) -> None:
    require(framework)
    check(fault, framework, tmp_path, *words)


def test_on_the_number_of_batches(framework: str, tmp_path: Path) -> None:
    check("has_fewer_images", framework, tmp_path, "the number of training images (1000 on rank 0; 100 on rank 1)")


def test_on_the_shapes_of_an_exchange(framework: str, tmp_path: Path) -> None:
    check("says_other_shapes", framework, tmp_path, "exchange 3 sums", "float32 [128], float32 [128, 10] on rank 1")


def test_on_the_dtypes_of_an_exchange(require: Callable[[str], None], tmp_path: Path) -> None:
    """They are compared together with the shapes."""
    require("torch")
    check("says_other_dtypes", "torch", tmp_path, "exchange 3 sums", "float64 [128, 10], float64 [10] on rank 1")
