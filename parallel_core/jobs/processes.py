"""Processes of a job: started on this machine, read, and never left behind.

Each has a session of its own, so that what is typed at a terminal does not reach it. Its standard input is a pipe that
only this process holds and never writes to: if this one is killed, the pipe ends, and the process leaves.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import IO, Protocol, final

import msgspec

from parallel_core.jobs.job import Process, is_rank
from parallel_core.jobs.reports import REPORTS_VARIABLE, Report, decode_report
from parallel_core.system.errors import MeasurementError
from parallel_core.system.subprocesses import kill_group

__all__ = ["News", "Running", "running"]

CHUNK = 1 << 16
KILL_SECONDS = 3.0


class News(Protocol):
    """Called with what the processes do, each by its name."""

    def printed(self, name: str, data: bytes, error: bool) -> None:
        """Take what it wrote to its standard output or error; a line may be cut anywhere."""

    def reported(self, name: str, report: Report) -> None:
        """Take a report."""

    def ended(self, name: str, status: int) -> None:
        """Take its exit status, negative for the signal that killed it; nothing else comes after this."""


@asynccontextmanager
async def running(
    processes: Sequence[Process], environment: Mapping[str, str], news: News
) -> AsyncIterator[Sequence["Running"]]:
    """Start processes, `environment` added to their own; kill them and their groups with the context.

    Raises MeasurementError if one cannot be started.
    """
    started: list[Running] = []
    try:
        # Those before one that cannot be started are in the list, too.
        started.extend(Running(process, environment, news) for process in processes)
        yield started
    finally:
        for one in started:
            kill_group(one.pid)
        # A process that the system cannot kill now must not keep this one.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS):
                for one in started:
                    await one.gone.wait()


@final
class Running:
    """A process that was started; the event loop passes on what it does."""

    def __init__(self, process: Process, environment: Mapping[str, str], news: News) -> None:
        self.name, self.gone = process.name, asyncio.Event()
        self._news, self._loop, self._line = news, asyncio.get_running_loop(), b""
        readable, writable = os.pipe()
        reports = os.fdopen(readable, "rb", 0)
        given = {**os.environ, **process.environment, **environment, REPORTS_VARIABLE: str(writable)}
        try:
            self._process = subprocess.Popen(
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
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._takers: dict[IO[bytes], Callable[[bytes], None]] = {
            self._process.stdout: partial(news.printed, self.name, error=False),
            self._process.stderr: partial(news.printed, self.name, error=True),
            reports: self._take_reports,
        }
        for pipe in self._takers:
            self._loop.add_reader(pipe.fileno(), self._read, pipe)
        self._end_seen = os.pidfd_open(self.pid)
        self._loop.add_reader(self._end_seen, self._end)

    def ask_for_stack(self) -> None:
        """Make a rank write the stacks of its threads to standard error."""
        # A server has no handler for the signal, which would kill it.
        if is_rank(self.name) and not self.gone.is_set():
            self._process.send_signal(signal.SIGUSR1)

    def _read(self, pipe: IO[bytes]) -> None:
        if data := os.read(pipe.fileno(), CHUNK):
            self._takers[pipe](data)
        else:
            self._close(pipe)

    def _take_reports(self, data: bytes) -> None:
        # The death of its writer may cut the last line.
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            try:
                self._news.reported(self.name, decode_report(line))
            except msgspec.DecodeError:
                self._news.printed(self.name, line + b"\n", error=True)

    def _end(self) -> None:
        """Pass on what is in the pipes, and no more: a child in another session may hold them open for ever."""
        self._loop.remove_reader(self._end_seen)
        os.close(self._end_seen)
        kill_group(self.pid)
        for pipe, take in list(self._takers.items()):
            left = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
            while left > 0:
                data = os.read(pipe.fileno(), min(left, CHUNK))
                left -= len(data)
                take(data)
            self._close(pipe)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.gone.set()
        self._news.ended(self.name, self._process.wait())

    def _close(self, pipe: IO[bytes]) -> None:
        self._loop.remove_reader(pipe.fileno())
        pipe.close()
        del self._takers[pipe]
