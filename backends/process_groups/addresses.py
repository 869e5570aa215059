"""Addresses and interfaces of this machine, by IPv4, which is what MXNet's ps-lite speaks.

Frameworks that are given no interface take the one to which the host's name leads.
"""

import errno
import ipaddress
import random
import socket
from contextlib import suppress

import psutil

from backends.errors import ComputationError
from backends.process_groups.group import GroupError

PORTS = range(20000, 30000)
"""Below those that systems give to outgoing connections, one of which could take a port before the
job listens.
"""
TRIES = 100


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has this IPv4 address; None without one."""
    for name, entries in psutil.net_if_addrs().items():
        addresses = [entry.address for entry in entries if entry.family == socket.AF_INET]
        if address in addresses:
            return name
        # All of 127.0.0.0/8 is this machine, though only 127.0.0.1 is listed.
        if _is_loopback(address) and any(map(_is_loopback, addresses)):
            return name
    return None


def local_address(remote: str) -> str:
    """Return the address of this machine from which it reaches the host `remote`; sends nothing.

    Raises GroupError if no network leads to the host.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Any port will do: connecting a datagram socket only looks up the route.
            probe.connect((remote, 9))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise GroupError(
            f"no network of this machine leads to {remote}: {error.strerror}"
        ) from error


def interface_towards(host: str) -> str:
    """Return the name of the network interface through which this machine reaches a host.

    Sends nothing. Raises GroupError if there is no such interface.
    """
    address = local_address(host)
    name = interface_of(address)
    if name is None:
        raise GroupError(f"no network interface of this machine has the address {address}")
    return name


def listen_at(address: str, port: int) -> socket.socket:
    """Return a socket that listens at a port of an IPv4 address.

    Raises ComputationError, in one line, if the port is in use or the address is not ours. A port
    whose connections were closed a moment ago is free.
    """
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen()
    except OSError as error:
        server.close()
        raise ComputationError(f"cannot listen at {address}:{port}: {_advice(error)}") from error
    return server


def free_port(address: str) -> int:
    """Return a port at this IPv4 address that is free now.

    Raises ComputationError if the address is not ours.
    """
    *first_candidates, last_candidate = random.sample(PORTS, TRIES)
    for port in first_candidates:
        with suppress(ComputationError):
            listen_at(address, port).close()
            return port
    # The error of the last one says why no port is free.
    listen_at(address, last_candidate).close()
    return last_candidate


def _advice(error: OSError) -> str:
    """Return what to do about an error of listening, or the system's words for it."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; choose another one, or end what listens there"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no network interface of this machine has this address"
    return error.strerror or str(error)


def _is_loopback(address: str) -> bool:
    """Return whether a text is an IPv4 address that never leaves this machine."""
    try:
        return ipaddress.IPv4Address(address).is_loopback
    except ValueError:
        return False
