"""`python -m parallel_core.jobs.agent`: start the job's processes on this host, and leave none of them behind.

Standard input: a line with the processes as JSON, then commands, a line each. `stacks` asks the ranks for their stacks.
Where it ends, every process is killed, with its group, and the agent ends. Standard output: messages (`reports.py`).

Each process has a session of its own, so that what is typed at a terminal does not reach it. Its standard input is a
pipe that only this agent holds and never writes to: where the agent is killed, the pipe ends, and the process leaves.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple, TypeAlias

import msgspec

from parallel_core.jobs.messages import (
    REPORTS_VARIABLE,
    Ended,
    FromAgent,
    Printed,
    Process,
    Progress,
    Report,
    Reported,
    Unstartable,
    is_rank,
)

__all__ = ["main"]

CHUNK = 1 << 16
LONGEST_LINE = 1 << 24
PIPES_SECONDS = 0.5
"""How long the pipes of a process that has ended may stay open: a child in another session may hold them for ever.

Only time counts in which nothing came from them and nothing waited for the launcher to read it.
"""
LOOKS = 10
REPORTS_SECONDS = 0.05
"""Reports are read so often, and successive progress is passed on as one message."""
LAST_SECONDS = 3.0

Send: TypeAlias = Callable[[FromAgent], Awaitable[None]]
decode_report: Callable[[bytes], Report] = msgspec.json.Decoder(Report).decode


class Started(NamedTuple):
    """A process that was started, the pipe that it reports to, and its status when it has ended."""

    process: "subprocess.Popen[bytes]"
    reports: IO[bytes]
    ended: "asyncio.Future[int]"


@dataclass
class Passage:
    """Passes on what comes from a process's pipes."""

    send: Send
    waiting: int = 0
    """Messages that the launcher has not taken yet."""
    passed: int = 0
    """Messages so far."""

    async def __call__(self, message: FromAgent) -> None:
        """Pass on a message, at the pace of the launcher."""
        self.passed += 1
        self.waiting += 1
        try:
            await self.send(message)
        finally:
            self.waiting -= 1


def main() -> None:
    """Serve until standard input ends."""
    asyncio.run(serve())


async def serve() -> None:
    """Start the processes that standard input names; return when it has ended and all of them are dead."""
    loop = asyncio.get_running_loop()
    commands, _ = await open_reader(sys.stdin)
    send = await open_sender(sys.stdout)
    # A kind signal is to leave nothing behind either.
    loop.add_signal_handler(signal.SIGTERM, commands.feed_eof)
    running: dict[str, Started] = {}

    def reap() -> None:
        for started in running.values():
            status = started.process.poll()
            if status is not None and not started.ended.done():
                started.ended.set_result(status)

    loop.add_signal_handler(signal.SIGCHLD, reap)
    line = await commands.readline()
    processes = msgspec.json.decode(line, type=tuple[Process, ...]) if line.endswith(b"\n") else ()
    async with asyncio.TaskGroup() as following:
        for process in processes:
            following.create_task(follow(process, running, send))
        try:
            while command := await commands.readline():
                if command.strip() == b"stacks":
                    ask_for_stacks(running)
        finally:
            for started in running.values():
                kill_group(started.process.pid)
            # A process that the system cannot kill now must not keep the agent.
            loop.call_later(LAST_SECONDS, os._exit, 1)


def ask_for_stacks(running: Mapping[str, Started]) -> None:
    """Send the ranks the signal that makes them write their stacks to standard error."""
    for name, started in running.items():
        # The signal kills a process that has not prepared for it, which servers never do.
        if is_rank(name):
            started.process.send_signal(signal.SIGUSR1)


async def follow(process: Process, running: dict[str, Started], send: Send) -> None:
    """Start a process, pass on all that it says, and then that it has ended."""
    try:
        started = start(process)
    except OSError as error:
        await send(Unstartable(process.name, f"{process.command[0]}: {error.strerror or error}"))
        return
    running[process.name] = started
    lifeline, output, errors = started.process.stdin, started.process.stdout, started.process.stderr
    assert lifeline is not None
    assert output is not None
    assert errors is not None
    passage = Passage(send)
    tasks = [
        asyncio.create_task(pass_on_output(process.name, output, False, passage)),
        asyncio.create_task(pass_on_output(process.name, errors, True, passage)),
        asyncio.create_task(pass_on_reports(process.name, started.reports, passage)),
    ]
    status = await started.ended
    kill_group(started.process.pid)
    await emptied(tasks, passage)
    for task in tasks:
        task.cancel()
    del running[process.name]
    lifeline.close()
    await send(Ended(process.name, status))


