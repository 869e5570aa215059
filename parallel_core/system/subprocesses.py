"""Run a command in a separate process group, under a deadline, and leave no process behind.

A framework may start processes that outlive the command, so the whole group is killed when the
command has ended, when its deadline has passed, and when the caller is cancelled. A command notices
that the caller itself was killed by its lifeline: a pipe on its standard input, whose other end the
caller holds.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from backends.host import on_cores

PR_SET_PDEATHSIG = 1
"""The option of Linux's prctl that sets the signal a process gets when its parent ends."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command."""

    status: int
    """The exit status, or minus the number of the signal that killed it."""
    output: str
    errors: str
    timed_out: bool

    @property
    def code(self) -> Literal["failed", "killed", "timed-out"]:
        """How a command ended that failed."""
        if self.timed_out:
            return "timed-out"
        return "killed" if self.status < 0 else "failed"

    def reason(self, deadline: float) -> str:
        """Say in one line why the command failed, which had `deadline` seconds."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        last_line = lines[-1].removeprefix("parallel-core: ") if lines else ""
        if self.timed_out:
            return f"gave no result within {deadline:g} s and was killed"
        if self.status < 0:
            killed = f"was killed by {signal_name(-self.status)}"
            if last_line:
                return f"{killed}; its last line: {last_line}"
            return killed
        return last_line or f"ended with status {self.status} and no message"


def signal_name(number: int) -> str:
    """Return a signal's name, or its number if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill_group(leader: int) -> None:
    """Kill all processes of the group that a process leads, if there are any and they are ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def leave_with_starter(on_read: Callable[[bytes], object] = lambda _: None) -> None:
    """Kill this process, and the group that it leads, when nobody holds its standard input open.

    Until then `on_read` is called on another thread with what is written there.
    """
    # Linux kills it too, even if it is stopped, or Python is stuck, by then.
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def wait_for_the_end() -> None:
        while read := os.read(0, 4096):
            on_read(read)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()


@dataclass(frozen=True)
class Running:
    """A command that runs in a process group of its own."""

    process: asyncio.subprocess.Process
    # Files and not pipes, which a surviving grandchild may hold open.
    _output: IO[bytes]
    _errors: IO[bytes]

    @property
    def output(self) -> str:
        """What the command has printed so far."""
        return _text(self._output)

    async def ended(self, timed_out: bool) -> Outcome:
        """Kill whatever of the group still runs, and return the outcome."""
        kill_group(self.process.pid)
        status = await self.process.wait()
        return Outcome(status, _text(self._output), _text(self._errors), timed_out)


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str],
    cores: set[int],
    stdin: int = asyncio.subprocess.DEVNULL,
    inherited: Sequence[int] = (),
) -> AsyncIterator[Running]:
    """Start a command on some cores, with some descriptors, and leave nothing of it behind when
    this context ends.

    Raises OSError if it cannot be started.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        # The new process inherits the calling thread's cores.
        with on_cores(cores):
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stdout=output,
                stderr=errors,
                pass_fds=inherited,
                start_new_session=True,
            )
        try:
            yield Running(process, output, errors)
        finally:
            kill_group(process.pid)
            await process.wait()


async def supervise(command: Sequence[str], deadline: float, cores: set[int]) -> Outcome:
    """Run a command on some cores for at most `deadline` seconds, and return its outcome.

    Raises OSError if it cannot be started.
    """
    async with started(command, cores) as running:
        timed_out = False
        try:
            async with asyncio.timeout(deadline):
                await running.process.wait()
        except TimeoutError:
            timed_out = True
        return await running.ended(timed_out)


def _text(stream: IO[bytes]) -> str:
    """Return the whole text of a file."""
    size = os.fstat(stream.fileno()).st_size
    # The process writes at the position that it shares with this descriptor.
    return os.pread(stream.fileno(), size, 0).decode(errors="replace")
