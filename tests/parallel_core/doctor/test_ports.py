"""Ports that processes of a job would use."""

import socket

from parallel_core.doctor.ports import examine_ports
from tests.parallel_core.doctor.findings import command, named, states


def test_ports() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        section = examine_ports({"PORT": "8080"}, port)
    assert states(section) == {"loopback": "fine", "torchrun's port": "doubtful", "PORT": "doubtful"}
    assert command(named(section, "torchrun's port")).startswith("torchrun --master-port ")
    assert str(port) not in command(named(section, "torchrun's port"))
    assert command(named(section, "PORT")) == "unset PORT"
    assert states(examine_ports({}, port)) == {"loopback": "fine", "torchrun's port": "fine"}
