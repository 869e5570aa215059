"""One TCP connection between two processes: who may take part, and that bytes arrive in both directions."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import monotonic

import pytest

from parallel_core.experiments.training_on_multiple_gpus.allreduce import between_processes
from parallel_core.experiments.training_on_multiple_gpus.allreduce.between_processes import accepted, connected

LOOPBACK = "127.0.0.1"
SECRET = b"secret"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as opened:
        yield opened


def connect(listener: socket.socket, secret: bytes = SECRET) -> socket.socket:
    return connected(LOOPBACK, listener.getsockname()[1], secret, 10)


@pytest.mark.parametrize("length", [0, 5, 3_000_001])
def test_all_bytes_arrive_both_ways(listener: socket.socket, length: int) -> None:
    sent, received = bytearray(b"\1" * length), bytearray(length)

    def take_part() -> None:
        with connect(listener) as other:
            between_processes.answer_round_trip(other, memoryview(received))

    with ThreadPoolExecutor(1) as other:
        taking_part = other.submit(take_part)
        with accepted(listener, SECRET, 10) as connection:
            assert between_processes.round_trip(connection, memoryview(sent)) > 0
            taking_part.result()
            # Nothing of the answer is left.
            assert connection.recv(1) == b""
    assert sent == received == b"\1" * length


def test_strangers_are_turned_away_and_the_right_one_gets_in(listener: socket.socket) -> None:
    def strangers_first() -> None:
        socket.create_connection(listener.getsockname()).close()
        with pytest.raises(OSError, match=r"closed the connection|reset"):
            connect(listener, b"guessed")
        connect(listener).close()

    # One who says nothing does not keep it out either.
    with socket.create_connection(listener.getsockname()), ThreadPoolExecutor(1) as other:
        right = other.submit(strangers_first)
        accepted(listener, SECRET, 60).close()
        right.result()


def test_another_program_s_answer_is_refused(listener: socket.socket) -> None:
    def impostor() -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.sendall(b"?" * len(connection.recv(100)))

    with ThreadPoolExecutor(1) as other:
        other.submit(impostor)
        with pytest.raises(ConnectionError, match="another program answers"):
            connect(listener)


def test_nobody_is_waited_for_longer_than_was_said(listener: socket.socket) -> None:
    # One who connects and says nothing must not lengthen it.
    with socket.create_connection(listener.getsockname()):
        start = monotonic()
        with pytest.raises(TimeoutError):
            accepted(listener, SECRET, 0.2)
    assert monotonic() - start < 5


def test_a_side_that_leaves_is_an_error_and_no_wait(listener: socket.socket) -> None:
    with ThreadPoolExecutor(1) as other:
        left = other.submit(lambda: connect(listener).close())
        with accepted(listener, SECRET, 10) as connection:
            left.result()
            with pytest.raises(ConnectionError):
                between_processes.round_trip(connection, memoryview(bytearray(2)))
