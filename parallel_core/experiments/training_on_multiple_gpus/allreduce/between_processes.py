"""Allreduce between processes: how fast does a framework's own engine sum, and how near is it to
the network's speed?

Every rank runs this program. All ranks must make the same exchanges in the same order, or they wait
for each other for ever. So every measured time is sent to all ranks, and all of them decide alike
what depends on times.
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
from typing import Any

from backends.process_groups import (
    Group,
    GroupedBackend,
    GroupError,
    Rendezvous,
    barrier,
    broadcast,
    gather,
    grouped,
)
from backends.process_groups.addresses import local_address
from backends.process_groups.group import COMPARED_EXCHANGES
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.allreduce import bandwidths, sums
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import native
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.timing import Timing
from parallel_core.system.errors import MeasurementError, RequestError

NATIVE = "native"
WITHOUT_DELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
"""The option of a socket that lets small messages leave at once."""
SECRET_SECONDS = 1.0
"""The seconds in which a connection must send the secret: anyone may connect to an open port."""

Carry = Callable[[memoryview, int], float]
"""A function (vector, times) that carries a vector from rank 0 to a stream's other end and back.

All ranks call it. On rank 0 it returns the seconds of the ways there, which are half of all; on
other ranks 0. Raises GroupError if the other end is gone.
"""


def program(
    trial: Trial,
    where: Rendezvous,
    algorithms: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> None:
    """Time the sum over all devices of all ranks, and one TCP stream that carries a vector one way.

    All ranks call this, and find the same figures. A time is that of the slowest rank. `sizes` are
    the bytes of one device's vector, rounded down to whole elements. There are no bare times: a sum
    between processes is hardly anything but exchange.

    `share_of_stream_bound` is the stream's time for one vector over the sum's. Its largest value
    depends on the engine. In a ring of n ranks each sends 2(n − 1)/n vectors and receives as much
    at the same time; if both directions are as fast as one, the share reaches n / (2(n − 1)), which
    is 1 for two ranks. A parameter server receives n vectors and sends n, so the share reaches 1/n
    if all ranks are on other hosts. Processes on one host share its cores and need not obey either.

    Raises RequestError for other algorithms than `native`, which are written over the devices of
    one process, and for sizes for which the memory does not suffice.
    """
    backend = grouped(trial.backend)
    assert backend is not None
    group = backend.group
    all_devices = sum(backend.device_counts)
    if any(name != NATIVE for name in algorithms or ()):
        raise RequestError(
            "between processes the sum is the framework's own: leave --algorithm out, or say "
            f"{NATIVE}"
        )
    trial.parameters["hosts"] = len(set(group.hosts))
    sizes_to_time = sums.sizes_to_time(sizes, _devices_on_this_host(backend))
    _warm_up(backend)
    check = partial(
        sums.check_sums, trial, (NATIVE,), rank=group.rank, counts=backend.device_counts
    )
    for length in sorted({1, 2, all_devices - 1, all_devices + 1, 1001}):
        check(length)

    def seconds_left() -> float:
        # The first rank decides for all.
        seconds_of_ranks: Sequence[float] = _gathered(group, trial.left())
        return seconds_of_ranks[0]

    timed_sizes = []
    with stream_between(group, where) as carry:
        for size, seconds in sums.swept_sizes(
            trial, sizes_to_time, sizes is not None, seconds_left
        ):
            check(size // sums.ITEM)
            time_size(trial, group, carry, size, seconds)
            timed_sizes.append(size)
    trial.errors["sums"] = largest_of(_gathered(group, trial.errors["sums"]))
    bandwidths.find_bandwidths(trial, timed_sizes, (NATIVE,), bandwidths.ONE_STREAM, all_devices)


def time_size(trial: Trial, group: Group, carry: Carry, size: int, seconds: float) -> None:
    """Time the sum of vectors of `size` bytes, and the stream, for about `seconds`."""
    operation = sums.summing(trial.backend, native, sums.zeros(trial.backend, size))
    time_sum = partial(sums.measure_each, trial.backend, operation)
    # The vector is not zeros: memory that was never written to is one page, which stays in the
    # cache.
    vector = memoryview(bytearray(b"\1") * size)

    def time_stream(repeats: int) -> Timing:
        carrying = carry(vector, repeats)
        return carrying, carrying

    takes = {
        bandwidths.ONE_STREAM: partial(_time_together, group, time_stream),
        NATIVE: partial(_time_together, group, time_sum),
    }
    sums.time_repeated(trial, takes, size, seconds)


def _time_together(group: Group, take: Callable[[int], Timing], repeats: int) -> Timing:
    """Time something on all ranks at once, and return the times of the slowest rank."""
    barrier(group)
    timings = _gathered(group, take(repeats))
    slowest_dispatch = max(dispatched for dispatched, _ in timings)
    slowest = max(done for _, done in timings)
    return slowest_dispatch, slowest


def _devices_on_this_host(backend: GroupedBackend) -> int:
    """Return the number of devices of all ranks on this rank's host."""
    hosts = backend.group.hosts
    this_host = hosts[backend.group.rank]
    devices_and_hosts = zip(backend.device_counts, hosts, strict=True)
    return sum(devices for devices, host in devices_and_hosts if host == this_host)


