"""Processes meet at rank 0, tell each other what they know, and find out who is missing. The ranks are threads."""

import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import pytest

from backends.jax.meeting import Meeting, meet
from backends.process_groups import GroupError
from backends.process_groups.addresses import connect_to, free_port

Returned = TypeVar("Returned")
HERE = "127.0.0.1"
SECONDS = 60.0


def meeting_of(size: int, program: Callable[[Meeting], Returned], port: int) -> "list[Future[Returned]]":
    """Run a program in each rank; return what became of them."""

    def be(rank: int) -> Returned:
        meeting = meet(rank, size, HERE, port, HERE, SECONDS)
        try:
            return program(meeting)
        finally:
            meeting.close()

    with ThreadPoolExecutor(size) as pool:
        return [pool.submit(be, rank) for rank in range(size)]


def test_every_rank_gets_what_each_one_gives_in_the_order_of_ranks() -> None:
    found = meeting_of(3, lambda meeting: meeting.gather({"rank": meeting.rank}), free_port(HERE))
    assert [one.result() for one in found] == [[{"rank": 0}, {"rank": 1}, {"rank": 2}]] * 3


def test_keys_are_passed_on_until_all_are_done() -> None:
    """Each rank is done when it has all keys, and adds a second one when it has the others' first."""

    def program(meeting: Meeting) -> dict[str, str]:
        known = {f"first {meeting.rank}": str(meeting.rank)}

        def keys() -> dict[str, str]:
            if len(known) >= meeting.size:
                known[f"second {meeting.rank}"] = "x"
            return dict(known)

        def add(key: str, value: str) -> None:
            assert key not in known
            known[key] = value

        meeting.pass_on(keys, add, lambda: len(known) == 2 * meeting.size)
        return known

    names = {f"{which} {rank}" for which in ("first", "second") for rank in range(3)}
    assert [set(one.result()) for one in meeting_of(3, program, free_port(HERE))] == [names] * 3


@pytest.mark.parametrize("greeting", [b"", b"GET / HTTP/1.1\r\n\r\n", b"7\n", b"[]\n"])
def test_who_is_none_of_the_ranks_is_sent_away(greeting: bytes) -> None:
    """One that says nothing, one that speaks another language, and one whose rank there is not."""
    port = free_port(HERE)

    def be(rank: int) -> tuple[str, ...]:
        if rank:
            stranger = None
            while stranger is None:
                with suppress(ConnectionRefusedError):
                    stranger = connect_to(HERE, port, SECONDS)
            with stranger:
                stranger.sendall(greeting)
                # What rank 0 has not read when it hangs up comes back as a reset, even before the end is sent.
                with suppress(OSError):
                    stranger.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    assert stranger.recv(1) == b""
        meeting = meet(rank, 2, HERE, port, HERE, SECONDS)
        meeting.close()
        return meeting.hosts

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(be, range(2))) == [(socket.gethostname(),) * 2] * 2


def test_a_rank_that_leaves_is_named_to_rank_0_and_rank_0_to_the_others() -> None:
    def program(meeting: Meeting) -> None:
        if meeting.rank != 1:
            meeting.gather("")

    first, left, other = meeting_of(3, program, free_port(HERE))
    assert left.exception() is None
    for found, gone in ((first, 1), (other, 0)):
        with pytest.raises(GroupError, match=rf"^rank {gone} has gone while the ranks were joining$"):
            found.result()


@pytest.mark.parametrize(("rank", "absent"), [(0, "1, 2"), (1, "0")])
def test_ranks_that_do_not_come_are_named(rank: int, absent: str) -> None:
    with pytest.raises(GroupError, match=rf"^rank {absent} has not joined within 0\.1 s$"):
        meet(rank, 3, HERE, free_port(HERE), HERE, 0.1)
