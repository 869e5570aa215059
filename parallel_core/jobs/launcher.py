"""Launch a job: start its processes, pass on what they write, and end all of them when one fails.

Rank 0 writes where this process writes, so its result and its progress are seen as those of a run
alone. What the others write goes to standard error, line by line, each after the writer's name.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import NamedTuple, TypeAlias

from parallel_core.jobs.job import Job, Process, environment_with, is_rank, processes_of
from parallel_core.system.errors import REFUSED
from parallel_core.system.signals import SHOW_CURSOR, until_stopped
from parallel_core.system.subprocesses import kill_group, signal_name

GUARD = ("/bin/sh", "-c", "read line; kill -KILL 0")
"""Kills its process group when its standard input ends, and with it all processes of the job.

This process holds the other end of the pipe, which ends with it even if it is killed itself.
"""
KILL_SECONDS = 3.0
"""How long killed processes are waited for: the system may be unable to end one now."""
LAST_LINES_SECONDS = 1.0
"""How long the end of a pipe is waited for: a child in another group may hold it open for ever."""
CLEAR_LINE = b"\r\x1b[K"
"""Moves a terminal's cursor to the beginning of its line, and clears the line."""

Running: TypeAlias = dict[str, asyncio.subprocess.Process]
"""The processes that were started, by name."""


class Failure(NamedTuple):
    """A process that failed; `status` is its exit status, or the negative number of a signal."""

    name: str
    status: int

    @property
    def sentence(self) -> str:
        """A sentence on which process failed, and how it ended."""
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

    SIGINT, SIGTERM and SIGHUP end it with 128 and their number. Raises OSError for a command that
    cannot be started.
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
        # The rank has said what is wrong with the request.
        return REFUSED
    _say(ended.sentence)
    return 1


async def _run(job: Job) -> Failure | None:
    """Run a job until all its ranks have ended well; return the first process that fails, if
    any.
    """
    async with _running(processes_of(job)) as running:
        ranks_at_work = {name for name in running if is_rank(name)}
        for next_end in asyncio.as_completed([_end_of(*named) for named in running.items()]):
            name, status = await next_end
            if status != 0:
                return Failure(name, status)
            ranks_at_work.discard(name)
            if not ranks_at_work:
                break
    return None


async def _end_of(name: str, process: asyncio.subprocess.Process) -> tuple[str, int]:
    return name, await process.wait()


@asynccontextmanager
async def _running(processes: Sequence[Process]) -> AsyncIterator[Running]:
    """Start processes in a process group of their own; kill the group with the context.

    What is typed at a terminal, such as Ctrl-C, does not reach the group.
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
    """Start a process in a group; it writes to a descriptor, or where this process writes."""
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
    """Give a descriptor; each line that is written to it goes to standard error, after a name."""
    readable, writable = os.pipe()
    prefix = f"[{name}] ".encode()
    if sys.stderr.isatty():
        # Rank 0's progress bar may be drawn there; rank 0 draws it again below the line.
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
    print(f"parallel-core: {line}", file=sys.stderr, flush=True)
