"""Addresses and interfaces of this machine."""

import socket

import pytest

from backends.process_groups.addresses import connect_to, interface_of, interface_towards, local_address


@pytest.mark.parametrize("address", ["192.0.2.255", "nobody", ""])
def test_what_no_interface_has_belongs_to_none(address: str) -> None:
    assert interface_of(address) is None


def test_from_loopback_loopback_is_reached() -> None:
    assert local_address("127.0.0.1") == "127.0.0.1"
    assert interface_towards("127.0.0.1") == interface_of("127.0.0.1")


def test_a_socket_that_connects_to_itself_has_found_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", 0))
        _, port = alone.getsockname()
        alone.connect(("127.0.0.1", port))
        monkeypatch.setattr(socket, "create_connection", lambda *_: alone)
        with pytest.raises(ConnectionRefusedError, match=f"nobody listens at 127.0.0.1:{port}"):
            connect_to("127.0.0.1", port, 1.0)
        assert alone.fileno() == -1
