"""The hub of the link, in the scheduler's launch: who has joined, who failed, and the word that ends everything.

Strangers do no harm: what does not say Hello soon, in one short line, is closed, and only so many may try at a time.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from parallel_core.launch.link.messages import (
    FROM_MEMBER,
    HELLO,
    Advanced,
    Done,
    End,
    FromMember,
    Hello,
    LinkError,
    Refused,
    Role,
    Start,
    Trouble,
    Welcome,
    printable,
    receive,
    send,
)
from parallel_core.launch.link.sockets import LONGEST_LINE, notice_death

__all__ = ["hold_together"]

HELLO_SECONDS = 5.0
MOST_STRANGERS = 64
SETTLING_SECONDS = 2.0
"""How long a better cause is waited for when a process only noticed that another one is gone."""
PARTING_SECONDS = 10.0
"""How long the launches have to end their processes and hang up."""


@dataclass(eq=False)
class Member:
    """A launch that has joined; `number` is its place among those of its role."""

    hello: Hello
    number: int
    writer: asyncio.StreamWriter
    progress: Advanced = field(default_factory=Advanced)
    done: bool = False

    def __str__(self) -> str:
        who: str = self.hello.role
        if who == "worker" and self.progress.rank is not None:
            who = f"rank {self.progress.rank}"
        elif who != "scheduler":
            who = f"{who} {self.number}"
        return f"{who} on {printable(self.hello.host)}"


@dataclass(frozen=True)
class Verdict:
    """How the job ended: well where there is no cause. `hung` are those whose stacks tell more."""

    cause: str | None
    hung: tuple[Member, ...] = ()


@dataclass
class Hub:
    """The launches that have joined a job of so many of each role, and what they say, in the order in which it came."""

    wanted: dict[Role, int]
    members: list[Member] = field(default_factory=list)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    heard: asyncio.Queue[tuple[Member, Hello | FromMember | None]] = field(default_factory=asyncio.Queue)
    begun: bool = False

    def those(self, role: Role) -> list[Member]:
        """Return the members of a role."""
        return [member for member in self.members if member.hello.role == role]

    def missing(self) -> Iterator[str]:
        """Say for each role how many have not joined."""
        for role, wanted in self.wanted.items():
            missing = wanted - len(self.those(role))
            if missing and wanted == 1:
                yield f"the {role} has not joined"
            elif missing:
                yield f"{missing} of {wanted} {role}s {'has' if missing == 1 else 'have'} not joined"


async def hold_together(server: socket.socket, workers: int, servers: int, timeout: float) -> str | None:
    """Hold a job's launches together until the job is over, and return the cause where it failed.

    `server` listens already, and is closed at the end. `timeout`: within so many seconds all must join, and later none
    may pass without progress.
    """
    hub = Hub({"scheduler": 1, "server": servers, "worker": workers})

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(hub.writers) < workers + servers + 1 + MOST_STRANGERS:
            hub.writers.add(writer)
            await _attend(hub, reader, writer)
            hub.writers.discard(writer)
        writer.close()

    listener = await asyncio.start_server(attend, sock=server, limit=LONGEST_LINE)
    verdict = Verdict("the scheduler's launch was interrupted")
    try:
        verdict = await _begin(hub, timeout) or await _judge(hub, timeout)
    finally:
        listener.close()
        cause = verdict.cause and printable(verdict.cause)
        for member in hub.members:
            send(member.writer, End(cause, stacks=member in verdict.hung))
        await _part(hub)
    return verdict.cause


async def _attend(hub: Hub, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hear a connection out: find whether it belongs to the job, and pass on what it says."""
    notice_death(writer)
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            hello = await receive(reader, HELLO)
    except (LinkError, TimeoutError):
        return
    if hello is None:
        return
    reason = _reason_against(hub, hello)
    if reason:
        send(writer, Refused(printable(reason)))
        return
    taken = {member.number for member in hub.those(hello.role)}
    number = min(set(range(hub.wanted[hello.role])) - taken)
    member = Member(hello, number, writer)
    hub.members.append(member)
    send(writer, Welcome(number))
    hub.heard.put_nowait((member, hello))
    with contextlib.suppress(LinkError):
        while (message := await receive(reader, FROM_MEMBER)) is not None:
            hub.heard.put_nowait((member, message))
    if not hub.begun:
        # Whoever leaves before the start may come again.
        hub.members.remove(member)
    hub.writers.discard(writer)
    hub.heard.put_nowait((member, None))


def _reason_against(hub: Hub, hello: Hello) -> str | None:
    asked = f"--processes {hello.workers} --servers {hello.servers}"
    wanted = f"--processes {hub.wanted['worker']} --servers {hub.wanted['server']}"
    if asked != wanted:
        return f"this launch has {asked}, and the scheduler's has {wanted}"
    if len(hub.those(hello.role)) < hub.wanted[hello.role]:
        return None
    present = ", ".join(printable(member.hello.host) for member in hub.those(hello.role))
    return f"the job has all {hello.role}s that it needs, on {present or 'no host'}"


async def _begin(hub: Hub, timeout: float) -> Verdict | None:
    """Wait until all have joined and start them; the verdict where they do not join."""
    try:
        async with asyncio.timeout(timeout):
            while any(hub.missing()):
                await hub.heard.get()
    except TimeoutError:
        return Verdict(f"{' and '.join(hub.missing())} within {timeout:g} s")
    hub.begun = True
    for member in hub.members:
        here = [other for other in hub.those(member.hello.role) if other.hello.host == member.hello.host]
        here.sort(key=lambda other: other.number)
        send(member.writer, Start(member.number, here.index(member), len(here)))
    return None


async def _judge(hub: Hub, timeout: float) -> Verdict:
    """Listen to the launches until the job is over."""
    workers = hub.those("worker")
    loop = asyncio.get_running_loop()
    progress = loop.time()
    suspicion, settled = "", float("inf")
    while not all(worker.done for worker in workers):
        try:
            async with asyncio.timeout_at(min(progress + timeout, settled)):
                member, message = await hub.heard.get()
        except TimeoutError:
            return Verdict(suspicion) if suspicion else _hung(hub, timeout)
        match message:
            case Advanced():
                member.progress, progress = message, loop.time()
            case Done():
                member.done, progress = True, loop.time()
            case Trouble(cause=cause, by_others=False):
                return Verdict(f"{member} {printable(cause)}")
            case Trouble(cause=cause):
                # Who noticed first tells more than who noticed later, and less than whoever failed by himself.
                suspicion, settled = suspicion or f"{member} {printable(cause)}", loop.time() + SETTLING_SECONDS
            case None if member in hub.members and not member.done:
                return Verdict(f"the launch of {member} is gone, or cannot be reached any more")
    return Verdict(None)


def _hung(hub: Hub, timeout: float) -> Verdict:
    unfinished = [worker for worker in hub.those("worker") if not worker.done]
    fewest = min(worker.progress.exchanges for worker in unfinished)
    hung = tuple(worker for worker in unfinished if worker.progress.exchanges == fewest)
    ended = [f"; {member} had ended" for member in hub.members if member.done and member.hello.role != "worker"]
    names = " and ".join(map(str, hung))
    return Verdict(f"{names} made no progress for {timeout:g} s, at exchange {fewest}{''.join(ended)}", hung)


async def _part(hub: Hub) -> None:
    """Wait until the members have hung up, and hang up on those that do not."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PARTING_SECONDS):
            while any(member.writer in hub.writers for member in hub.members):
                await hub.heard.get()
    for writer in hub.writers:
        writer.close()
    while hub.writers:
        await asyncio.sleep(0)
