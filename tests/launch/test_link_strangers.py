"""Strangers do a link no harm, whatever they say or do not say."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallel_core.launch.link.member import take_part
from parallel_core.launch.link.messages import Hello, Role, printable
from tests.launch.linked import (
    HERE,
    Job,
    Work,
    succeed,
    together,
    wait_for_a_moment,
)


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
