"""The link between launches: all join, all end together, the cause is named, and strangers do no harm."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallel_core.errors import MeasurementError, RequestError
from parallel_core.launch.addresses import free_port, listening
from parallel_core.launch.link.hub import hold_together
from parallel_core.launch.link.member import take_part
from parallel_core.launch.link.messages import Advanced, Done, Hello, Role, Start, Trouble, printable

HERE = "127.0.0.1"
# A test that fails must not wait for ever.
ENOUGH = 20
Advance = Callable[[Advanced], None]
Deed = Callable[[Start, Advance], Awaitable[Trouble | None]]


async def succeed(_: Start, advanced: Advance) -> Trouble | None:
    advanced(Advanced(1))
    return None


async def wait_for_ever(_: Start, __: Advance) -> Trouble | None:
    await asyncio.sleep(1000)
    return None


async def train_for_ever(_: Start, advanced: Advance) -> Trouble | None:
    for exchanges in range(1, 100_000):
        advanced(Advanced(exchanges))
        await asyncio.sleep(0.05)
    return None


@dataclass
class Work:
    """A process that is none; `ended` tells whether anything of it is left."""

    deed: Deed
    starts: list[Start] = field(default_factory=list)
    ended: bool = False
    stacks: int = 0

    async def run(self, start: Start, advanced: Advance) -> Trouble | None:
        self.starts.append(start)
        try:
            return await self.deed(start, advanced)
        finally:
            self.ended = True

    async def print_stacks(self) -> None:
        self.stacks += 1


@dataclass
class Job:
    """A hub on loopback, and the launches of a job with its works."""

    workers: int
    servers: int = 0
    timeout: float = 10
    server: socket.socket = field(default_factory=lambda: listening(HERE, 0))

    @property
    def port(self) -> int:
        return int(self.server.getsockname()[1])

    def __post_init__(self) -> None:
        self.where = self.server.getsockname()

    def hub(self) -> Coroutine[None, None, str | None]:
        return hold_together(self.server, self.workers, self.servers, self.timeout)

    def member(self, role: Role, deed: Deed | Work, host: str = "a") -> Coroutine[None, None, None]:
        work = deed if isinstance(deed, Work) else Work(deed)
        hello = Hello(role, host, self.workers, self.servers)
        return take_part(HERE, self.where[1], hello, work, self.timeout)


def together(*parts: Coroutine[None, None, object]) -> list[object]:
    async def all_of_them() -> list[object]:
        async with asyncio.timeout(ENOUGH):
            return await asyncio.gather(*parts, return_exceptions=True)

    return asyncio.run(all_of_them())


def causes(results: list[object]) -> set[str]:
    return {str(result) if isinstance(result, MeasurementError) else repr(result) for result in results}


def test_all_end_well_when_all_workers_are_done() -> None:
    job = Job(workers=2, servers=1)
    works = [Work(succeed) for _ in range(2)]
    serving = [Work(wait_for_ever) for _ in range(2)]

    async def end_by_itself(_: Start, __: Advance) -> Trouble | None:
        await asyncio.sleep(0.2)
        return None

    serving = [Work(end_by_itself), Work(end_by_itself)]
    members = [job.member("worker", work, host) for work, host in zip(works, "ab", strict=True)]
    found = together(job.hub(), *members, job.member("scheduler", serving[0]), job.member("server", serving[1]))
    assert found == [None] * 5
    assert all(work.ended for work in works + serving)


def test_processes_start_when_all_have_joined_and_know_their_place_on_their_host() -> None:
    job = Job(workers=3)
    works = [Work(succeed) for _ in range(3)]

    async def join_in_turn() -> None:
        async with asyncio.TaskGroup() as tasks:
            for role, work, host in (
                ("worker", works[0], "a"),
                ("worker", works[1], "b"),
                ("worker", works[2], "a"),
            ):
                tasks.create_task(job.member(role, work, host))
                await asyncio.sleep(0.1)
                assert not any(work.starts for work in works)
            tasks.create_task(job.member("scheduler", succeed))

    assert together(job.hub(), join_in_turn()) == [None, None]
    assert [work.starts for work in works] == [[Start(0, 0, 2)], [Start(1, 0, 1)], [Start(2, 1, 2)]]


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_a_process_that_fails_ends_all_with_its_name(role: Role) -> None:
    job = Job(workers=2, servers=1)

    async def fail(_: Start, advanced: Advance) -> Trouble | None:
        advanced(Advanced(3))
        return Trouble("was killed by SIGKILL\n\x1b[31m in step 3")

    works = {"scheduler": Work(wait_for_ever), "server": Work(wait_for_ever), "worker": Work(wait_for_ever)}
    other = Work(wait_for_ever)
    works[role] = Work(fail)
    members = [job.member(name, work, f"host-of-{name}") for name, work in works.items()]
    found = together(job.hub(), *members, job.member("worker", other, "z"))
    name = role if role == "scheduler" else f"{role} 0"
    assert causes(found[1:]) == {f"{name} on host-of-{role} was killed by SIGKILL [31m in step 3"}
    assert all(work.ended for work in [*works.values(), other])


def test_a_rank_is_named_when_it_is_known_and_who_fails_by_himself_before_who_notices() -> None:
    job = Job(workers=2)

    async def notice(_: Start, __: Advance) -> Trouble | None:
        return Trouble("noticed that a peer is gone", by_others=True)

    async def fail(_: Start, advanced: Advance) -> Trouble | None:
        advanced(Advanced(3, rank=1))
        await asyncio.sleep(0.3)
        return Trouble("ended with status 3")

    found = together(
        job.hub(), job.member("scheduler", wait_for_ever), job.member("worker", notice), job.member("worker", fail, "b")
    )
    assert causes(found[1:]) == {"rank 1 on b ended with status 3"}


def test_who_notices_is_named_when_nobody_else_failed() -> None:
    job = Job(workers=1)

    async def notice(_: Start, __: Advance) -> Trouble | None:
        return Trouble("noticed that a peer is gone", by_others=True)

    found = together(job.hub(), job.member("scheduler", wait_for_ever), job.member("worker", notice))
    assert causes(found[1:]) == {"worker 0 on a noticed that a peer is gone"}


def test_the_worker_with_the_fewest_exchanges_is_the_one_that_hangs() -> None:
    job = Job(workers=2, timeout=0.5)

    async def hang(_: Start, advanced: Advance) -> Trouble | None:
        advanced(Advanced(4))
        return await wait_for_ever(_, advanced)

    async def wait_for_the_other(_: Start, advanced: Advance) -> Trouble | None:
        advanced(Advanced(5))
        return await wait_for_ever(_, advanced)

    hung, waiting, scheduler = Work(hang), Work(wait_for_the_other), Work(wait_for_ever)
    found = together(
        job.hub(), job.member("worker", hung), job.member("worker", waiting, "b"), job.member("scheduler", scheduler)
    )
    assert len(causes(found)) == 2  # the hub's is a string
    assert str(found[1]).startswith("worker ")
    assert str(found[1]).endswith(" on a made no progress for 0.5 s, at exchange 4")
    assert (hung.stacks, waiting.stacks, scheduler.stacks) == (1, 0, 0)
    assert hung.ended
    assert waiting.ended


def test_progress_keeps_a_job_alive() -> None:
    job = Job(workers=1, timeout=0.5)

    async def train(_: Start, advanced: Advance) -> Trouble | None:
        for exchanges in range(8):
            advanced(Advanced(exchanges))
            await asyncio.sleep(0.1)
        return None

    assert together(job.hub(), job.member("scheduler", succeed), job.member("worker", train)) == [None] * 3


def test_who_does_not_join_is_missed() -> None:
    job = Job(workers=2, servers=2, timeout=0.4)
    work = Work(succeed)
    found = together(job.hub(), job.member("worker", work), job.member("scheduler", succeed))
    assert causes(found[1:]) == {"2 of 2 servers have not joined and 1 of 2 workers has not joined within 0.4 s"}
    assert not work.starts


def test_without_a_scheduler_there_is_nothing_to_join() -> None:
    hello = Hello("worker", "a", 1, 1)
    port = free_port(HERE)
    found = together(take_part(HERE, port, hello, Work(succeed), 0.5))
    said = (
        f"no scheduler's launch answers at {HERE}:{port} within 0.5 s; start one with --role scheduler on the host of"
    )
    assert causes(found) == {f"{said} --root"}


def test_a_launch_may_come_before_the_hub_and_come_again() -> None:
    job = Job(workers=1)
    job.server.close()

    async def late_hub() -> str | None:
        await asyncio.sleep(0.4)
        return await hold_together(listening(*job.where), 1, 0, 10)

    async def leave_and_come_again() -> None:
        first = asyncio.create_task(job.member("worker", succeed))
        await asyncio.sleep(0.9)
        first.cancel()
        await asyncio.wait((first,))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(job.member("worker", succeed))
            tasks.create_task(job.member("scheduler", succeed))

    assert together(late_hub(), leave_and_come_again()) == [None, None]


@pytest.mark.parametrize("rude", [False, True])
def test_a_launch_that_is_gone_ends_all(rude: bool) -> None:
    job = Job(workers=2)
    works = [Work(train_for_ever), Work(wait_for_ever)]

    async def join_and_vanish() -> None:
        reader, writer = await asyncio.open_connection(*job.where)
        writer.write(msgspec.json.encode(Hello("worker", "b", 2, 0)) + b"\n")
        assert b"Welcome" in await reader.readline()
        assert b"Start" in await reader.readline()
        if rude:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    found = together(
        job.hub(), join_and_vanish(), *(job.member(r, w) for r, w in zip(("worker", "scheduler"), works, strict=True))
    )
    assert len(causes(found[2:])) == 1
    assert "on b is gone, or cannot be reached any more" in str(found[2])
    assert all(work.ended for work in works)


def test_a_hub_that_is_gone_ends_all() -> None:
    job = Job(workers=1)
    work = Work(wait_for_ever)

    async def vanish() -> None:
        hub = await asyncio.start_server(lambda *_: None, sock=job.server)

        async def welcome_and_vanish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b'{"type":"Welcome","index":0}\n{"type":"Start","index":0,"local_rank":0,"local_size":1}\n')
            await asyncio.sleep(0.2)
            writer.close()

        hub.close()
        async with await asyncio.start_server(welcome_and_vanish, *job.where):
            await asyncio.sleep(1)

    found = together(vanish(), job.member("worker", work))
    assert str(found[1]) == f"the scheduler's launch at {HERE}:{job.where[1]} is gone, or cannot be reached any more"
    assert work.ended


def test_an_interrupted_hub_ends_all() -> None:
    job = Job(workers=1)
    work = Work(wait_for_ever)

    async def interrupt() -> None:
        hub = asyncio.create_task(job.hub())
        await asyncio.sleep(0.3)
        hub.cancel()
        await asyncio.wait((hub,))

    found = together(interrupt(), job.member("worker", work), job.member("scheduler", wait_for_ever))
    assert causes(found[1:]) == {"the scheduler's launch was interrupted"}
    assert work.ended


def test_an_interrupted_launch_ends_all() -> None:
    job = Job(workers=2)
    work = Work(wait_for_ever)

    async def interrupt() -> None:
        launch = asyncio.create_task(job.member("worker", wait_for_ever, "b"))
        await asyncio.sleep(0.3)
        launch.cancel()
        await asyncio.wait((launch,))

    found = together(job.hub(), interrupt(), job.member("worker", work), job.member("scheduler", wait_for_ever))
    assert len(causes(found[2:])) == 1
    assert str(found[2]).endswith(" on b was interrupted")


def test_a_launch_too_many_is_refused_and_the_job_goes_on() -> None:
    job = Job(workers=1)

    async def train(_: Start, __: Advance) -> Trouble | None:
        await asyncio.sleep(0.6)
        return None

    async def come_late() -> object:
        await asyncio.sleep(0.3)
        return await asyncio.gather(job.member("worker", succeed, "b"), return_exceptions=True)

    found = together(job.hub(), job.member("worker", train, "c"), job.member("scheduler", succeed), come_late())
    (refusal,) = found.pop()  # type: ignore[misc]
    assert found == [None] * 3
    assert isinstance(refusal, RequestError)
    assert str(refusal) == "the job has all workers that it needs, on c"


def test_a_launch_for_another_job_is_refused() -> None:
    job = Job(workers=1, servers=1, timeout=1)
    found = together(job.hub(), take_part(*job.where, Hello("worker", "a", 2, 1), Work(succeed), 1))
    assert isinstance(found[1], RequestError)
    assert str(found[1]) == (
        "this launch has --processes 2 --servers 1, and the scheduler's has --processes 1 --servers 1"
    )


def disturbed_by(*strangers: Callable[[tuple[str, int]], Awaitable[None]]) -> list[object]:
    """Run a job with strangers who come before it has begun and while it runs."""
    job = Job(workers=1)

    async def train(_: Start, __: Advance) -> Trouble | None:
        await asyncio.sleep(0.5)
        return None

    async def later(coroutine: Coroutine[None, None, None], seconds: float) -> None:
        await asyncio.sleep(seconds)
        await coroutine

    async def disturb(stranger: Callable[[tuple[str, int]], Awaitable[None]], seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError):
            await stranger(job.where)

    disturbances = [disturb(stranger, seconds) for stranger in strangers for seconds in (0, 0.5)]
    works = later(job.member("worker", train), 0.3), later(job.member("scheduler", succeed), 0.3)
    return together(job.hub(), *works, *disturbances)


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
    await asyncio.sleep(1)
    writer.close()


async def say_megabytes(where: tuple[str, int]) -> None:
    await say(where, b"x" * 5_000_000)


async def say_nonsense(where: tuple[str, int]) -> None:
    for what in (
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x80\x04\x95.\n",
        b"[" * 8000 + b"\n",
        b'{"type":"Done"}\n',
        b'{"type":"Trouble","cause":"ha"}\n',
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


@settings(max_examples=5)
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


def test_messages_are_told_apart() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Done()), type=Done | Trouble | Advanced) == Done()
