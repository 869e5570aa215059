"""Processes listen at one address of this machine; at a wildcard only if the network is trusted."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import ComputationError
from backends.process_groups.addresses import interface_of
from parallel_core.errors import RequestError
from parallel_core.jobs.addresses import check_bind, check_port, free_port, interface_address, is_wildcard, resolved

LOOPBACK = "127.0.0.1"
ADDRESSES = st.ip_addresses(v=4).map(str)


@pytest.mark.parametrize(
    "address", ["", "*", "0.0.0.0", "0", "0x0", "000.0", "::", "[::]", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"]
)
def test_a_wildcard_needs_a_trusted_network(address: str) -> None:
    assert is_wildcard(address)
    with pytest.raises(RequestError, match=r"unpickle .* gloo does not authenticate; .*--trusted-network"):
        check_bind(address, trusted=False)
    check_bind(address, trusted=True)
    assert resolved(address) == "0.0.0.0"


@given(ADDRESSES, st.booleans())
def test_one_address_is_no_wildcard(address: str, trusted: bool) -> None:
    if address != "0.0.0.0":
        assert not is_wildcard(address)
        check_bind(address, trusted)
        assert resolved(address) == address


@given(st.ip_addresses(v=6).filter(lambda address: address != ipaddress.IPv6Address("::")), st.booleans())
def test_ipv6_is_refused(address: ipaddress.IPv6Address, trusted: bool) -> None:
    for text in (str(address), f"[{address}]"):
        if not is_wildcard(text):
            with pytest.raises(RequestError, match="is an IPv6 address, which MXNet cannot use"):
                check_bind(text, trusted)
            with pytest.raises(RequestError, match="is an IPv6 address"):
                resolved(text)


def test_an_interface_has_an_address_and_an_address_an_interface() -> None:
    loopback = interface_of(LOOPBACK)
    assert loopback is not None
    assert interface_address(loopback) == LOOPBACK
    # All of 127.0.0.0/8 is this machine.
    assert interface_of("127.1.2.3") == loopback


def test_an_unknown_interface_is_refused_with_those_that_exist() -> None:
    with pytest.raises(RequestError, match=rf"no network interface 'eth77' here \(known: .*{interface_of(LOOPBACK)}"):
        interface_address("eth77")


def test_a_free_port_can_be_used_and_a_used_one_is_named() -> None:
    port = free_port(LOOPBACK)
    check_port(LOOPBACK, port)
    with socket.create_server((LOOPBACK, port)):
        with pytest.raises(ComputationError, match=rf"^cannot listen at 127\.0\.0\.1:{port}: the port is in use"):
            check_port(LOOPBACK, port)
        # Another address of this machine is another port.
        check_port("127.0.0.2", port)
    check_port(LOOPBACK, port)


def test_a_port_whose_connections_were_closed_a_moment_ago_is_free() -> None:
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        # Who closes first keeps the port for a minute.
        accepted.close()
        client.recv(1)
        port = server.getsockname()[1]
    check_port(LOOPBACK, port)


def test_an_address_of_another_machine_is_not_listened_at() -> None:
    # Reserved for documentation (RFC 5737).
    with pytest.raises(ComputationError, match=r"203\.0\.113\.7:\d+: no network interface of this machine"):
        free_port("203.0.113.7")


def test_a_host_may_be_a_name() -> None:
    assert resolved("localhost") == "127.0.0.1"


@pytest.mark.parametrize("name", ["no-such-host.invalid", "x" * 300, "a..b", "\udcff", "a\0b"])
def test_a_host_without_an_address_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="cannot find the IPv4 address"):
        resolved(name)
