"""Where processes listen: at one address of this machine, and at all of them only if the user says so."""

import ipaddress
import random
import socket
from contextlib import suppress

from backends.errors import ComputationError
from backends.process_groups.addresses import interfaces, listen_at
from parallel_core.errors import RequestError

__all__ = ["PORTS", "check_bind", "check_port", "free_port", "interface_address", "is_wildcard", "resolved"]

PORTS = range(20000, 30000)
"""Below those that systems give to outgoing connections, one of which could take a port before the job listens."""
TRIES = 100


def interface_address(name: str) -> str:
    """Return the first IPv4 address of a network interface such as `eth0`.

    Raises RequestError if there is no such interface, or it has no such address.
    """
    addresses_of = interfaces()
    if name not in addresses_of:
        known = ", ".join(sorted(known for known, addresses in addresses_of.items() if addresses))
        raise RequestError(f"there is no network interface {name!r} here (known: {known})")
    if not addresses_of[name]:
        raise RequestError(f"the network interface {name!r} has no IPv4 address")
    return addresses_of[name][0]


def is_wildcard(address: str) -> bool:
    """Return whether listening at this address is listening at all addresses of the machine."""
    bare = address.strip().removeprefix("[").removesuffix("]")
    if bare in ("", "*"):
        return True
    try:
        # The C library takes `0` and `0x0` for 0.0.0.0 as well.
        return not any(socket.inet_aton(bare))
    except (OSError, ValueError):
        pass
    try:
        parsed = ipaddress.IPv6Address(bare)
    except ValueError:
        return False
    return parsed.is_unspecified or (parsed.ipv4_mapped is not None and parsed.ipv4_mapped.is_unspecified)


def check_bind(address: str, trusted: bool) -> None:
    """Raise RequestError if nothing may listen at this address.

    IPv6 is refused; a wildcard is refused unless the network is `trusted`.
    """
    if is_wildcard(address) and not trusted:
        raise RequestError(
            f"{address!r} would listen on every network of this machine, and others who reach it could run code here: "
            "MXNet's servers unpickle what workers send, and gloo does not authenticate; name one address or "
            "--interface, or say --trusted-network"
        )
    _refuse_ipv6(address)


def resolved(host: str) -> str:
    """Return the IPv4 address of a host's name, or the address itself. Raises RequestError if there is none."""
    _refuse_ipv6(host)
    if is_wildcard(host):
        return "0.0.0.0"
    try:
        entries = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no host has such a name"
        raise RequestError(f"cannot find the IPv4 address of host {host!r}: {reason}") from error
    return str(entries[0][4][0])


def free_port(address: str) -> int:
    """Return a port at this IPv4 address that is free now. Raises ComputationError if the address is not ours."""
    *others, last = random.sample(PORTS, TRIES)
    for port in others:
        with suppress(ComputationError):
            check_port(address, port)
            return port
    check_port(address, last)
    return last


def check_port(address: str, port: int) -> None:
    """Raise ComputationError, in one line, if nothing can listen at this port of an IPv4 address."""
    listen_at(address, port).close()


def _refuse_ipv6(host: str) -> None:
    # A name has no colon, and an IPv4 address neither.
    if ":" in host and not is_wildcard(host):
        raise RequestError(f"{host!r} is an IPv6 address, which MXNet cannot use; give an IPv4 address or a name")
