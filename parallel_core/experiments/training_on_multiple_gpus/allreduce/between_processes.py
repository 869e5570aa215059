"""Allreduce between processes: how fast does a framework's own engine sum, and how near is it to
the network's speed?

Every rank runs this, and each must make the same exchanges in the same order, or all wait for ever.
So every time that is measured is sent to all ranks, and whatever depends on times is decided alike.
"""

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from time import monotonic, perf_counter
from typing import Any, TypeAlias, cast

from backends.process_groups import (
    Group,
    GroupedBackend,
    GroupError,
    Rendezvous,
    barrier,
    broadcast,
    gather,
)
from backends.process_groups.addresses import local_address
from backends.process_groups.group import COMPARED_EXCHANGES
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.allreduce import sums
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import native
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.timing import Timing
from parallel_core.system.errors import MeasurementError, RequestError

NATIVE = "native"
AT_ONCE = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
"""Lets small messages leave at once."""
SECRET_SECONDS = 1.0
"""How long a connection may take to send the secret: anyone may connect to an open port."""

Carry: TypeAlias = Callable[[memoryview, int], float]
"""Carries a vector from rank 0 to the other end of a stream and back, so often; all ranks call it.

It returns the seconds of the ways there on rank 0, half of all ways, and 0 on the others. Raises
GroupError if the other one is gone.
"""


