"""Processes under a deadline: what they say is kept, and nothing of them is left, whatever they do."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from parallel_core.system.subprocesses import Outcome, supervise

# Prints the number of a grandchild that would sleep for ever, and does not wait for it.
GRANDCHILD = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid, flush=True)"


def run(code: str, cores: set[int] | None = None) -> Outcome:
    return asyncio.run(supervise([sys.executable, "-c", code], 30, cores or set()))


def is_gone(pid: int) -> bool:
    # A killed process stays in the table until init has taken note of it.
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_output_errors_and_status_are_returned() -> None:
    """Much output does not block."""
    found = run("import sys; print('x' * 3_000_000); print('trouble', file=sys.stderr); sys.exit(3)")
    assert (found.status, len(found.output), found.errors, found.timed_out) == (3, 3_000_001, "trouble\n", False)
    assert found.reason(30) == "trouble"


def test_a_process_that_hangs_is_killed_with_its_group() -> None:
    # A shell is there at once, and the deadline can be short.
    found = asyncio.run(supervise(["sh", "-c", "sleep 1000 & echo $!; wait"], 1, set()))
    assert found.timed_out
    assert found.reason(1) == "gave no result within 1 s and was killed"
    assert is_gone(int(found.output))


def test_a_process_that_ends_leaves_no_grandchild() -> None:
    found = run(GRANDCHILD)
    assert (found.status, found.timed_out) == (0, False)
    assert is_gone(int(found.output))


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


def test_cancelling_kills_the_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(f'{{os.getpid()}}.'); time.sleep(1000)"

    async def cancel() -> None:
        task = asyncio.create_task(supervise([sys.executable, "-c", code], 100, set()))
        while not note.exists() or not note.read_text().endswith("."):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert is_gone(int(note.read_text().rstrip(".")))
