"""A job of one machine listens on its loopback interface and nowhere else: what it speaks is not authenticated."""

import ipaddress
import signal
import subprocess
import sys
from collections.abc import Callable
from time import monotonic, sleep

import psutil
import pytest

DEADLINE = 60


def listening_addresses(launcher: psutil.Process) -> list[str]:
    found = []
    for process in (launcher, *launcher.children(recursive=True)):
        try:
            sockets = process.net_connections("inet")
        except psutil.NoSuchProcess:
            continue
        found += [socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN]
    return found


# torch: the store, and each rank for the others. MXNet: a scheduler, a server and two workers.
@pytest.mark.parametrize(("framework", "sockets"), [("torch", 3), ("mxnet", 4)])
def test_nothing_listens_to_other_machines(framework: str, sockets: int, require: Callable[[str], None]) -> None:
    require(framework)
    run = ["run", "data-parallel", "--batch-size", "32"]
    command = [sys.executable, "-m", "parallel_core", "launch", "--processes", "2", "--backend", framework, "--", *run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        seen: list[str] = []
        end = monotonic() + DEADLINE
        while len(seen) < sockets and launcher.poll() is None and monotonic() < end:
            sleep(0.1)
            seen = listening_addresses(psutil.Process(launcher.pid))
        launcher.send_signal(signal.SIGTERM)
        _, errors = launcher.communicate()
    assert len(seen) >= sockets, errors.decode()
    assert all(ipaddress.ip_address(address).is_loopback for address in seen), seen