def _warm_up(backend: GroupedBackend) -> None:
    """Make the first exchanges, which ranks compare with each other before they make them."""
    exchange = sums.summing(backend, native, sums.zeros(backend, sums.ITEM))
    for _ in range(COMPARED_EXCHANGES):
        exchange()
    backend.waitall()


def _gathered(group: Group, value: Any) -> list[Any]:
    """Return the values of all ranks, in the order of the ranks."""
    return [json.loads(sent) for sent in gather(group, json.dumps(value).encode())]


def other_end(hosts: Sequence[str]) -> int:
    """Return the rank at the other end of rank 0's stream: on another host if possible, or 1."""
    for rank, host in enumerate(hosts):
        if host != hosts[0]:
            return rank
    return 1


@contextmanager
def stream_between(group: Group, where: Rendezvous) -> Iterator[Carry]:
    """Connect rank 0 with its `other_end` by one TCP stream until this context ends.

    All ranks call this. Rank 0 listens only at the address by which the other host reaches it.
    Raises MeasurementError if there is no connection.
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
            seconds = 0.0
            try:
                for _ in range(times):
                    if group.rank == 0:
                        seconds += round_trip(connection, vector)
                    else:
                        answer_round_trip(connection, vector)
                return seconds / 2
            except OSError as error:
                raise GroupError(
                    f"the TCP stream between rank 0 and rank {other} broke: {error}"
                ) from error

        yield carry


def _connect(
    group: Group, other: int, where: Rendezvous, connections: ExitStack
) -> socket.socket | None:
    """Return this rank's end of the stream, which `connections` closes.

    None for a rank that is at neither end.
    """
    # This deadline passes before the job's, so that its error says what is wrong.
    patience = where.timeout / 2
    # Every rank has a route to the address at which all ranks met.
    own_address = local_address(where.address)
    addresses = _gathered(group, own_address)
    if group.rank == 0:
        other_address = addresses[other]
        # If this host's name resolves to loopback, the address that others see is that of the route
        # to the other host.
        is_loopback = ipaddress.ip_address(other_address).is_loopback
        listening_address = own_address if is_loopback else local_address(other_address)
        secret = secrets.token_hex(16)
        listener = connections.enter_context(socket.create_server((listening_address, 0)))
        _, port = listener.getsockname()
        broadcast(group, json.dumps([listening_address, port, secret]).encode())
        return connections.enter_context(accepted(listener, secret.encode(), patience))
    address, port, secret = json.loads(broadcast(group, b""))
    if group.rank != other:
        return None
    return connections.enter_context(connected(address, port, secret.encode(), patience))


def accepted(listener: socket.socket, secret: bytes, timeout: float) -> socket.socket:
    """Wait at most `timeout` seconds for a connection of the side that knows the secret.

    Other connections are closed. Raises OSError if the right one does not come.
    """
    deadline = monotonic() + timeout
    while (left := deadline - monotonic()) > 0:
        listener.settimeout(left)
        connection, _ = listener.accept()
        # A stranger that leaves at once or sends nothing must not keep the right side out.
        with suppress(OSError):
            connection.setsockopt(*WITHOUT_DELAY)
            left_now = max(deadline - monotonic(), 0.001)
            connection.settimeout(min(SECRET_SECONDS, left_now))
            received = _receive(connection, memoryview(bytearray(len(secret))))
            if hmac.compare_digest(received, secret):
                connection.sendall(secret)
                connection.settimeout(timeout)
                return connection
        connection.close()
    raise TimeoutError(f"no connection with the right secret within {timeout:g} s")


def connected(address: str, port: int, secret: bytes, timeout: float) -> socket.socket:
    """Connect to the side that listens and knows the secret; raises OSError if that fails."""
    connection = socket.create_connection((address, port), timeout)
    try:
        connection.setsockopt(*WITHOUT_DELAY)
        connection.sendall(secret)
        received = _receive(connection, memoryview(bytearray(len(secret))))
        if not hmac.compare_digest(received, secret):
            raise ConnectionError(f"another program answers at {address}, port {port}")
    except OSError:
        connection.close()
        raise
    return connection


def round_trip(connection: socket.socket, buffer: memoryview) -> float:
    """Send a buffer, and receive as many bytes back into it; return the seconds of both.

    The caller uses one buffer again and again, because to fault in the pages of a new one takes
    longer than to copy. Raises OSError.
    """
    start = perf_counter()
    connection.sendall(buffer)
    _receive(connection, buffer)
    return perf_counter() - start


def answer_round_trip(connection: socket.socket, buffer: memoryview) -> None:
    """Receive a buffer of the other side's `round_trip`, and send it back; raises OSError."""
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
