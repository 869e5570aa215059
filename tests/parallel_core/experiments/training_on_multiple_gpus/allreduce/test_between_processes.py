"""Allreduce between processes: what all ranks must do alike, and what is right only if every rank's
numbers count.

Beside it one TCP connection: who may take part, and that bytes arrive in both directions.
"""

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
from parallel_core.experiments.runner.trial import budget_ended
from parallel_core.experiments.training_on_multiple_gpus.allreduce import sums
from parallel_core.experiments.training_on_multiple_gpus.allreduce.between_processes import (
    accepted,
    connected,
    other_end,
    stream_between,
)
from parallel_core.measurement.checks import values_differ
from tests.backends.process_groups.threads import together

WHERE = Rendezvous(0, 2, 0, 2, "127.0.0.1", 1, timeout=20)


def on_ranks(device_counts: Sequence[int], budget: float = 15.0, **changes: object) -> list[Result]:
    """Run `allreduce` in ranks with these numbers of devices, and return all ranks' results."""
    options = {"algorithms": ("native",), "sizes": (40, 4096), "rounds": 2, **changes}

    def program(group: Group) -> Result:
        local = backends.load("numpy", device_counts[group.rank], threads_per_device=1)
        backend = GroupedBackend(local, group, device_counts, lambda _: None)
        # Only the first rank's budget may count.
        budget_of_rank = budget if group.rank == 0 else 1e9
        return EXPERIMENTS["allreduce"].run(backend, where=WHERE, budget=budget_of_rank, **options)

    return together(len(device_counts), program)


@pytest.mark.parametrize("device_counts", [(1, 1), (2, 1, 1)])
def test_every_rank_finds_the_same_and_counts_all_devices(device_counts: tuple[int, ...]) -> None:
    first, *results = on_ranks(device_counts)
    assert first.problems == ()
    for result in results:
        assert result.problems == ()
        assert (result.cases, result.series) == (first.cases, first.series)
    medians = {case.name: case.median for case in first.cases}
    assert len(medians) == 4
    native, stream = medians["native, 4 KiB"], medians["one TCP stream, 4 KiB"]
    devices = sum(device_counts)
    algorithm_bandwidth = 4096 / native / 1e9
    bus_bandwidth = algorithm_bandwidth * 2 * (devices - 1) / devices
    assert first.metrics["algbw_gb_per_s"] == pytest.approx(algorithm_bandwidth)
    assert first.metrics["busbw_gb_per_s"] == pytest.approx(bus_bandwidth)
    assert first.metrics["share_of_stream_bound"] == pytest.approx(stream / native)
    assert first.bands.keys() == {"share_of_stream_bound"}