async def emptied(tasks: Sequence["asyncio.Task[None]"], passage: Passage) -> None:
    """Wait until the pipes have ended, or until nothing has moved for PIPES_SECONDS in all."""
    idle = 0
    while idle < LOOKS:
        passed = passage.passed
        _, reading = await asyncio.wait(tasks, timeout=PIPES_SECONDS / LOOKS)
        if not reading:
            return
        idle += not passage.waiting and passage.passed == passed


def start(process: Process) -> Started:
    """Start a process in a session of its own. Raises OSError."""
    environment = {**os.environ, **process.environment, **own_address(process)}
    readable, writable = os.pipe()
    reports = os.fdopen(readable, "rb", 0)
    environment[REPORTS_VARIABLE] = str(writable)
    try:
        started = subprocess.Popen(
            process.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=(writable,),
            start_new_session=True,
            env={name: value for name, value in environment.items() if value is not None},
        )
    except OSError:
        reports.close()
        raise
    finally:
        os.close(writable)
    return Started(started, reports, asyncio.get_running_loop().create_future())


def own_address(process: Process) -> dict[str, str]:
    """Return what tells an MXNet process the address of its own host, where it has not been told.

    Raises OSError where there is none.
    """
    given = process.environment
    root = given.get("DMLC_PS_ROOT_URI")
    if not root or given.get("DMLC_NODE_HOST"):
        return {}
    from parallel_core.errors import MeasurementError, RequestError
    from parallel_core.jobs.addresses import interface_address, local_address

    interface = given.get("GLOO_SOCKET_IFNAME")
    try:
        return {"DMLC_NODE_HOST": interface_address(interface) if interface else local_address(root)}
    except (MeasurementError, RequestError) as error:
        raise OSError(str(error)) from error


async def pass_on_output(name: str, pipe: IO[bytes], error: bool, send: Send) -> None:
    """Pass on what a process writes, as it comes."""
    reader, transport = await open_reader(pipe)
    with contextlib.closing(transport):
        while data := await reader.read(CHUNK):
            await send(Printed(name, data, error))


async def pass_on_reports(name: str, pipe: IO[bytes], send: Send) -> None:
    """Pass on a process's reports; what is no report is passed on as an error of its own."""
    reader, transport = await open_reader(pipe)
    rest = b""
    with contextlib.closing(transport):
        while data := await reader.read(CHUNK):
            # What is cut off at the very end was cut by the death of its writer.
            *lines, rest = (rest + data).split(b"\n")
            for message in together(name, lines):
                await send(message)
            await asyncio.sleep(REPORTS_SECONDS)


def together(name: str, lines: list[bytes]) -> Iterator[FromAgent]:
    """Yield the messages that lines of reports make, successive progress added up."""
    progress: Progress | None = None
    for line in lines:
        try:
            report = decode_report(line)
        except msgspec.DecodeError:
            yield Printed(name, line + b"\n", error=True)
            continue
        if isinstance(report, Progress):
            progress = report.after(progress) if progress else report
            continue
        if progress:
            yield Reported(name, progress)
            progress = None
        yield Reported(name, report)
    if progress:
        yield Reported(name, progress)


async def open_reader(pipe: IO[bytes] | IO[str]) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    """Read a pipe without blocking; closing the transport closes the pipe."""
    reader = asyncio.StreamReader(LONGEST_LINE if pipe is sys.stdin else CHUNK)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def open_sender(pipe: IO[str]) -> Send:
    """Return what writes messages to a pipe, one line each, at the pace of its reader."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def send(message: FromAgent) -> None:
        # Where the launcher is gone, standard input ends too, and that is what ends the agent.
        with contextlib.suppress(ConnectionError):
            writer.write(msgspec.json.encode(message) + b"\n")
            await writer.drain()

    return send


def kill_group(leader: int) -> None:
    """Kill all processes of a group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    main()
