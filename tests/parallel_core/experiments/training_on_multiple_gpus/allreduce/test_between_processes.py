"""Allreduce between processes: what all ranks must do alike, and what is right only if every rank's
numbers count.

Beside it one TCP connection: who may take part, and that bytes arrive in both directions.
"""

import io
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Array
from backends.process_groups import Group, GroupedBackend, GroupError, Rendezvous
from parallel_core import RequestError, Result
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.training_on_multiple_gpus.allreduce import between_processes, sums
from parallel_core.experiments.training_on_multiple_gpus.allreduce.between_processes import (
    accepted,
    connected,
    other_end,
    stream_between,
)
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.result import bandwidths
from tests.backends.process_groups.threads import together

WHERE = Rendezvous(0, 2, 0, 2, "127.0.0.1", 1, timeout=20)


def on_ranks(counts: Sequence[int], budget: float = 15.0, **changed: object) -> list[Result]:
    asked = {"algorithms": ("native",), "sizes": (40, 4096), "rounds": 2, **changed}

    def program(group: Group) -> Result:
        local = backends.load("numpy", counts[group.rank], threads_per_device=1)
        backend = GroupedBackend(local, group, counts, lambda _: None)
        # Only the first rank's budget may count.
        own = budget if group.rank == 0 else 1e9
        return EXPERIMENTS["allreduce"].run(backend, where=WHERE, budget=own, **asked)

    return together(len(counts), program)


@pytest.mark.parametrize("counts", [(1, 1), (2, 1, 1)])
def test_every_rank_finds_the_same_and_counts_all_devices(counts: tuple[int, ...]) -> None:
    names = [
        f"{name}, {size}" for size in ("40 B", "4 KiB") for name in ("one TCP stream", "native")
    ]
    results = on_ranks(counts)
    for result in results:
        assert result.problems == ()
        assert [case.name for case in result.cases] == names
        assert result.cases == results[0].cases
        assert result.series == results[0].series
    stream, native = (case.median for case in results[0].cases[-2:])
    metrics, devices = results[0].metrics, sum(counts)
    assert metrics["algbw_gb_per_s"] == pytest.approx(4096 / native / 1e9)
    assert metrics["busbw_gb_per_s"] == pytest.approx(
        metrics["algbw_gb_per_s"] * 2 * (devices - 1) / devices
    )
    assert metrics["share_of_stream_bound"] == pytest.approx(stream / native)
    assert results[0].bands.keys() == {"share_of_stream_bound"}
    assert results[0].answer is not None
    assert results[0].answer.would_change.startswith(("A faster network", "More rounds"))
    console = terminal_console(width=100, file=io.StringIO(), record=True)
    console.print(bandwidths(results[0]))
    shown = console.export_text()
    assert "the share of the TCP stream's speed" in " ".join(shown.split())
    assert "%" in next(line for line in shown.splitlines() if "4 KiB" in line)


@pytest.mark.parametrize("wrong", [1, 2, None])
def test_a_wrong_sum_on_one_rank_is_a_problem_on_all(
    monkeypatch: pytest.MonkeyPatch, wrong: int | None
) -> None:
    def inexact(backend: GroupedBackend, vectors: Sequence[Array]) -> tuple[Array, ...]:
        if wrong is None:  # Without the other ranks' numbers.
            return tuple(vectors)
        sums = backend.allreduce(vectors)
        return tuple(total * 1.01 for total in sums) if backend.group.rank == wrong else sums

    monkeypatch.setitem(sums.CHECKED, "native", inexact)
    for result in on_ranks((1, 1, 1), sizes=(64,)):
        assert result.problems[0].startswith("sums differ from NumPy's by ")


def test_how_often_a_sum_is_repeated_is_decided_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {rank: count(1) for rank in range(2)}

    def take(
        backend: GroupedBackend, operation: Callable[[], object], repeats: int
    ) -> tuple[float, float]:
        del operation, repeats
        # What each rank measures is another time, and another one each time.
        seconds = 1e-4 * (1 + backend.group.rank) / next(clocks[backend.group.rank])
        return seconds, seconds

    monkeypatch.setattr(sums, "measure_each", take)
    first, second = on_ranks((1, 1), sizes=(64,))
    assert first.cases == second.cases
    # The slower rank's times, in the fourth run.
    assert first.cases[1].repeats == 40


def test_where_the_sweep_ends_is_decided_by_the_first_rank() -> None:
    first, second = on_ranks((1, 1), sizes=None, budget=1e-3)
    assert first.series["bytes"] == second.series["bytes"] == (4096,)
    assert "The budget of 0.001 s ended the sweep at 4 KiB of 256 MiB" in first.notes[-1]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match="the framework's own: leave --algorithm out"):
        on_ranks((1, 1), sizes=(64,), algorithms=("native", "star"))
    with pytest.raises(RequestError, match="smaller --si"):
        on_ranks((1, 1), sizes=(2**60,))


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=6))
def test_the_stream_leads_to_another_host_where_there_is_one(hosts: list[str]) -> None:
    other = other_end(hosts)
    assert hosts[other] != hosts[0] if len(set(hosts)) > 1 else other == 1


def test_the_stream_carries_the_vector_to_the_other_end_and_back_past_a_third_rank() -> None:
    def program(group: Group) -> tuple[float, bytes]:
        vector = bytearray(b"\1" * 100_001 if group.rank == 0 else 100_001)
        with stream_between(group, WHERE) as carry:
            seconds = carry(memoryview(vector), 3)
        return seconds, bytes(vector)

    (there, sent), (_, arrived), (nothing, untouched) = together(3, program)
    assert there > 0 == nothing
    assert sent == arrived == b"\1" * 100_001
    assert untouched == bytes(100_001)


def test_an_end_that_is_gone_is_another_rank_s_fault() -> None:
    def program(group: Group) -> None:
        with stream_between(group, WHERE) as carry:
            if group.rank == 0:
                with pytest.raises(
                    GroupError, match="the TCP stream between rank 0 and rank 1 broke"
                ):
                    carry(memoryview(bytearray(8)), 1)

    together(2, program)


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