def without_other_ranks(_: GroupedBackend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Return the vectors of this rank instead of their sum over all ranks."""
    return tuple(vectors)


def inexact_on_rank(rank: int) -> Callable[..., Sequence[Array]]:
    """Return a sum that is too large by a hundredth on a single rank."""

    def inexact(backend: GroupedBackend, vectors: Sequence[Array]) -> Sequence[Array]:
        totals = backend.allreduce(vectors)
        if backend.group.rank == rank:
            return tuple(total * 1.01 for total in totals)
        return totals

    return inexact


@pytest.mark.parametrize(
    "wrong_sum",
    [inexact_on_rank(1), inexact_on_rank(2), without_other_ranks],
    ids=["on-rank-1", "on-rank-2", "without-other-ranks"],
)
def test_a_wrong_sum_on_a_rank_is_a_problem_on_all(
    monkeypatch: pytest.MonkeyPatch, wrong_sum: Callable[..., Sequence[Array]]
) -> None:
    monkeypatch.setitem(sums.CHECKED, "native", wrong_sum)
    for result in on_ranks((1, 1, 1), sizes=(64,)):
        assert result.problems[0] == values_differ("sums", result.checks["max_relative_error"])


def test_how_often_a_sum_is_repeated_is_decided_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    runs_of_ranks = count(1), count(1)

    def measure_each(backend: GroupedBackend, *_: object) -> tuple[float, float]:
        # What each rank measures is another time, and another one each time.
        rank = backend.group.rank
        seconds = 1e-4 * (1 + rank) / next(runs_of_ranks[rank])
        return seconds, seconds

    monkeypatch.setattr(sums, "measure_each", measure_each)
    first, second = on_ranks((1, 1), sizes=(64,))
    assert first.cases == second.cases
    # The slower rank's times, in the fourth run.
    assert first.cases[1].repeats == 40


def test_where_the_sweep_ends_is_decided_by_the_first_rank() -> None:
    first, second = on_ranks((1, 1), sizes=None, budget=1e-3)
    assert first.series["bytes"] == second.series["bytes"] == (4096,)
    assert first.notes[-1] == budget_ended("the sweep", "4 KiB of 256 MiB")


def test_an_algorithm_of_ours_and_a_size_beyond_memory_are_refused() -> None:
    with pytest.raises(RequestError, match="the framework's own: leave --algorithm out"):
        on_ranks((1, 1), sizes=(64,), algorithms=("native", "star"))
    with pytest.raises(RequestError, match="smaller --si"):
        on_ranks((1, 1), sizes=(2**60,))


@given(hosts=st.lists(st.sampled_from("abc"), min_size=2, max_size=6))
def test_the_stream_leads_to_another_host_where_there_is_one(hosts: list[str]) -> None:
    rank = other_end(hosts)
    if len(set(hosts)) > 1:
        assert hosts[rank] != hosts[0]
    else:
        assert rank == 1


@pytest.mark.parametrize("length", [0, 5, 3_000_001])
def test_the_stream_carries_the_vector_to_the_other_end_and_back_past_a_third_rank(
    length: int,
) -> None:
    # A number of rounds in which a byte is left over, or lacking, would shift the next ones.
    counting = bytes(number % 251 for number in range(length))

    def program(group: Group) -> tuple[float, bytes]:
        vector = bytearray(counting if group.rank == 0 else length)
        with stream_between(group, WHERE) as carry:
            seconds = carry(memoryview(vector), 3)
        return seconds, bytes(vector)

    (seconds, sent), (_, arrived), (seconds_of_third, untouched) = together(3, program)
    assert seconds > 0
    assert seconds_of_third == 0
    assert sent == arrived == counting
    assert untouched == bytes(length)


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
    """A socket that listens at a free port."""
    with socket.create_server((LOOPBACK, 0)) as opened:
        yield opened


def connect(listener: socket.socket, secret: bytes = SECRET) -> socket.socket:
    """Connect to a listener, and prove to know the secret."""
    port = listener.getsockname()[1]
    return connected(LOOPBACK, port, secret, 10)


def test_strangers_are_turned_away_and_who_knows_the_secret_gets_in(
    listener: socket.socket,
) -> None:
    address = listener.getsockname()

    def connect_after_strangers() -> None:
        socket.create_connection(address).close()
        with pytest.raises(OSError, match=r"closed the connection|reset"):
            connect(listener, b"guessed")
        connect(listener).close()

    # A stranger who says nothing does not keep others out either.
    with socket.create_connection(address), ThreadPoolExecutor(1) as other_side:
        connecting = other_side.submit(connect_after_strangers)
        accepted(listener, SECRET, 60).close()
        connecting.result()


def test_another_program_s_answer_is_refused(listener: socket.socket) -> None:
    def answer_wrongly() -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.sendall(b"?" * len(connection.recv(100)))

    with ThreadPoolExecutor(1) as other_side:
        other_side.submit(answer_wrongly)
        with pytest.raises(ConnectionError, match="another program answers"):
            connect(listener)


def test_nobody_is_waited_for_longer_than_the_timeout(listener: socket.socket) -> None:
    # A stranger who connects and says nothing must not lengthen it.
    with socket.create_connection(listener.getsockname()):
        start = monotonic()
        with pytest.raises(TimeoutError):
            accepted(listener, SECRET, 0.2)
    assert monotonic() - start < 5
