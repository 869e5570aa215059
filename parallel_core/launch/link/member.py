"""A launch's end of the link: join, run the one process when all have joined, and end it when the hub says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from parallel_core.errors import MeasurementError, RequestError
from parallel_core.launch.link.messages import (
    FROM_HUB,
    Advanced,
    Done,
    End,
    FromHub,
    Hello,
    LinkError,
    Refused,
    Start,
    Trouble,
    Welcome,
    printable,
    receive,
    send,
)
from parallel_core.launch.link.sockets import LONGEST_LINE, notice_death

__all__ = ["Work", "take_part"]

WELCOME_SECONDS = 5.0
AGAIN_SECONDS = 0.2
VERDICT_SECONDS = 10.0
"""How long the hub has to name the cause when this launch's own process failed."""
LEAVING_SECONDS = 5.0
"""How long a process may take to end by itself once all workers are done."""


class Work(Protocol):
    """The process of a launch."""

    async def run(self, start: Start, advanced: Callable[[Advanced], None]) -> Trouble | None:
        """Run the process to its end, and say why it failed; when this is cancelled, nothing of it is left."""

    async def print_stacks(self) -> None:
        """Print what the process's threads are doing, to standard error."""


async def take_part(address: str, port: int, hello: Hello, work: Work, timeout: float) -> None:
    """Take part in the job whose hub listens there, until the job is over.

    `timeout`: seconds in which the hub must answer. Raises MeasurementError, which says who failed and why, where the
    job did, and RequestError where the hub has no place for this launch.
    """
    async with _joined(address, port, hello, timeout) as (reader, writer):
        word = await _word(reader)
        if isinstance(word, End):
            raise MeasurementError(_cause(word))
        if not isinstance(word, Start):
            raise MeasurementError(_gone(address, port))
        process = asyncio.create_task(work.run(word, lambda message: send(writer, message)))
        hearing = asyncio.create_task(_word(reader))
        try:
            await asyncio.wait((process, hearing), return_when=asyncio.FIRST_COMPLETED)
            own = process.result() if process.done() else None
            if process.done():
                send(writer, own or Done())
            end = await _end(hearing, own)
            if end is None:
                raise MeasurementError(own.cause if own else _gone(address, port))
            if end.cause is None:
                await asyncio.wait((process,), timeout=LEAVING_SECONDS)
                return
            if end.stacks and not process.done():
                await work.print_stacks()
            raise MeasurementError(_cause(end))
        except asyncio.CancelledError:
            send(writer, Trouble("was interrupted"))
            raise
        finally:
            await _stop(process, hearing)


@contextlib.asynccontextmanager
async def _joined(
    address: str, port: int, hello: Hello, timeout: float
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect until the hub welcomes this launch; hang up at the end."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        connection = await _welcomed(address, port, hello, deadline)
        if connection is not None:
            break
        if loop.time() >= deadline:
            raise MeasurementError(
                f"no scheduler's launch answers at {address}:{port} within {timeout:g} s; "
                "start one with --role scheduler on the host of --root"
            )
        await asyncio.sleep(min(AGAIN_SECONDS, max(0, deadline - loop.time())))
    try:
        yield connection
    finally:
        connection[1].close()


async def _welcomed(
    address: str, port: int, hello: Hello, deadline: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """Try once to be welcomed. Raises RequestError where the hub refuses."""
    loop = asyncio.get_running_loop()
    writer = None
    answer = None
    try:
        async with asyncio.timeout_at(min(deadline, loop.time() + WELCOME_SECONDS)):
            reader, writer = await asyncio.open_connection(address, port, limit=LONGEST_LINE)
            notice_death(writer)
            send(writer, hello)
            answer = await receive(reader, FROM_HUB)
    except (OSError, LinkError, TimeoutError):
        pass
    finally:
        if writer is not None and not isinstance(answer, Welcome):
            writer.close()
    if isinstance(answer, Refused):
        raise RequestError(printable(answer.reason))
    return (reader, writer) if writer is not None and isinstance(answer, Welcome) else None


async def _word(reader: asyncio.StreamReader) -> FromHub | None:
    try:
        return await receive(reader, FROM_HUB)
    except LinkError:
        return None


async def _end(hearing: "asyncio.Task[FromHub | None]", own: Trouble | None) -> End | None:
    """Wait for the word that ends the job; None where it does not come."""
    await asyncio.wait((hearing,), timeout=None if own is None else VERDICT_SECONDS)
    word = hearing.result() if hearing.done() else None
    return word if isinstance(word, End) else None


async def _stop(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _cause(end: End) -> str:
    return printable(end.cause or "the job ended before it began")


def _gone(address: str, port: int) -> str:
    return f"the scheduler's launch at {address}:{port} is gone, or cannot be reached any more"
