"""Launch a job: start its processes, pass on their output, and end all of them when one fails.

Rank 0 has the standard output and error of this process, so its result and its progress look like
those of a single process. The output of the other processes goes to standard error, line by line,
each line after the name of its process.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import NamedTuple

from parallel_core.jobs.job import Job, Process, environment_with, is_rank, processes_of
from parallel_core.system.errors import REFUSED
from parallel_core.system.signals import SHOW_CURSOR, until_stopped
from parallel_core.system.subprocesses import kill_group, signal_name

GUARD = ("/bin/sh", "-c", "read line; kill -KILL 0")
"""The command that kills its process group, and so the whole job, when its standard input ends.

This process holds the other end of that pipe, so the pipe ends with this process, even if it is
killed.
"""
KILL_SECONDS = 3.0
"""The seconds to wait for killed processes: the system may be unable to end one now."""
LAST_LINES_SECONDS = 1.0
"""The seconds to wait for the end of a pipe: a child in another group may hold it open."""
CLEAR_LINE = b"\r\x1b[K"
"""The control codes that move a terminal's cursor to the beginning of its line, and clear it."""

Running = dict[str, asyncio.subprocess.Process]
"""The processes that were started, by name."""


class End(NamedTuple):
    """The end of a process."""

    name: str
    status: int
    """The exit status, or minus the number of the signal that killed it."""

    @property
    def sentence(self) -> str:
        """A sentence on the process and its end."""
        if self.status == -signal.SIGKILL:
            return (
                f"{self.name} was killed by SIGKILL; the system may have run out of memory (see "
                "dmesg)"
            )
        if self.status < 0:
            return f"{self.name} was killed by {signal_name(-self.status)}"
        return f"{self.name} ended with status {self.status}"


def launch_job(job: Job) -> int:
    """Run a job on this machine; return the exit status: 0, 1 for a failure, 2 for a bad request.

    SIGINT, SIGTERM and SIGHUP end the job, and the status is 128 plus their number. Raises OSError
    for a command that cannot be started.
    """
    ended = asyncio.run(until_stopped(_run(job)))
    if ended is None:
        return 0
    if sys.stderr.isatty():
        # Rank 0 may have been killed while its progress bar was drawn.
        os.write(2, CLEAR_LINE + SHOW_CURSOR)
    if isinstance(ended, signal.Signals):
        _say(f"interrupted by {ended.name}: all processes were ended")
        return 128 + ended
    if is_rank(ended.name) and ended.status == REFUSED:
        # The rank has printed what is wrong with the request.
        return REFUSED
    _say(ended.sentence)
    return 1


async def _run(job: Job) -> End | None:
    """Run a job until all its ranks have ended well; return the first process that fails."""
    async with _running(processes_of(job)) as running:
        ranks_at_work = {name for name in running if is_rank(name)}
        ends = [_end_of(name, process) for name, process in running.items()]
        for next_end in asyncio.as_completed(ends):
            end = await next_end
            if end.status != 0:
                return end
            ranks_at_work.discard(end.name)
            if not ranks_at_work:
                break
    return None


async def _end_of(name: str, process: asyncio.subprocess.Process) -> End:
    """Wait for the end of a process."""
    return End(name, await process.wait())


@asynccontextmanager
async def _running(processes: Sequence[Process]) -> AsyncIterator[Running]:
    """Start processes in a separate process group, which is killed when this context ends.

    Ctrl-C at a terminal does not reach the group.
    """
    running: Running = {}
    with (
        ExitStack() as outputs,
        subprocess.Popen(GUARD, stdin=subprocess.PIPE, process_group=0) as guard,
    ):
        try:
            for process in processes:
                output = None
                if process.name != "rank 0":
                    output = outputs.enter_context(_output_after(process.name))
                running[process.name] = await _start(process, output, guard.pid)
            yield running
        finally:
            kill_group(guard.pid)
            with suppress(TimeoutError):
                async with asyncio.timeout(KILL_SECONDS):
                    for started in running.values():
                        await started.wait()


async def _start(process: Process, output: int | None, group: int) -> asyncio.subprocess.Process:
    """Start a process in a group; it writes to `output`, or to this process's output if None."""
    return await asyncio.create_subprocess_exec(
        *process.command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment_with(process.environment),
        process_group=group,
    )


@contextmanager
def _output_after(name: str) -> Iterator[int]:
    """Yield a descriptor of which each line is passed on to standard error, after a name."""
    readable, writable = os.pipe()
    prefix = f"[{name}] ".encode()
    if sys.stderr.isatty():
        # The line replaces rank 0's progress bar, which rank 0 draws again below.
        prefix = CLEAR_LINE + prefix

    def pass_on() -> None:
        with os.fdopen(readable, "rb") as lines:
            for line in lines:
                sys.stderr.buffer.write(prefix + line.rstrip(b"\n") + b"\n")
                sys.stderr.buffer.flush()

    thread = threading.Thread(target=pass_on, name=f"output of {name}", daemon=True)
    thread.start()
    try:
        yield writable
    finally:
        os.close(writable)
        thread.join(LAST_LINES_SECONDS)


def _say(line: str) -> None:
    """Print a line of this program on standard error."""
    print(f"parallel-core: {line}", file=sys.stderr, flush=True)
