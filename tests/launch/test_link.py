"""The link between launches: all join, all end together, the cause is named, and strangers do no harm."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallel_core.errors import MeasurementError, RequestError
from parallel_core.launch.addresses import free_port, listening
from parallel_core.launch.causes import Verdict
from parallel_core.launch.link.hub import hold_together
from parallel_core.launch.link.member import take_part
from parallel_core.launch.link.messages import FromMember, Hello, Role, Start, printable
from parallel_core.launch.reports import Ended, Failed, Printed, Progress, Reported

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
    server: socket.socket = field(default_factory=lambda: listening(HERE, 0))

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


def test_all_end_well_when_all_workers_are_done() -> None:
    job = Job(workers=2, servers=1)

    async def end_by_itself(_: str, __: Tell) -> int:
        await asyncio.sleep(0.2)
        return 0

    works = {host: Work(succeed) for host in "ab"}
    serving: dict[Role, Work] = {"scheduler": Work(end_by_itself), "server": Work(end_by_itself)}
    found = together(
        job.hub(),
        *(job.member("worker", work, host) for host, work in works.items()),
        *(job.member(role, work) for role, work in serving.items()),
    )
    assert found == [None] * 5
    assert all(work.over and work.places == 1 for work in [*works.values(), *serving.values()])


def test_processes_start_when_all_have_joined_and_ranks_are_counted_by_hosts() -> None:
    job = Job(workers=3)
    works = [Work(succeed) for _ in range(3)]

    async def join_in_turn() -> None:
        async with asyncio.TaskGroup() as tasks:
            for host, work in zip("aba", works, strict=True):
                tasks.create_task(job.member("worker", work, host))
                await asyncio.sleep(0.1)
                assert not any(work.starts for work in works)
            tasks.create_task(job.member("scheduler", succeed))

    assert together(job.hub(), join_in_turn()) == [None, None]
    names = [[start.name for start in work.starts] for work in works]
    assert names == [["rank 0"], ["rank 2"], ["rank 1"]]
    assert {start.slots for work in works for start in work.starts} == {(2, 1)}


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_a_process_that_dies_ends_all_with_its_name(role: Role) -> None:
    job = Job(workers=2, servers=1)

    async def die(name: str, tell: Tell) -> int:
        tell(Printed(name, b"bad news\x1b[31m\n", True))
        return -11

    works: dict[Role, Work] = {"scheduler": Work(wait_for_ever), "server": Work(wait_for_ever)}
    works |= {"worker": Work(wait_for_ever), role: Work(die)}
    members = [job.member(name, work, f"host-of-{name}") for name, work in works.items()]
    other = Work(wait_for_ever)
    found = together(job.hub(), *members, job.member("worker", other, "z"))
    (cause,) = said(found)
    names = {"scheduler": "scheduler", "server": "server 0", "worker": "rank 0"}
    assert cause.startswith(f"{names[role]} on host-of-{role} was killed by SIGSEGV")
    assert "it said last: bad news" in cause
    assert cause.isprintable()
    assert all(isinstance(error, MeasurementError) for error in found[1:])
    assert all(work.over for work in [*works.values(), other])


def test_who_fails_by_himself_is_named_before_who_notices() -> None:
    job = Job(workers=2)

    async def notice(name: str, tell: Tell) -> int:
        tell(Reported(name, Failed("a peer is gone", True, 1)))
        return 1

    async def fail(name: str, tell: Tell) -> int:
        tell(Reported(name, Progress(3)))
        await asyncio.sleep(0.3)
        tell(Reported(name, Failed("the disk is full", False, 1)))
        return 1

    works = job.member("worker", notice), job.member("worker", fail, "b")
    (cause,) = said(together(job.hub(), job.member("scheduler", wait_for_ever), *works))
    assert cause == "rank 1 on b: the disk is full"


def test_a_request_that_all_ranks_refuse_is_refused() -> None:
    job = Job(workers=2)

    async def refuse(name: str, tell: Tell) -> int:
        tell(Reported(name, Failed("such a thing cannot be", False, 2)))
        return 2

    members = job.member("worker", refuse), job.member("worker", refuse, "b"), job.member("scheduler", wait_for_ever)
    found = together(job.hub(), *members)
    assert said(found) == {"such a thing cannot be"}
    assert all(isinstance(error, RequestError) for error in found[1:])


def test_the_worker_with_the_fewest_exchanges_is_the_one_that_hangs() -> None:
    job = Job(workers=2, timeout=0.5)

    async def hang(name: str, tell: Tell) -> int:
        tell(Reported(name, Progress(4 if name == "rank 1" else 5)))
        return await wait_for_ever(name, tell)

    works = [Work(hang), Work(hang)]
    members = [job.member("worker", work, host) for work, host in zip(works, "ab", strict=True)]
    (cause,) = said(together(job.hub(), *members, job.member("scheduler", wait_for_ever)))
    assert cause.startswith("rank 1 on ")
    assert "has made no progress" in cause
    assert [work.stacks for work in works] == [1, 1]
    assert all(work.over for work in works)


def test_progress_keeps_a_job_alive() -> None:
    job = Job(workers=1, timeout=0.5)

    async def train(name: str, tell: Tell) -> int:
        for exchanges in range(8):
            tell(Reported(name, Progress(exchanges)))
            await asyncio.sleep(0.1)
        return 0

    assert together(job.hub(), job.member("scheduler", wait_for_a_moment), job.member("worker", train)) == [None] * 3


async def wait_for_a_moment(_: str, __: Tell) -> int:
    await asyncio.sleep(0.6)
    return 0


def test_who_does_not_join_is_missed() -> None:
    job = Job(workers=2, servers=2, timeout=0.4)
    work = Work(succeed)
    found = together(job.hub(), job.member("worker", work), job.member("scheduler", succeed))
    assert said(found) == {"2 of 2 servers have not joined and 1 of 2 workers has not joined within 0.4 s"}
    assert not work.starts


def test_without_a_scheduler_there_is_nothing_to_join() -> None:
    port = free_port(HERE)
    found = together(take_part(HERE, port, Hello("worker", "a", 1, 1), Work(succeed), 0.5))
    answer = f"no scheduler's launch answers at {HERE}:{port} within 0.5 s; start one with --role scheduler on the host"
    assert said(found) == {f"{answer} of --root"}


def test_a_launch_may_come_before_the_hub_and_come_again() -> None:
    job = Job(workers=1)
    job.server.close()

    async def late_hub() -> Verdict:
        await asyncio.sleep(0.4)
        return await hold_together(listening(*job.where), 1, 0, 10)

    async def leave_and_come_again() -> None:
        first = Work(succeed)
        leaving = asyncio.create_task(job.member("worker", first))
        while not first.places:
            await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.wait((leaving,))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(job.member("worker", succeed))
            tasks.create_task(job.member("scheduler", succeed))

    assert together(late_hub(), leave_and_come_again()) == [None, None]


async def join(job: Job, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Join as a worker, without a launch."""
    reader, writer = await asyncio.open_connection(*job.where)
    writer.write(msgspec.json.encode(Hello("worker", host, job.workers, job.servers)) + b"\n")
    assert b"Welcome" in await reader.readline()
    return reader, writer


