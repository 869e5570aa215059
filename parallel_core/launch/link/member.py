"""A launch's end of the link: join, run the one process when all have joined, and end it when the hub says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from parallel_core.errors import MeasurementError, RequestError
from parallel_core.launch.link.messages import (
    FROM_HUB,
    LONGEST_LINE,
    End,
    FromHub,
    FromMember,
    Hello,
    Leave,
    LinkError,
    Refused,
    Start,
    Welcome,
    printable,
    receive,
    send,
)
from parallel_core.launch.link.sockets import notice_death

__all__ = ["Work", "take_part"]

WELCOME_SECONDS = 5.0
AGAIN_SECONDS = 0.2
LEAVING_SECONDS = 5.0
"""How long a process may take to end by itself once all ranks have."""
REFUSED = 2


class Work(Protocol):
    """The process of a launch."""

    def joined(self) -> None:
        """Take note that this launch has a place in the job."""

    async def run(self, start: Start, tell: Callable[[FromMember], None]) -> None:
        """Run the process to its end and tell all of it; when this is cancelled, nothing of it is left.

        Raises MeasurementError where the process is lost.
        """

    async def print_stacks(self) -> None:
        """Print what the process's threads are doing, to standard error."""


async def take_part(address: str, port: int, hello: Hello, work: Work, timeout: float) -> None:
    """Take part in the job whose hub listens there, until the job is over.

    `timeout`: seconds in which the hub must answer. Raises MeasurementError, which says who failed and why, where the
    job did, and RequestError where the hub has no place for this launch or the ranks refused the request.
    """
    async with _joined(address, port, hello, timeout) as (reader, writer):
        work.joined()
        try:
            start = await _word(reader)
            if isinstance(start, Start):
                end = await _work(start, work, reader, writer)
            else:
                end = start if isinstance(start, End) else None
        except MeasurementError as error:
            send(writer, Leave(printable(str(error))))
            raise
        except asyncio.CancelledError:
            send(writer, Leave("was interrupted"))
            raise
    if end is None:
        raise MeasurementError(f"the scheduler's launch at {address}:{port} is gone, or cannot be reached any more")
    if end.status:
        kind = RequestError if end.status == REFUSED else MeasurementError
        raise kind(printable(end.cause))


async def _work(start: Start, work: Work, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> End | None:
    """Run the process until the word comes that ends the job, and return it; None where it does not come."""
    process = asyncio.create_task(work.run(start, lambda message: send(writer, message)))
    hearing = asyncio.create_task(_word(reader))
    try:
        await asyncio.wait((process, hearing), return_when=asyncio.FIRST_COMPLETED)
        if process.done():
            process.result()
        word = await hearing
        end = word if isinstance(word, End) else None
        if end and end.status == 0:
            await asyncio.wait((process,), timeout=LEAVING_SECONDS)
        elif end and end.stacks and not process.done():
            await work.print_stacks()
        return end
    finally:
        process.cancel()
        hearing.cancel()
        await asyncio.gather(process, hearing, return_exceptions=True)


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
