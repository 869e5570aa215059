"""A launcher that is interrupted or killed writes one line if it can, and leaves no process behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.parallel_core.jobs.ranks import are_gone, start_launcher, wait_for_lines

# A child of the rank's own is to go as well.
BUSY = "note(subprocess.Popen(['sleep', '1000']).pid); note(os.getpid()); join()\nwait()"


@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGHUP,), (signal.SIGINT, signal.SIGINT, signal.SIGTERM)],
    ids=str,
)
def test_a_signal_to_the_launcher_ends_all_and_is_reported_in_one_line(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    with start_launcher(BUSY, str(tmp_path / "pids")) as launcher:
        pids = wait_for_lines(4, tmp_path / "pids")
        # What is typed at the terminal reaches the launcher only.
        sessions = {os.getsid(int(pid)) for pid in pids}
        assert len(sessions) == 2
        assert os.getsid(launcher.pid) not in sessions
        for number in numbers:
            launcher.send_signal(number)
            time.sleep(0.02)
        output, errors = launcher.communicate(timeout=20)
    # Of several that arrive while the launcher has no core, any may be the first.
    name = signal.Signals(launcher.returncode - 128).name
    assert (name in [number.name for number in numbers], output) == (True, b"")
    assert errors.decode() == f"parallel-core: interrupted by {name}: all processes were ended\n"
    assert are_gone(pids)


STOPPED = """
from parallel_core.jobs.rank import leave_with_starter
leave_with_starter(); note(os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize(("code", "processes"), [(BUSY, 4), (STOPPED, 2)])
def test_nothing_is_left_when_the_launcher_is_killed(code: str, processes: int, tmp_path: Path) -> None:
    with start_launcher(code, str(tmp_path / "pids")) as launcher:
        pids = wait_for_lines(processes, tmp_path / "pids")
        launcher.kill()
        launcher.communicate(timeout=20)
    assert are_gone(pids)
