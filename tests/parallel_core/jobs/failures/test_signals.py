"""The launcher ends everything where it is told to, and nothing outlives a launcher or an agent that is killed."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.parallel_core.jobs.failures.jobs import ENDING_SECONDS, start

LONG = ("run", "data-parallel", "--epochs", "10000")


# How ranks are ended has nothing to do with the signal.
@pytest.mark.parametrize(("framework", "number"), [("mxnet", signal.SIGINT), ("torch", signal.SIGTERM)])
def test_the_launcher_is_told_to_end(
    framework: str, number: signal.Signals, require: Callable[[str], None], tmp_path: Path
) -> None:
    require(framework)
    with start("only_tells", framework, tmp_path, training=LONG) as job:
        job.wait_for_fault()
        job.process.send_signal(number)
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"interrupted by {number.name}: all processes were ended")


def test_nothing_survives_a_launcher_that_is_killed(framework: str, tmp_path: Path) -> None:
    """Neither a rank that hangs, nor one that waits for it inside a framework."""
    with start("hangs", framework, tmp_path, training=LONG) as job:
        job.wait_for_fault()
        job.process.kill()
        job.wait_until(lambda: not job.processes(), job.deadline + ENDING_SECONDS)


def test_nothing_survives_an_agent_that_is_killed(require: Callable[[str], None], tmp_path: Path) -> None:
    """Nobody is left to end its processes, so they leave by themselves: ranks, scheduler and server."""
    require("mxnet")
    with start("hangs", "mxnet", tmp_path, training=LONG) as job:
        job.wait_for_fault()
        (agent,) = psutil.Process(job.process.pid).children()
        agent.kill()
        job.wait_until(lambda: not job.processes(), job.deadline + ENDING_SECONDS)
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"the agent on {socket.gethostname()} ended by itself: it was killed")
