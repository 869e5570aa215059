"""What a process has written before its end is passed on, all of it, and then that it has ended."""

import asyncio
import sys
from time import sleep

from parallel_core.jobs.job import Ended, News, Printed, Process, Progress
from parallel_core.jobs.processes import running


def news_of(code: str, pause: float = 0.0) -> list[News]:
    """Return the news of a Python program, each of which is taken for as long as the pause."""

    async def follow() -> list[News]:
        taken: list[News] = []
        over = asyncio.Event()

        def take(_: str, news: News) -> None:
            sleep(pause)
            taken.append(news)
            if isinstance(news, Ended):
                over.set()

        async with running([Process("rank 0", (sys.executable, "-S", "-c", code), {})], {}, take):
            await over.wait()
        return taken

    return asyncio.run(follow())


def test_what_is_left_in_the_pipes_is_passed_on_before_the_end() -> None:
    # The pipe is large enough for all of it, so that the process ends before any of it is taken.
    code = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 19); os.write(1, b'x' * 350_000)"
    *printed, ended = news_of(code, pause=0.1)
    assert sum(len(one.data) for one in printed if isinstance(one, Printed) and not one.error) == 350_000
    assert ended == Ended(0)


def test_reports_are_taken_line_by_line_and_what_is_none_is_output() -> None:
    code = """
import os
report = int(os.environ["PARALLEL_CORE_REPORTS"])
for piece in (b'{"type":"Pro', b'gress","exchanges":7}\\nnone\\n{"type":"Progress"}\\n{"type'):
    os.write(report, piece)
os._exit(5)
"""
    assert news_of(code) == [Progress(7), Printed(b"none\n", error=True), Progress(), Ended(5)]


def test_a_child_in_another_session_keeps_nobody() -> None:
    # It says something now and then, for longer than the test may take.
    child = "import time\nfor n in range(100): time.sleep(0.1); print(n, flush=True)"
    *printed, ended = news_of(
        "import subprocess, sys; print('all', flush=True); "
        f"subprocess.Popen([sys.executable, '-S', '-c', {child!r}], start_new_session=True)"
    )
    assert printed[0].data.startswith(b"all")  # type: ignore[union-attr]
    assert ended == Ended(0)
    assert len(printed) < 50
