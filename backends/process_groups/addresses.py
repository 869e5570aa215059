"""Which network interface leads to the others: frameworks that are not told take whatever the host's name leads to."""

import ipaddress
import socket

import psutil

from backends.process_groups.group import GroupError

__all__ = ["interface_towards"]


def interface_towards(host: str) -> str:
    """Return the name of the network interface through which this machine reaches a host, by IPv4; sends nothing.

    Raises GroupError where there is no way.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Any port will do: to connect a datagram socket is to look up the route.
            probe.connect((host, 9))
            mine = ipaddress.ip_address(probe.getsockname()[0])
    except OSError as error:
        raise GroupError(f"no network of this machine leads to {host}: {error.strerror}") from error
    for name, entries in psutil.net_if_addrs().items():
        own = [ipaddress.ip_address(entry.address) for entry in entries if entry.family == socket.AF_INET]
        # All of 127.0.0.0/8 is this machine, though only 127.0.0.1 is listed.
        if mine in own or (mine.is_loopback and any(address.is_loopback for address in own)):
            return name
    raise GroupError(f"no network interface of this machine has the address {mine}")
