"""`python -m parallel_core.jobs.agent`: start the job's processes on this host, and leave none of them behind.

Standard input: a line with the processes as JSON, then commands, one on each line. `stacks` asks the ranks for their
stacks. When it ends, the agent kills every process with its group, and ends. Standard output: messages (`messages.py`).

Each process has a session of its own, so that what is typed at a terminal does not reach it. Its standard input is a
pipe that only this agent holds and never writes to: if the agent is killed, the pipe ends, and the process leaves.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import IO, NamedTuple, TypeAlias

import msgspec

from backends.errors import ComputationError
from backends.process_groups.addresses import local_address
from parallel_core.errors import RequestError
from parallel_core.jobs.addresses import interface_address
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
from parallel_core.system.subprocesses import kill_group

__all__ = ["Started", "follow", "main"]

CHUNK = 1 << 16
MAX_PROCESSES_LINE = 1 << 24
REPORTS_SECONDS = 0.05
"""How often reports are read; successive progress is passed on as one message."""
KILL_SECONDS = 3.0

Send: TypeAlias = Callable[[FromAgent], Awaitable[None]]
decode_report: Callable[[bytes], Report] = msgspec.json.Decoder(Report).decode


class Started(NamedTuple):
    """A process that was started, the pipe that it reports to, and its exit status once it has ended."""

    process: "subprocess.Popen[bytes]"
    reports: IO[bytes]
    ended: "asyncio.Future[int]"


def main() -> None:
    """Serve until standard input ends."""
    asyncio.run(_serve())


async def _serve() -> None:
    """Start the processes that standard input names; return when it has ended and all of them are dead."""
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(MAX_PROCESSES_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    send = await _open_sender(sys.stdout)
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
                    _ask_for_stacks(running)
        finally:
            for started in running.values():
                kill_group(started.process.pid)
            # A process that the system cannot kill now must not keep the agent.
            loop.call_later(KILL_SECONDS, os._exit, 1)


def _ask_for_stacks(running: Mapping[str, Started]) -> None:
    """Send the ranks the signal that makes them write their stacks to standard error."""
    for name, started in running.items():
        # Servers have no handler for the signal, which would kill them.
        if is_rank(name):
            started.process.send_signal(signal.SIGUSR1)


async def follow(process: Process, running: dict[str, Started], send: Send) -> None:
    """Start a process, pass on all that it writes, and then that it has ended."""
    try:
        started = _start(process)
    except OSError as error:
        await send(Unstartable(process.name, f"{process.command[0]}: {error.strerror or error}"))
        return
    running[process.name] = started
    lifeline, output, errors = started.process.stdin, started.process.stdout, started.process.stderr
    assert lifeline is not None
    assert output is not None
    assert errors is not None
    passing = asyncio.gather(
        _pass_on_output(process.name, output, False, started, send),
        _pass_on_output(process.name, errors, True, started, send),
        _pass_on_reports(process.name, started, send),
    )
    status = await started.ended
    kill_group(started.process.pid)
    await passing
    del running[process.name]
    lifeline.close()
    await send(Ended(process.name, status))


def _start(process: Process) -> Started:
    """Start a process in a session of its own. Raises OSError."""
    environment = {**os.environ, **process.environment, **_node_host(process)}
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


def _node_host(process: Process) -> dict[str, str]:
    """Return the variable that names this host's own address to an MXNet process, unless it has one.

    Raises OSError if there is no such address.
    """
    root = process.environment.get("DMLC_PS_ROOT_URI")
    if not root or process.environment.get("DMLC_NODE_HOST"):
        return {}
    interface = process.environment.get("GLOO_SOCKET_IFNAME")
    try:
        return {"DMLC_NODE_HOST": interface_address(interface) if interface else local_address(root)}
    except (ComputationError, RequestError) as error:
        raise OSError(str(error)) from error


async def _pass_on_output(name: str, pipe: IO[bytes], error: bool, started: Started, send: Send) -> None:
    async for data in _read_to_the_end(pipe, started.ended):
        await send(Printed(name, data, error))


async def _pass_on_reports(name: str, started: Started, send: Send) -> None:
    """Pass on a process's reports; a line that is no report is passed on as output to standard error."""
    rest = b""
    async for data in _read_to_the_end(started.reports, started.ended):
        # The death of its writer may cut the last line.
        *lines, rest = (rest + data).split(b"\n")
        for message in _merged(name, lines):
            await send(message)
        await asyncio.sleep(REPORTS_SECONDS)


async def _read_to_the_end(pipe: IO[bytes], ended: "asyncio.Future[int]") -> AsyncIterator[bytes]:
    """Yield what comes from a process's pipe, up to what is in it when the process has ended, and close it.

    Its end is not waited for, because a child of the process in another session may hold it open for ever.
    """
    loop, news, descriptor = asyncio.get_running_loop(), asyncio.Event(), pipe.fileno()
    os.set_blocking(descriptor, False)
    ended.add_done_callback(lambda _: news.set())
    with pipe:
        while not ended.done():
            try:
                data = os.read(descriptor, CHUNK)
            except BlockingIOError:
                news.clear()
                loop.add_reader(descriptor, news.set)
                await news.wait()
                loop.remove_reader(descriptor)
                continue
            if not data:
                return
            yield data
        left = int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
        while left > 0:
            data = os.read(descriptor, min(left, CHUNK))
            left -= len(data)
            yield data


def _merged(name: str, lines: list[bytes]) -> Iterator[FromAgent]:
    """Yield the messages for lines of reports, with successive progress added up."""
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


async def _open_sender(pipe: IO[str]) -> Send:
    """Return a function that writes messages to a pipe, one on each line, at the pace of its reader."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def send(message: FromAgent) -> None:
        # If the launcher is gone, standard input ends too, which ends the agent.
        with contextlib.suppress(ConnectionError):
            writer.write(msgspec.json.encode(message) + b"\n")
            await writer.drain()

    return send


if __name__ == "__main__":
    main()