SPEAKING_FOR_ANOTHER = b"".join(msgspec.json.encode(Ended(name, 0)) + b"\n" for name in ("rank 0", "rank 1"))


@pytest.mark.parametrize("last", [b"", b"nonsense\n", SPEAKING_FOR_ANOTHER, None])
def test_a_launch_that_is_gone_or_lies_ends_all(last: bytes | None) -> None:
    job = Job(workers=2)
    works: dict[Role, Work] = {"worker": Work(train_for_ever), "scheduler": Work(wait_for_ever)}

    async def join_and_vanish() -> None:
        reader, writer = await join(job, "b")
        assert b"Start" in await reader.readline()
        if last is None:
            # The connection is reset.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.write(last or b"")
        writer.close()

    async def come_second() -> None:
        await asyncio.sleep(0.2)
        await join_and_vanish()

    members = [job.member(role, work) for role, work in works.items()]
    found = together(job.hub(), come_second(), *members)
    del found[1]
    assert said(found) == {"the launch of rank 1 on b is gone, or cannot be reached any more"}
    assert all(work.over for work in works.values())


def test_a_launch_whose_process_is_lost_says_so() -> None:
    job = Job(workers=1)

    async def lose(_: str, __: Tell) -> int:
        raise MeasurementError("lost its agent: it was killed")

    found = together(job.hub(), job.member("worker", lose), job.member("scheduler", wait_for_ever))
    assert found[0] == str(found[2]) == "the launch of rank 0 on a lost its agent: it was killed"


def test_a_hub_that_is_gone_ends_all() -> None:
    job = Job(workers=1)
    job.server.close()
    work = Work(wait_for_ever)

    async def vanish() -> None:
        async def welcome_and_vanish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b'{"type":"Welcome"}\n{"type":"Start","name":"rank 0","slots":[1]}\n')
            await asyncio.sleep(0.1)
            writer.close()

        async with await asyncio.start_server(welcome_and_vanish, *job.where):
            await asyncio.sleep(0.5)

    found = together(vanish(), job.member("worker", work))
    assert str(found[1]) == f"the scheduler's launch at {HERE}:{job.where[1]} is gone, or cannot be reached any more"
    assert work.over


@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupted_hub_ends_all(begun: bool) -> None:
    job = Job(workers=1)
    work = Work(wait_for_ever)

    async def interrupt() -> None:
        hub = asyncio.create_task(job.hub())
        await asyncio.sleep(0.3)
        hub.cancel()
        await asyncio.wait((hub,))

    scheduler = [job.member("scheduler", wait_for_ever)] if begun else []
    found = together(interrupt(), job.member("worker", work), *scheduler)
    assert said(found[1:]) == {"the scheduler's launch was interrupted"}
    assert work.over == begun


