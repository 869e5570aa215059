"""One TCP connection between two processes, and how fast it carries bytes: the limit of any exchange over TCP.

One side listens and calls `accepted`, the other `connected`. Both prove that they know the same secret, for anyone may
connect to an open port.
"""

import hmac
import socket
from contextlib import suppress
from time import monotonic, perf_counter

AT_ONCE = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
"""Lets small messages leave at once."""
SECRET_SECONDS = 1.0
"""How long a connection may take to send the secret."""


def accepted(listener: socket.socket, secret: bytes, timeout: float) -> socket.socket:
    """Wait at most `timeout` seconds for the side that knows the secret, and turn others away. Raises OSError."""
    deadline = monotonic() + timeout
    while (left := deadline - monotonic()) > 0:
        listener.settimeout(left)
        connection, _ = listener.accept()
        # A stranger that leaves at once or sends nothing must not keep the right one out.
        with suppress(OSError):
            connection.setsockopt(*AT_ONCE)
            connection.settimeout(min(SECRET_SECONDS, max(deadline - monotonic(), 0.001)))
            if hmac.compare_digest(_receive(connection, memoryview(bytearray(len(secret)))), secret):
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
        if not hmac.compare_digest(_receive(connection, memoryview(bytearray(len(secret)))), secret):
            raise ConnectionError(f"another program answers at {address}, port {port}")
    except OSError:
        connection.close()
        raise
    return connection


def round_trip(connection: socket.socket, buffer: memoryview) -> float:
    """Send a buffer and receive as much back into it; return the seconds that it took. Raises OSError.

    It is the caller's, who uses it again: to fault in the pages of a new one takes longer than to copy.
    """
    start = perf_counter()
    connection.sendall(buffer)
    _receive(connection, buffer)
    return perf_counter() - start


def answer_round_trip(connection: socket.socket, buffer: memoryview) -> None:
    """Take part in the other side's `round_trip` with a buffer of the same length. Raises OSError."""
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
