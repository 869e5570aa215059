"""One TCP stream between two ranks of a job: the way that their exchanges take, without anyone who adds up."""

import ipaddress
import json
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import final

from backends.process_groups import Group, GroupError, Rendezvous, broadcast, gather
from parallel_core.errors import MeasurementError
from parallel_core.experiments.training_on_multiple_gpus.allreduce.tcp_stream import (
    accepted,
    answer_round_trip,
    connected,
    listening,
    own_address,
    round_trip,
)

__all__ = ["Stream", "other_end", "stream_between"]

SECRET_BYTES = 16


@final
class Stream:
    """A rank's end of the stream between rank 0 and the rank `other`; `connection` is None for a rank without one."""

    def __init__(self, rank: int, other: int, connection: socket.socket | None) -> None:
        self.rank, self.other, self.connection = rank, other, connection

    def carry(self, vector: memoryview, times: int) -> float:
        """Carry a vector from rank 0 to the other end and back, so often; all ranks call this.

        Return the mean seconds of one way on rank 0, which are half of both, and 0 on the others. Raises GroupError
        if the other one is gone.
        """
        if self.connection is None:
            return 0.0
        try:
            if self.rank > 0:
                for _ in range(times):
                    answer_round_trip(self.connection, vector, vector)
                return 0.0
            return sum(round_trip(self.connection, vector, vector) for _ in range(times)) / times / 2
        except OSError as error:
            raise GroupError(f"the TCP stream between rank 0 and rank {self.other} broke: {error}") from error


def other_end(hosts: Sequence[str]) -> int:
    """Choose the rank that rank 0 has a stream with: the first one on another host, if there is one; else rank 1."""
    return next((rank for rank, host in enumerate(hosts) if host != hosts[0]), 1)


@contextmanager
def stream_between(group: Group, where: Rendezvous) -> Iterator[Stream]:
    """Connect rank 0 with its `other_end` for a while; all ranks call this. Raises MeasurementError.

    Rank 0 listens at the address by which the other host reaches it, and at no other.
    """
    other = other_end(group.hosts)
    with ExitStack() as connections:
        try:
            connection = _connect(group, other, where, connections)
        except OSError as error:
            raise MeasurementError(
                f"no TCP connection between rank 0 and rank {other} ({error}): does a firewall refuse it?"
            ) from error
        yield Stream(group.rank, other, connection)


def _connect(group: Group, other: int, where: Rendezvous, connections: ExitStack) -> socket.socket | None:
    """Return this rank's end of the stream, closed with `connections`; None for a rank that has none."""
    # The job's deadline must not pass before this one, whose error says what is wrong.
    patience = where.timeout / 2
    # Every rank has a route to the address at which all have met.
    addresses = [address.decode() for address in gather(group, own_address(where.address, where.port).encode())]
    if group.rank == 0:
        theirs = addresses[other]
        # If a host's name resolves to loopback, its route to the other host has the address that others see.
        mine = addresses[0] if ipaddress.ip_address(theirs).is_loopback else own_address(theirs, where.port)
        secret = secrets.token_hex(SECRET_BYTES)
        listener = connections.enter_context(listening(mine))
        broadcast(group, json.dumps([mine, listener.getsockname()[1], secret]).encode())
        return connections.enter_context(accepted(listener, secret.encode(), patience))
    address, port, secret = json.loads(broadcast(group, b""))
    if group.rank != other:
        return None
    return connections.enter_context(connected(address, port, secret.encode(), patience))