def program(
    trial: Trial,
    where: Rendezvous,
    algorithms: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> None:
    """Time the sum over all devices of all ranks, and beside it one TCP stream that carries each
    vector once, one way.

    All ranks call this alike, and find the same figures. A time is that of the slowest rank.
    `sizes` are in bytes of one device's vector, rounded down to whole elements. The n of busbw is
    the number of all ranks' devices. There are no bare times: a sum between processes is hardly
    anything but exchange.

    `share_of_stream_bound` is the stream's time for one vector over the sum's. How large it can be
    depends on the engine: in a ring of n ranks each sends 2(n − 1)/n vectors and receives as much
    at the same time, so it reaches n / (2(n − 1)) if both directions are as fast as one, which is 1
    for two ranks; a parameter server receives n vectors and sends n, so it reaches 1/n if all ranks
    are on other hosts. Processes on one host share its cores and need not obey either.

    Raises RequestError for other algorithms than `native`, which are written over the devices of
    one process, and for sizes for which the memory does not suffice.
    """
    backend = cast(GroupedBackend, trial.backend)
    group, count = backend.group, sum(backend.device_counts)
    if any(name != NATIVE for name in algorithms or ()):
        raise RequestError(
            "between processes the sum is the framework's own: leave --algorithm out, or say "
            f"{NATIVE}"
        )
    trial.parameters["hosts"] = len(set(group.hosts))
    hosts = zip(backend.device_counts, group.hosts, strict=True)
    here = sum(devices for devices, host in hosts if host == group.hosts[group.rank])
    whole = sums.sizes_to_time(sizes, here)
    # The exchanges that ranks compare with each other's before they make them: none of those is
    # timed.
    warm_up = sums.summing(backend, native, sums.zeros(backend, sums.ITEM))
    for _ in range(COMPARED_EXCHANGES):
        warm_up()
    backend.waitall()
    for length in sorted({1, 2, count - 1, count + 1, 1001}):
        sums.check_sums(trial, (NATIVE,), length, group.rank, backend.device_counts)
    timed = []

    def in_step(take: Callable[[int], Timing], repeats: int) -> Timing:
        # All ranks begin at once, and find the times of the slowest.
        barrier(group)
        sent, done = zip(*_gathered(group, take(repeats)), strict=True)
        return max(sent), max(done)

    with stream_between(group, where) as carry:

        def stream(vector: memoryview, repeats: int) -> Timing:
            return (carry(vector, repeats),) * 2

        # What is left to the first rank decides for all.
        for size, seconds in sums.swept_sizes(
            trial, whole, sizes is not None, lambda: _gathered(group, trial.left())[0]
        ):
            sums.check_sums(trial, (NATIVE,), size // sums.ITEM, group.rank, backend.device_counts)
            reduce = partial(
                sums.measure_each, backend, sums.summing(backend, native, sums.zeros(backend, size))
            )
            # Not zeros: pages that were never written to are all the same one, which stays in the
            # cache.
            carry_one = partial(stream, memoryview(bytearray(b"\1") * size))
            takes = {sums.ONE_STREAM: partial(in_step, carry_one), NATIVE: partial(in_step, reduce)}
            sums.time_repeated(trial, takes, size, seconds)
            timed.append(size)
    trial.errors["sums"] = largest_of(_gathered(group, trial.errors["sums"]))
    sums.find_bandwidths(trial, timed, (NATIVE,), sums.ONE_STREAM, count)


def _gathered(group: Group, value: Any) -> list[Any]:
    """Return the values of all ranks."""
    return [json.loads(sent) for sent in gather(group, json.dumps(value).encode())]


def other_end(hosts: Sequence[str]) -> int:
    """Choose the rank that rank 0 has a stream with: the first one on another host, if there is
    one; else rank 1.
    """
    return next((rank for rank, host in enumerate(hosts) if host != hosts[0]), 1)


@contextmanager
def stream_between(group: Group, where: Rendezvous) -> Iterator[Carry]:
    """Connect rank 0 with its `other_end` for a while, by one TCP stream: the way of exchanges,
    without additions.

    All ranks call this. Rank 0 listens at the address by which the other host reaches it, and at no
    other. Raises MeasurementError.
    """
    other = other_end(group.hosts)
    with ExitStack() as connections:
        try:
            connection = _connect(group, other, where, connections)
        except OSError as error:
            raise MeasurementError(
                f"no TCP connection between rank 0 and rank {other} ({error}): does a firewall "
                "refuse it?"
            ) from error

        def carry(vector: memoryview, times: int) -> float:
            if connection is None:
                return 0.0
            way = answer_round_trip if group.rank > 0 else round_trip
            try:
                return sum(way(connection, vector) or 0.0 for _ in range(times)) / 2
            except OSError as error:
                raise GroupError(
                    f"the TCP stream between rank 0 and rank {other} broke: {error}"
                ) from error

        yield carry


def _connect(
    group: Group, other: int, where: Rendezvous, connections: ExitStack
) -> socket.socket | None:
    """Return this rank's end of the stream, closed with `connections`.

    None for a rank that has none.
    """
    # The job's deadline must not pass before this one, whose error says what is wrong.
    patience = where.timeout / 2
    # Every rank has a route to the address at which all have met.
    own_address = local_address(where.address)
    addresses = _gathered(group, own_address)
    if group.rank == 0:
        theirs = addresses[other]
        # If a host's name resolves to loopback, its route to the other host has the address that
        # others see.
        is_loopback = ipaddress.ip_address(theirs).is_loopback
        mine = own_address if is_loopback else local_address(theirs)
        secret = secrets.token_hex(16)
        listener = connections.enter_context(socket.create_server((mine, 0)))
        broadcast(group, json.dumps([mine, listener.getsockname()[1], secret]).encode())
        return connections.enter_context(accepted(listener, secret.encode(), patience))
    address, port, secret = json.loads(broadcast(group, b""))
    if group.rank != other:
        return None
    return connections.enter_context(connected(address, port, secret.encode(), patience))


def accepted(listener: socket.socket, secret: bytes, timeout: float) -> socket.socket:
    """Wait at most `timeout` seconds for the side that knows the secret, and turn others away.

    Raises OSError.
    """
    deadline = monotonic() + timeout
    while (left := deadline - monotonic()) > 0:
        listener.settimeout(left)
        connection, _ = listener.accept()
        # A stranger that leaves at once or sends nothing must not keep the right one out.
        with suppress(OSError):
            connection.setsockopt(*AT_ONCE)
            connection.settimeout(min(SECRET_SECONDS, max(deadline - monotonic(), 0.001)))
            if hmac.compare_digest(
                _receive(connection, memoryview(bytearray(len(secret)))), secret
            ):
                connection.sendall(secret)
                connection.settimeout(timeout)
                return connection
        connection.close()
    raise TimeoutError(f"no connection with the right secret within {timeout:g} s")


def connected(address: str, port: int, secret: bytes, timeout: float) -> socket.socket:
    """Connect to the side that listens and knows the secret. Raises OSError."""
    connection = socket.create_connection((address, port), timeout)
    try:
        connection.setsockopt(*AT_ONCE)
        connection.sendall(secret)
        if not hmac.compare_digest(
            _receive(connection, memoryview(bytearray(len(secret)))), secret
        ):
            raise ConnectionError(f"another program answers at {address}, port {port}")
    except OSError:
        connection.close()
        raise
    return connection


def round_trip(connection: socket.socket, buffer: memoryview) -> float:
    """Send a buffer and receive as much back into it; return the seconds that it took.

    Raises OSError. It is the caller's, who uses it again: to fault in the pages of a new one takes
    longer than to copy.
    """
    start = perf_counter()
    connection.sendall(buffer)
    _receive(connection, buffer)
    return perf_counter() - start


def answer_round_trip(connection: socket.socket, buffer: memoryview) -> None:
    """Take part in the other side's `round_trip` with a buffer of the same length.

    Raises OSError.
    """
    _receive(connection, buffer)
    connection.sendall(buffer)


def _receive(connection: socket.socket, buffer: memoryview) -> memoryview:
    """Fill a buffer and return it; raises ConnectionError if the other side leaves before."""
    filled = 0
    while filled < len(buffer):
        count = connection.recv_into(buffer[filled:])
        if count == 0:
            raise ConnectionResetError("the other side closed the connection")
        filled += count
    return buffer
