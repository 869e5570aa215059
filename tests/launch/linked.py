"""Launches that a link ties together: real sockets on loopback, and processes that are none."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from parallel_core.launch.addresses import free_port, listening
from parallel_core.launch.causes import Verdict
from parallel_core.launch.link.hub import hold_together
from parallel_core.launch.link.member import take_part
from parallel_core.launch.link.messages import FromMember, Hello, Role, Start
from parallel_core.launch.reports import Ended, Progress, Reported

HERE = "127.0.0.1"
# A test that fails must not wait for ever.
ENOUGH = 20
Tell = Callable[[FromMember], None]
Deed = Callable[[str, Tell], Awaitable[int]]
"""What a process does under its name; it returns its exit status."""


async def succeed(name: str, tell: Tell) -> int:
    tell(Reported(name, Progress(1)))
    return 0


async def wait_for_ever(_: str, __: Tell) -> int:
    await asyncio.sleep(1000)
    return 0


async def train_for_ever(name: str, tell: Tell) -> int:
    for exchanges in range(1, 100_000):
        tell(Reported(name, Progress(exchanges)))
        await asyncio.sleep(0.05)
    return 0


async def wait_for_a_moment(_: str, __: Tell) -> int:
    await asyncio.sleep(0.6)
    return 0


@dataclass
class Work:
    """A process that is none; `over` tells whether nothing of it is left."""

    deed: Deed
    starts: list[Start] = field(default_factory=list)
    over: bool = False
    stacks: int = 0
    places: int = 0

    def joined(self) -> None:
        self.places += 1

    async def run(self, start: Start, tell: Tell) -> None:
        self.starts.append(start)
        try:
            tell(Ended(start.name, await self.deed(start.name, tell)))
        finally:
            self.over = True

    async def print_stacks(self) -> None:
        self.stacks += 1


@dataclass
class Job:
    """A hub on loopback, and the launches of a job with its works."""

    workers: int
    servers: int = 0
    timeout: float = 10
    server: socket.socket = field(default_factory=lambda: listening(HERE, free_port(HERE)))

    def __post_init__(self) -> None:
        self.where: tuple[str, int] = self.server.getsockname()

    def hub(self) -> Coroutine[None, None, Verdict]:
        return hold_together(self.server, self.workers, self.servers, self.timeout)

    def member(self, role: Role, deed: Deed | Work, host: str = "a") -> Coroutine[None, None, None]:
        work = deed if isinstance(deed, Work) else Work(deed)
        return take_part(*self.where, Hello(role, host, self.workers, self.servers), work, self.timeout)


def together(*parts: Coroutine[None, None, Any]) -> list[Any]:
    """Run all of them, and return what they return or raise; a verdict as what launches are to say."""

    async def all_of_them() -> list[Any]:
        async with asyncio.timeout(ENOUGH):
            return await asyncio.gather(*parts, return_exceptions=True)

    return [result.message or None if isinstance(result, Verdict) else result for result in asyncio.run(all_of_them())]


def said(results: list[Any]) -> set[str]:
    """Return what launches say in the end, which should be one and the same."""
    return {str(result) for result in results}
