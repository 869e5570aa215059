"""An agent passes on all that a process has written before its end, however slowly the launcher reads."""

import asyncio
import sys

from parallel_core.jobs import agent
from parallel_core.jobs.messages import Ended, FromAgent, Printed, Process

BYTES = 350_000


def passed_on(code: str, pause: float) -> list[FromAgent]:
    """Follow a Python program, and return the messages to a launcher that takes `pause` seconds for each."""

    async def follow() -> list[FromAgent]:
        passed: list[FromAgent] = []
        running: dict[str, agent.Started] = {}

        async def send(message: FromAgent) -> None:
            await asyncio.sleep(pause)
            passed.append(message)

        following = asyncio.create_task(
            agent.follow(Process("rank 0", 0, (sys.executable, "-c", code), {}), running, send)
        )
        while not running:
            await asyncio.sleep(0.01)
        started = running["rank 0"]
        started.ended.set_result(await asyncio.to_thread(started.process.wait))
        await following
        return passed

    return asyncio.run(follow())


def printed(messages: list[FromAgent]) -> bytes:
    return b"".join(message.data for message in messages if isinstance(message, Printed))


def test_nothing_is_lost_when_the_launcher_reads_slowly() -> None:
    # The pipe is large enough for all of it, so that the process ends before any of it is taken.
    code = f"import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 19); os.write(1, b'x' * {BYTES})"
    messages = passed_on(code, pause=0.3)
    assert len(printed(messages)) == BYTES
    assert messages[-1] == Ended("rank 0", 0)


def test_a_child_in_another_session_keeps_nobody() -> None:
    # It says something now and then, for longer than the test may take.
    child = "for n in range(100): time.sleep(0.1); print(n, flush=True)"
    code = (
        "import subprocess, sys; print('all', flush=True); "
        f"subprocess.Popen([sys.executable, '-c', 'import time\\n{child}'], start_new_session=True)"
    )
    messages = passed_on(code, pause=0)
    assert printed(messages).startswith(b"all\n")
    assert messages[-1] == Ended("rank 0", 0)
    assert len(messages) < 50
