"""What a process has written before its end is passed on, all of it, and then that it has ended."""

import asyncio
import sys
from time import sleep

from parallel_core.jobs.job import Process
from parallel_core.jobs.processes import running
from parallel_core.jobs.reports import Progress, Report


class Taken:
    """The news of one process."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.output, self.reports, self.status, self.pieces, self.over = b"", [], None, 0, asyncio.Event()
        self.errors = b""

    def printed(self, _: str, data: bytes, error: bool) -> None:
        assert self.status is None
        sleep(self.pause)
        self.pieces += 1
        if error:
            self.errors += data
        else:
            self.output += data

    def reported(self, _: str, report: Report) -> None:
        assert self.status is None
        self.reports.append(report)

    def ended(self, _: str, status: int) -> None:
        self.status = status
        self.over.set()


def news_of(code: str, pause: float = 0.0) -> Taken:
    """Return what became of a Python program, whose output is taken with a pause after each piece."""

    async def follow() -> Taken:
        taken = Taken(pause)
        async with running([Process("rank 0", (sys.executable, "-c", code), {})], {}, taken):
            await taken.over.wait()
        return taken

    return asyncio.run(follow())


def test_what_is_left_in_the_pipes_is_passed_on_before_the_end() -> None:
    # The pipe is large enough for all of it, so that the process ends before any of it is taken.
    taken = news_of("import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 19); os.write(1, b'x' * 350_000)", 0.3)
    assert (len(taken.output), taken.status) == (350_000, 0)


def test_reports_are_taken_line_by_line_and_what_is_none_is_output() -> None:
    code = """
import os
report = int(os.environ["PARALLEL_CORE_REPORTS"])
for piece in (b'{"type":"Pro', b'gress","exchanges":7}\\nnone\\n{"type":"Progress"}\\n{"type'):
    os.write(report, piece)
os._exit(5)
"""
    taken = news_of(code)
    assert (taken.reports, taken.errors, taken.status) == ([Progress(7), Progress()], b"none\n", 5)


def test_a_child_in_another_session_keeps_nobody() -> None:
    # It says something now and then, for longer than the test may take.
    child = "for n in range(100): time.sleep(0.1); print(n, flush=True)"
    taken = news_of(
        "import subprocess, sys; print('all', flush=True); "
        f"subprocess.Popen([sys.executable, '-c', 'import time\\n{child}'], start_new_session=True)"
    )
    assert taken.output.startswith(b"all\n")
    assert taken.status == 0
    assert taken.pieces < 50
