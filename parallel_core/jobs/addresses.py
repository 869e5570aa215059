"""Where processes listen: at one address of this machine, and not at all of them unless somebody says so.

Addresses are IPv4, which is what MXNet's ps-lite speaks.
"""

import errno
import ipaddress
import random
import socket
from contextlib import suppress

import psutil

from parallel_core.errors import MeasurementError, RequestError

__all__ = [
    "PORTS",
    "check_bind",
    "check_port",
    "free_port",
    "interface_address",
    "interface_of",
    "is_wildcard",
    "listening",
    "local_address",
    "resolved",
    "root_of",
]

MAX_PORT = 65535
PORTS = range(20000, 30000)
"""Below those that systems give to connections, one of which could take a port before it is listened at."""
TRIES = 100


def interface_address(name: str) -> str:
    """Return the first IPv4 address of a network interface such as `eth0`.

    Raises RequestError where there is no such interface, or it has no such address.
    """
    interfaces = _interfaces()
    if name not in interfaces:
        known = ", ".join(sorted(known for known, addresses in interfaces.items() if addresses))
        raise RequestError(f"there is no network interface {name!r} here (known: {known})")
    if not interfaces[name]:
        raise RequestError(f"the network interface {name!r} has no IPv4 address")
    return interfaces[name][0]


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has this IPv4 address; None where none has."""
    for name, addresses in _interfaces().items():
        if address in addresses:
            return name
    if _is_loopback(address):
        # All of 127.0.0.0/8 is this machine, though only 127.0.0.1 is listed.
        return next((name for name, addresses in _interfaces().items() if any(map(_is_loopback, addresses))), None)
    return None


def is_wildcard(address: str) -> bool:
    """Tell whether to listen at this address is to listen at all addresses of the machine."""
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
    """Raise RequestError where nothing may listen at this address.

    IPv6 never will do; a wildcard will only on a network that is `trusted`.
    """
    if is_wildcard(address) and not trusted:
        raise RequestError(
            f"{address!r} would listen on every network of this machine, and whoever reaches it could run code here: "
            "MXNet's servers unpickle what workers send, and gloo does not authenticate; name one address or "
            "--interface, or say --trusted-network"
        )
    _refuse_ipv6(address)


def resolved(host: str) -> str:
    """Return the IPv4 address of a host's name, or the address itself. Raises RequestError where there is none."""
    _refuse_ipv6(host)
    if is_wildcard(host):
        return "0.0.0.0"
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no host has such a name"
        raise RequestError(f"cannot find the IPv4 address of host {host!r}: {reason}") from error
    return str(found[0][4][0])


def root_of(text: str) -> tuple[str, int]:
    """Return the IPv4 address and the port of `HOST:PORT`. Raises RequestError where it is none."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT):
        raise RequestError(f"{text!r} is not HOST:PORT, such as 10.0.0.1:9000")
    return resolved(host), int(port)


def local_address(remote: str) -> str:
    """Return the address of this machine from which it reaches `remote`, an IPv4 address; nothing is sent.

    Raises MeasurementError where no network leads there.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Any port will do: to connect a datagram socket is to look up the route.
            probe.connect((remote, 9))
        except OSError as error:
            raise MeasurementError(f"no network of this machine leads to {remote}: {error.strerror}") from error
        return str(probe.getsockname()[0])


def free_port(address: str) -> int:
    """Return a port at this IPv4 address that nobody listens at now. Raises MeasurementError where it is not ours."""
    *others, last = random.sample(PORTS, TRIES)
    for port in others:
        with suppress(MeasurementError):
            check_port(address, port)
            return port
    check_port(address, last)
    return last


def check_port(address: str, port: int) -> None:
    """Raise MeasurementError, in one line, where nothing can listen at this port of an IPv4 address."""
    listening(address, port).close()


def listening(address: str, port: int) -> socket.socket:
    """Return a socket that listens at a port of an IPv4 address. Raises MeasurementError, in one line, where it cannot.

    The port of connections that were closed a moment ago is free.
    """
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen()
    except OSError as error:
        server.close()
        raise MeasurementError(f"cannot listen at {address}:{port}: {_advice(error)}") from error
    return server


def _advice(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; choose another one, or end what listens there"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no network interface of this machine has this address"
    return error.strerror or str(error)


def _refuse_ipv6(host: str) -> None:
    # A name has no colon, and an IPv4 address neither.
    if ":" in host and not is_wildcard(host):
        raise RequestError(f"{host!r} is an IPv6 address, which MXNet cannot use; give an IPv4 address or a name")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.IPv4Address(address).is_loopback
    except ValueError:
        return False


def _interfaces() -> dict[str, list[str]]:
    """Return the IPv4 addresses of each network interface, the first one first."""
    return {
        name: [entry.address for entry in entries if entry.family == socket.AF_INET]
        for name, entries in psutil.net_if_addrs().items()
    }
