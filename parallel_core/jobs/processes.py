"""Processes of a job: started on this machine, read, and never left behind.

Each has a separate session, so that what is typed at a terminal does not reach it. Its standard input is a pipe that
only this process holds and never writes to: if this one is killed, the pipe ends, and the process leaves.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, NamedTuple

import msgspec

from parallel_core.jobs.job import REPORTS_VARIABLE, Ended, News, Printed, Process, decode_report, is_rank
from parallel_core.system.errors import MeasurementError
from parallel_core.system.subprocesses import kill_group

CHUNK = 1 << 16
PIPE_BYTES = 1 << 20
"""More than a pipe holds, unless root made it larger."""
KILL_SECONDS = 3.0


class Running(NamedTuple):
    """A process that was started; `gone` is set when it has ended."""

    name: str
    pid: int
    gone: asyncio.Event

    def ask_for_stack(self) -> None:
        """Make a rank write the stacks of its threads to standard error."""
        # A server has no handler for the signal, which would kill it.
        if is_rank(self.name) and not self.gone.is_set():
            os.kill(self.pid, signal.SIGUSR1)


@asynccontextmanager
async def running(
    processes: Sequence[Process], environment: Mapping[str, str], take: Callable[[str, News], None]
) -> AsyncIterator[Sequence[Running]]:
    """Start processes, `environment` added to their own; kill them and their groups with the context.

    `take` is called with each one's name and news. Raises MeasurementError if one cannot be started.
    """
    started: list[Running] = []
    try:
        # Those before one that cannot be started are in the list, too.
        started.extend(_start(process, environment, take) for process in processes)
        yield started
    finally:
        for one in started:
            # The number of one that has ended may be another process's by now.
            if not one.gone.is_set():
                kill_group(one.pid)
        # A process that the system cannot kill now must not keep this one.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                for one in started:
                    await one.gone.wait()


def _start(process: Process, environment: Mapping[str, str], take: Callable[[str, News], None]) -> Running:
    """Start a process; the event loop passes on its news."""
    loop, line = asyncio.get_running_loop(), b""
    readable, writable = os.pipe()
    reports = os.fdopen(readable, "rb", 0)
    given = {**os.environ, **process.environment, **environment, REPORTS_VARIABLE: str(writable)}
    try:
        started = subprocess.Popen(
            process.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=(writable,),
            start_new_session=True,
            env={name: value for name, value in given.items() if value is not None},
        )
    except OSError as error:
        reports.close()
        reason = f"{process.command[0]}: {error.strerror or error}"
        raise MeasurementError(f"{process.name} could not be started: {reason}") from error
    finally:
        os.close(writable)
    stdin, errors = started.stdin, started.stderr
    assert stdin is not None
    pipes = [pipe for pipe in (started.stdout, errors, reports) if pipe is not None]
    this, end_seen = Running(process.name, started.pid, asyncio.Event()), os.pidfd_open(started.pid)

    def read(pipe: IO[bytes], most: int = CHUNK) -> None:
        nonlocal line
        try:
            data = os.read(pipe.fileno(), most)
        except BlockingIOError:
            return
        if not data:
            close(pipe)
        elif pipe is not reports:
            take(process.name, Printed(data, error=pipe is errors))
        else:
            # The death of its writer may cut the last line.
            *lines, line = (line + data).split(b"\n")
            for whole in lines:
                try:
                    news: News = decode_report(whole)
                except msgspec.DecodeError:
                    news = Printed(whole + b"\n", error=True)
                take(process.name, news)

    def close(pipe: IO[bytes]) -> None:
        loop.remove_reader(pipe.fileno())
        pipe.close()
        pipes.remove(pipe)

    def end() -> None:
        loop.remove_reader(end_seen)
        os.close(end_seen)
        kill_group(this.pid)
        for pipe in [*pipes]:
            # What is in it, and no more: a child in another session may hold it open for ever.
            read(pipe, PIPE_BYTES)
            if pipe in pipes:
                close(pipe)
        stdin.close()
        this.gone.set()
        take(process.name, Ended(started.wait()))

    for pipe in pipes:
        os.set_blocking(pipe.fileno(), False)
        loop.add_reader(pipe.fileno(), read, pipe)
    loop.add_reader(end_seen, end)
    return this
