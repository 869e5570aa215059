"""The TCP connections to this process."""

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
ESTABLISHED = 1
"""The value of the first byte of Linux's `struct tcp_info` for an established connection."""
LAST_DATA_RECEIVED = 52
"""Offset of `tcpi_last_data_recv`, an unsigned int of milliseconds, in that structure."""


def seconds_since_data_came() -> list[float] | None:
    """Return for each connection to this process the seconds since data came.

    None if the process does not listen yet, or the system does not say.
    """
    tcp_info = getattr(socket, "TCP_INFO", None)
    if tcp_info is None:
        return None
    listening_ports: set[int] = set()
    silences_and_ports: list[tuple[float, int]] = []
    for descriptor in DESCRIPTORS.iterdir():
        # A file that was closed meanwhile has no link, and other sockets no information about TCP.
        with suppress(OSError):
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as duplicate:
                port = duplicate.getsockname()[1]
                info = duplicate.getsockopt(socket.IPPROTO_TCP, tcp_info, LAST_DATA_RECEIVED + 4)
                if duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    listening_ports.add(port)
                elif info[0] == ESTABLISHED:
                    (milliseconds,) = struct.unpack_from("I", info, LAST_DATA_RECEIVED)
                    silences_and_ports.append((milliseconds / 1000, port))
    if not listening_ports:
        return None
    return [seconds for seconds, port in silences_and_ports if port in listening_ports]