def test_an_interrupted_launch_ends_all() -> None:
    job = Job(workers=2)
    work = Work(wait_for_ever)

    async def interrupt() -> None:
        launch = asyncio.create_task(job.member("worker", wait_for_ever, "b"))
        await asyncio.sleep(0.3)
        launch.cancel()
        await asyncio.wait((launch,))

    found = together(job.hub(), job.member("worker", work), job.member("scheduler", wait_for_ever), interrupt())
    (cause,) = said(found[:3])
    assert cause.endswith(" on b was interrupted")
    assert work.over


def test_a_launch_too_many_is_refused_and_the_job_goes_on() -> None:
    job = Job(workers=1)

    async def come_late() -> Any:
        await asyncio.sleep(0.3)
        return await asyncio.gather(job.member("worker", succeed, "b"), return_exceptions=True)

    worker, scheduler = job.member("worker", wait_for_a_moment, "c"), job.member("scheduler", wait_for_a_moment)
    *others, (refusal,) = together(job.hub(), worker, scheduler, come_late())
    assert others == [None] * 3
    assert isinstance(refusal, RequestError)
    assert str(refusal) == "the job has all workers that it needs on c"


def test_a_launch_for_another_job_is_refused() -> None:
    job = Job(workers=1, servers=1, timeout=0.4)
    _, refusal = together(job.hub(), take_part(*job.where, Hello("worker", "a", 2, 1), Work(succeed), 1))
    assert isinstance(refusal, RequestError)
    here, there = "--processes 2 --servers 1", "--processes 1 --servers 1"
    assert str(refusal) == f"this launch has {here}, and the scheduler's has {there}"


def disturbed_by(stranger: Callable[[tuple[str, int]], Awaitable[None]]) -> list[Any]:
    """Run a job with a stranger who comes before it has begun and again while it runs."""
    job = Job(workers=1)

    async def late(role: Role) -> None:
        await asyncio.sleep(0.1)
        await job.member(role, wait_for_a_moment)

    async def disturb(seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            await stranger(job.where)

    return together(job.hub(), late("worker"), late("scheduler"), disturb(0), disturb(0.3))


async def say(where: tuple[str, int], what: bytes) -> None:
    _, writer = await asyncio.open_connection(*where)
    try:
        writer.write(what)
        await writer.drain()
        await asyncio.sleep(0.1)
    finally:
        writer.close()


async def say_nothing(where: tuple[str, int]) -> None:
    _, writer = await asyncio.open_connection(*where)
    await asyncio.sleep(0.6)
    writer.close()


async def say_megabytes(where: tuple[str, int]) -> None:
    await say(where, b"x" * 5_000_000)


async def say_nonsense(where: tuple[str, int]) -> None:
    for what in (
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x80\x04\x95.\n",
        b"[" * 8000 + b"\n",
        b'{"type":"Start","name":"rank 0","slots":[1]}\n',
        b'{"type":"Leave","reason":"ha"}\n',
        b'{"type":"Ended","process":"rank 0","status":1}\n',
        b'{"type":"Hello","role":"king","host":"a","workers":1,"servers":0}\n',
        b'{"type":"Hello","role":"worker","host":"' + b"a" * 300 + b'","workers":1,"servers":0}\n',
        b'{"type":"Hello","role":"worker","host":"a","workers":-1,"servers":0}\n',
    ):
        await say(where, what)


async def come_in_crowds(where: tuple[str, int]) -> None:
    connections = await asyncio.gather(*(asyncio.open_connection(*where) for _ in range(200)))
    await asyncio.sleep(0.1)
    for _, writer in connections:
        writer.close()


@pytest.mark.parametrize("stranger", [say_nothing, say_megabytes, say_nonsense, come_in_crowds])
def test_strangers_do_no_harm(stranger: Callable[[tuple[str, int]], Awaitable[None]]) -> None:
    assert disturbed_by(stranger)[:3] == [None] * 3


@settings(max_examples=3)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_no_bytes_do_harm(sayings: list[bytes]) -> None:
    async def stranger(where: tuple[str, int]) -> None:
        await asyncio.gather(*(say(where, saying) for saying in sayings))

    assert disturbed_by(stranger)[:3] == [None] * 3


def test_what_answers_and_is_no_hub_is_not_believed() -> None:
    async def mock(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(os.urandom(100_000))
            await writer.drain()
        writer.close()

    async def try_to_join() -> None:
        async with await asyncio.start_server(mock, HERE, 0) as server:
            where = server.sockets[0].getsockname()
            try:
                await take_part(*where, Hello("worker", "a", 1, 0), Work(succeed), 0.5)
            finally:
                await asyncio.sleep(0.1)

    (found,) = together(try_to_join())
    assert "no scheduler's launch answers" in str(found)


@given(st.text())
def test_what_is_printed_is_one_line_that_does_nothing(text: str) -> None:
    shown = printable(text)
    assert shown == "" or shown.isprintable()
    assert len(shown) <= 1000
    if text.isprintable() and len(text) < 1000:
        assert shown == " ".join(text.split())
