"""Processes under a deadline: what they say is kept, and nothing of them is left, whatever they do."""

import asyncio
import os
import signal
import sys

import pytest

from parallel_core.system.subprocesses import Outcome, supervise
from tests.parallel_core.jobs.ranks import are_gone


def run(code: str, cores: set[int] | None = None) -> Outcome:
    return asyncio.run(supervise([sys.executable, "-c", code], 30, cores or set()))


def test_output_errors_and_status_are_returned() -> None:
    """Much output does not block."""
    found = run("import sys; print('x' * 3_000_000); print('trouble', file=sys.stderr); sys.exit(3)")
    assert (found.status, len(found.output), found.errors, found.timed_out) == (3, 3_000_001, "trouble\n", False)
    assert found.reason(30) == "trouble"


# A shell prints the number of its child, which would sleep for ever, and waits for it, or ends.
@pytest.mark.parametrize(("then", "seconds", "timed_out"), [("wait", 3, True), ("exit 0", 60, False)])
def test_nothing_is_left_of_a_process_that_hangs_or_ends(then: str, seconds: int, timed_out: bool) -> None:
    found = asyncio.run(supervise(["sh", "-c", f"sleep 1000 & echo $!; {then}"], seconds, set()))
    assert found.timed_out == timed_out
    assert (found.reason(seconds) == f"gave no result within {seconds} s and was killed") == timed_out
    assert are_gone([found.output.strip()])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 3)", f"was killed by signal {signal.SIGRTMIN + 3}"),
        ("raise SystemExit(7)", "ended with status 7 and no message"),
    ],
)
def test_how_a_process_ended_is_said(code: str, reason: str) -> None:
    assert run(f"import os, signal; {code}").reason(30) == reason


def test_a_process_keeps_to_the_cores_given() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    assert run("import os; print(os.sched_getaffinity(0))", {core}).output.strip() == str({core})
    assert os.sched_getaffinity(0) == before
