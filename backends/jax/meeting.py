"""How the processes of a group meet: rank 0 listens, and the other ranks connect to it with their ranks and hosts.

JAX has a coordination service for this, and it ends a process, by abort, when another one has died or does not come.
So each process runs that service for itself only, and what XLA's clients exchange through it is passed on here.
"""

import json
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from time import monotonic, sleep
from typing import Any, TypeAlias, final

from backends.process_groups.addresses import connect_to, listen_at
from backends.process_groups.group import GroupError

Message: TypeAlias = Any
"""What JSON can say."""

GREETING_SECONDS = 5.0
"""Who connects and has not said its rank by then is none of the job."""
RETRY_SECONDS = 0.05
LONGEST = 1 << 24
"""Bytes of a message, which is a line; more is not of this job."""


def meet(rank: int, size: int, address: str, port: int, bind: str, seconds: float) -> "Meeting":
    """Wait until all processes are there. Raises GroupError if one does not come within these seconds.

    Raises ComputationError if rank 0 cannot listen at the port of the address `bind`.
    """
    meeting = Meeting(rank, size, seconds)
    try:
        if rank == 0:
            meeting.admit(listen_at(bind, port))
        else:
            meeting.enter(address, port)
        meeting.hosts = tuple(meeting.gather(socket.gethostname()))
    except BaseException:
        meeting.close()
        raise
    return meeting


@final
class Meeting:
    """The connections of rank 0 with all other ranks; what lasts longer than its seconds fails with GroupError."""

    hosts: tuple[str, ...] = ()

    def __init__(self, rank: int, size: int, seconds: float) -> None:
        self.rank, self.size = rank, size
        self._seconds, self._end = seconds, monotonic() + seconds
        self._others: dict[int, _Connection] = {}
        """On rank 0 those of the other ranks by rank, elsewhere that of rank 0."""

    def admit(self, listener: socket.socket) -> None:
        """Accept the other ranks as they come."""
        with listener:
            while missing := [rank for rank in range(1, self.size) if rank not in self._others]:
                listener.settimeout(self._left())
                try:
                    connected, _ = listener.accept()
                except TimeoutError:
                    raise self._absent(missing) from None
                connected.settimeout(min(GREETING_SECONDS, self._left()))
                connection = _Connection(connected)
                try:
                    rank = connection.receive()
                except (OSError, ValueError):
                    rank = None
                if rank in missing:
                    self._others[rank] = connection
                else:
                    connection.close()

    def enter(self, address: str, port: int) -> None:
        """Connect with rank 0 as soon as it listens."""
        while True:
            try:
                self._others[0] = _Connection(connect_to(address, port, self._left()))
                self._others[0].send(self.rank)
            except OSError as error:
                if monotonic() + RETRY_SECONDS > self._end:
                    raise self._absent([0]) from error
                sleep(RETRY_SECONDS)
            else:
                return

    def gather(self, message: Message) -> Sequence[Message]:
        """Give every process what each of them passes, by rank. Raises GroupError if one is gone or too late."""
        if self.rank == 0:
            messages = [message, *(self._with(rank, _Connection.receive) for rank in range(1, self.size))]
            for rank in range(1, self.size):
                self._with(rank, lambda connection: connection.send(messages))
            return messages
        self._with(0, lambda connection: connection.send(message))
        return list(self._with(0, _Connection.receive))

    def pass_on(
        self, keys: Callable[[], dict[str, str]], add: Callable[[str, str], object], done: Callable[[], bool]
    ) -> None:
        """Copy what each process has under its keys to all other processes, until `done()` is true on all of them.

        What `done` raises ends it, and the other processes find this one gone.
        """
        self._end = monotonic() + self._seconds
        known: set[str] = set()
        while True:
            own = keys()
            known |= own.keys()
            everyone = self.gather([done(), own])
            if all(is_done for is_done, _ in everyone):
                return
            for _, others in everyone:
                for key, value in others.items():
                    if key not in known:
                        add(key, value)
                        known.add(key)
            sleep(RETRY_SECONDS)

    def close(self) -> None:
        """Part without a word."""
        with ExitStack() as all_of_them:
            for connection in self._others.values():
                all_of_them.callback(connection.close)

    def _with(self, rank: int, do: "Callable[[_Connection], Message]") -> Message:
        connection = self._others[rank]
        connection.socket.settimeout(self._left())
        try:
            return do(connection)
        except TimeoutError as error:
            raise GroupError(f"rank {rank} has not joined within {self._seconds:g} s: it does not answer") from error
        except (OSError, ValueError) as error:
            raise GroupError(f"rank {rank} has gone while the ranks were joining") from error

    def _left(self) -> float:
        # Zero would mean not to block.
        return max(self._end - monotonic(), 1e-3)

    def _absent(self, ranks: Sequence[int]) -> GroupError:
        return GroupError(f"rank {', '.join(map(str, ranks))} has not joined within {self._seconds:g} s")


@final
class _Connection:
    """A socket that sends and receives messages."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket, self._lines = connected, connected.makefile("rb")

    def send(self, message: Message) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Message:
        return json.loads(self._lines.readline(LONGEST))

    def close(self) -> None:
        self._lines.close()
        self.socket.close()
