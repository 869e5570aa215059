"""The link between launches: all join, all end together, and the cause is named."""

import asyncio
import socket
import struct
from typing import Any

import msgspec
import pytest

from parallel_core.errors import MeasurementError, RequestError
from parallel_core.launch.addresses import free_port, listening
from parallel_core.launch.causes import Verdict
from parallel_core.launch.link.hub import hold_together
from parallel_core.launch.link.member import take_part
from parallel_core.launch.link.messages import Hello, Role
from parallel_core.launch.reports import Ended, Failed, Printed, Progress, Reported
from tests.launch.linked import (
    HERE,
    Job,
    Tell,
    Work,
    said,
    succeed,
    together,
    train_for_ever,
    wait_for_a_moment,
    wait_for_ever,
)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a verdict wait for a moment only where nothing that comes later could change it."""
    monkeypatch.setattr("parallel_core.launch.watch.GRACE_SECONDS", 0.2)


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


@pytest.mark.usefixtures("short_grace")
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


@pytest.mark.usefixtures("short_grace")
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
