"""Jobs that end, well or badly: what is passed on, what the last line says, and that nothing of
them is left.
"""

import os
import pty
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from parallel_core.jobs.launcher import launch_job
from parallel_core.system.signals import SHOW_CURSOR
from tests.parallel_core.jobs.ranks import are_gone, job_of, start_launcher, wait_for_lines


class Done(NamedTuple):
    status: int
    output: bytes
    errors: bytes

    @property
    def last_line(self) -> str:
        return self.errors.decode().splitlines()[-1]


Run = Callable[..., Done]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Launch a job of two ranks that run this code."""

    def launched(code: str, *arguments: str | Path) -> Done:
        status = launch_job(job_of(code, *map(str, arguments)))
        return Done(status, *capfdbinary.readouterr())

    return launched


def test_rank_0_is_passed_on_as_it_is_and_the_others_line_by_line(run: Run) -> None:
    done = run(
        r"""
os.write(1, b'{"x": 1}\r\n\xff\x00 no newline' if rank == 0 else b"output\n" * 3)
if rank == 1:
    os.write(2, b"half a "); os.write(2, b"line\n\n\xff")
"""
    )
    assert done.status == 0
    assert done.output == b'{"x": 1}\r\n\xff\x00 no newline'
    lines = [b"output"] * 3 + [b"half a line", b"", b"\xff"]
    assert done.errors == b"".join(b"[rank 1] " + line + b"\n" for line in lines)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "was killed by SIGKILL; the system may have run out of memory",
        ),
        ("os.kill(os.getpid(), signal.SIGTERM)", "was killed by SIGTERM"),
        ("sys.exit(7)", "ended with status 7"),
    ],
)
def test_the_last_line_says_which_rank_failed_and_how(run: Run, end: str, expected: str) -> None:
    # More than fits into a pipe at once.
    done = run(f"if rank == 0: wait()\nos.write(2, b'x' * 350_000)\n{end}")
    assert (done.status, done.output) == (1, b"")
    written, last_line = done.errors.decode().splitlines()
    assert written == "[rank 1] " + "x" * 350_000
    assert last_line.startswith(f"parallel-core: rank 1 {expected}")


def test_a_refusal_is_said_by_the_rank_alone(run: Run) -> None:
    done = run("if rank == 0: wait()\nos.write(2, b'no such set'); sys.exit(2)")
    assert done == (2, b"", b"[rank 1] no such set\n")


CHILD_OF_RANK_1 = "if rank == 1: note(subprocess.Popen(['sleep', '1000']{options}).pid)"


@pytest.mark.parametrize("end", ["", "wait() if rank == 0 else sys.exit(7)"])
def test_a_child_that_holds_the_pipes_keeps_nobody_and_dies_with_the_job(
    run: Run, end: str, tmp_path: Path
) -> None:
    done = run(f"{CHILD_OF_RANK_1.format(options='')}\n{end}", tmp_path / "pids")
    assert done.status == (1 if end else 0)
    assert are_gone(wait_for_lines(1, tmp_path / "pids"))


def test_a_child_in_another_session_keeps_nobody(run: Run, tmp_path: Path) -> None:
    code = CHILD_OF_RANK_1.format(options=", start_new_session=True")
    done = run(f"{code}; print('all')", tmp_path / "pids")
    (pid,) = wait_for_lines(1, tmp_path / "pids")
    os.kill(int(pid), signal.SIGKILL)
    assert done == (0, b"", b"[rank 1] all\n")


# A child of the rank's own is to go as well.
BUSY = "note(subprocess.Popen(['sleep', '1000']).pid); note(os.getpid())\nwait()"
STOPPED = "note(os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)"


def test_when_a_rank_fails_all_processes_end(run: Run, tmp_path: Path) -> None:
    code = """
note(os.getpid())
if rank == 0: os.kill(os.getpid(), signal.SIGSTOP)
while len(open(sys.argv[1]).readlines()) < 2: time.sleep(0.01)
sys.exit(3)
"""
    assert run(code, tmp_path / "pids").last_line == "parallel-core: rank 1 ended with status 3"
    assert are_gone(wait_for_lines(2, tmp_path / "pids"))


@pytest.mark.parametrize(
    "numbers", [(signal.SIGHUP,), (signal.SIGINT, signal.SIGINT, signal.SIGTERM)], ids=str
)
def test_a_signal_to_the_launcher_ends_all_in_one_line(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    with start_launcher(BUSY, str(tmp_path / "pids")) as launcher:
        pids = wait_for_lines(4, tmp_path / "pids")
        # What is typed at the terminal reaches the launcher only.
        assert os.getpgid(launcher.pid) not in {os.getpgid(int(pid)) for pid in pids}
        for number in numbers:
            launcher.send_signal(number)
            time.sleep(0.02)
        output, errors = launcher.communicate(timeout=20)
    # Of several that arrive while the launcher has no core, any may be the first.
    name = signal.Signals(launcher.returncode - 128).name
    assert (name in [number.name for number in numbers], output) == (True, b"")
    assert errors.decode() == f"parallel-core: interrupted by {name}: all processes were ended\n"
    assert are_gone(pids)


@pytest.mark.parametrize(("code", "processes"), [(BUSY, 4), (STOPPED, 2)])
def test_nothing_is_left_when_the_launcher_is_killed(
    code: str, processes: int, tmp_path: Path
) -> None:
    with start_launcher(code, str(tmp_path / "pids")) as launcher:
        pids = wait_for_lines(processes, tmp_path / "pids")
        launcher.kill()
        launcher.communicate(timeout=20)
    assert are_gone(pids)


def test_rank_0_has_the_terminal_which_is_whole_afterwards() -> None:
    terminal, terminal_of_launcher = pty.openpty()
    code = "sys.exit(3) if rank == 0 and os.isatty(2) else wait()"
    with start_launcher(code, stderr=terminal_of_launcher) as launcher:
        assert launcher.wait(20) == 1
    shown = os.read(terminal, 4096)
    os.close(terminal_of_launcher)
    os.close(terminal)
    assert shown.endswith(SHOW_CURSOR + b"parallel-core: rank 0 ended with status 3\r\n")
