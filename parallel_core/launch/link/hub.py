"""The hub of the link, in the scheduler's launch: who has joined, and the word that ends everything.

It watches over the processes as the launcher does (`watch.py`), but somebody else started their agents. Strangers do no
harm: what does not say Hello soon, in one short line, is hung up on, and only so many may try at a time.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from parallel_core.launch.causes import Verdict
from parallel_core.launch.link.messages import (
    FROM_MEMBER,
    HELLO,
    LONGEST_LINE,
    End,
    FromMember,
    Hello,
    Leave,
    LinkError,
    Refused,
    Role,
    Start,
    Welcome,
    printable,
    receive,
    send,
)
from parallel_core.launch.link.sockets import notice_death
from parallel_core.launch.process import Process
from parallel_core.launch.reports import Ended
from parallel_core.launch.watch import Watch

__all__ = ["hold_together"]

HELLO_SECONDS = 5.0
MOST_STRANGERS = 64
SHORTEST_LOOK = 0.05
PARTING_SECONDS = 10.0
"""How long the launches have to end their processes and hang up."""
GONE = Leave("is gone, or cannot be reached any more")


@dataclass(eq=False)
class Member:
    """A launch that has joined; its process has a name when all have."""

    hello: Hello
    writer: asyncio.StreamWriter
    name: str = ""
    ended_well: bool = False


@dataclass
class Hub:
    """The launches that have joined a job of so many of each role, and what they say, in the order in which it came."""

    wanted: dict[Role, int]
    members: list[Member] = field(default_factory=list)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    heard: asyncio.Queue[tuple[Member, Hello | FromMember]] = field(default_factory=asyncio.Queue)
    begun: bool = False

    def those(self, role: Role) -> list[Member]:
        """Return the members of a role, in the order in which they joined."""
        return [member for member in self.members if member.hello.role == role]

    def missing(self) -> Iterator[str]:
        """Say for each role how many have not joined."""
        for role, wanted in self.wanted.items():
            missing = wanted - len(self.those(role))
            if missing and wanted == 1:
                yield f"the {role} has not joined"
            elif missing:
                yield f"{missing} of {wanted} {role}s {'has' if missing == 1 else 'have'} not joined"


async def hold_together(server: socket.socket, workers: int, servers: int, timeout: float) -> Verdict:
    """Hold a job's launches together until the job is over, and return what has become of it.

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
        # Processes and hosts have put words of their own into it.
        verdict = replace(verdict, message=printable(verdict.message))
    finally:
        listener.close()
        for member in hub.members:
            send(member.writer, End(verdict.status, verdict.message, verdict.hang))
        await _part(hub)
    return verdict


async def _attend(hub: Hub, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hear a connection out: find whether it belongs to the job, and pass on what it says."""
    notice_death(writer)
    hello = None
    with contextlib.suppress(LinkError, TimeoutError):
        async with asyncio.timeout(HELLO_SECONDS):
            hello = await receive(reader, HELLO)
    if hello is None:
        return
    reason = _reason_against(hub, hello)
    if reason:
        send(writer, Refused(printable(reason)))
        return
    member = Member(hello, writer)
    hub.members.append(member)
    send(writer, Welcome())
    hub.heard.put_nowait((member, hello))
    with contextlib.suppress(LinkError):
        while (message := await receive(reader, FROM_MEMBER)) is not None:
            if not isinstance(message, Leave) and message.process != member.name:
                break
            hub.heard.put_nowait((member, message))
    if not hub.begun:
        # Whoever leaves before the start may come again.
        hub.members.remove(member)
    hub.writers.discard(writer)
    hub.heard.put_nowait((member, GONE))


def _reason_against(hub: Hub, hello: Hello) -> str:
    asked = f"--processes {hello.workers} --servers {hello.servers}"
    wanted = f"--processes {hub.wanted['worker']} --servers {hub.wanted['server']}"
    if asked != wanted:
        return f"this launch has {asked}, and the scheduler's has {wanted}"
    present = hub.those(hello.role)
    if len(present) < hub.wanted[hello.role]:
        return ""
    hosts = ", ".join(member.hello.host for member in present)
    return f"the job has all {hello.role}s that it needs{' on ' * bool(present)}{hosts}"


async def _begin(hub: Hub, timeout: float) -> Verdict | None:
    """Wait until all have joined and start them; the verdict where they do not join."""
    try:
        async with asyncio.timeout(timeout):
            while any(hub.missing()):
                await hub.heard.get()
    except TimeoutError:
        return Verdict(f"{' and '.join(hub.missing())} within {timeout:g} s")
    hub.begun = True
    slots = Counter(member.hello.host for member in hub.those("worker"))
    places = list(slots)
    ranks = sorted(hub.those("worker"), key=lambda member: places.index(member.hello.host))
    for kind, members in (("rank", ranks), ("server", hub.those("server"))):
        for number, member in enumerate(members):
            member.name = f"{kind} {number}"
    hub.those("scheduler")[0].name = "scheduler"
    for member in hub.members:
        send(member.writer, Start(member.name, tuple(slots.values())))
    return None


async def _judge(hub: Hub, timeout: float) -> Verdict:
    """Watch over the processes until it is clear what has become of the job."""
    loop = asyncio.get_running_loop()
    processes = [Process(member.name, index, (), {}) for index, member in enumerate(hub.members)]
    watch = Watch(processes, [member.hello.host for member in hub.members], timeout, loop.time())
    while (verdict := watch.decide(loop.time())) is None:
        try:
            async with asyncio.timeout(max(SHORTEST_LOOK, watch.next_look() - loop.time())):
                member, message = await hub.heard.get()
        except TimeoutError:
            continue
        if message == Ended(member.name, 0):
            member.ended_well = True
        if isinstance(message, Leave) and member in hub.members and not member.ended_well:
            return Verdict(f"the launch of {member.name} on {member.hello.host} {message.reason}")
        if not isinstance(message, Hello | Leave):
            watch.see(message, loop.time())
    return verdict


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
