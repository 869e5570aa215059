"""The launcher ends everything where it is told to end, and where it is killed itself."""

import signal
from pathlib import Path

import pytest

from tests.faults.jobs import ENDING_SECONDS, start

LONG = ("run", "data-parallel", "--epochs", "100")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_launcher_is_told_to_end(framework: str, tmp_path: Path, number: signal.Signals) -> None:
    with start("only_tells", framework, tmp_path, training=LONG) as job:
        job.wait_for_fault()
        job.process.send_signal(number)
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"interrupted by {number.name}: all processes were ended")


def test_nothing_survives_a_launcher_that_is_killed(framework: str, tmp_path: Path) -> None:
    with start("only_tells", framework, tmp_path, training=LONG) as job:
        job.wait_for_fault()
        job.process.kill()
        job.wait_until(lambda: not job.processes(), job.deadline + ENDING_SECONDS)


def test_nothing_survives_a_launcher_that_is_killed_while_a_rank_hangs(framework: str, tmp_path: Path) -> None:
    with start("hangs", framework, tmp_path, training=LONG) as job:
        job.wait_for_fault()
        job.process.kill()
        job.wait_until(lambda: not job.processes(), job.deadline + ENDING_SECONDS)
