"""Two hosts on one machine: each has an address and cores of its own, and nothing of them is left
behind.
"""

import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from backends.host import core_numbers
from benchmarks.harness import two_hosts as hosting
from benchmarks.harness.two_hosts import (
    ADDRESSES,
    INTERFACE,
    NoHostsError,
    TwoHosts,
    processes_in,
    set_link,
    two_hosts,
)


def said_on(hosts: TwoHosts, host: int, command: str) -> str:
    words = [*hosts.on(host), "sh", "-c", command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def test_each_host_has_its_own_name_address_loopback_and_cores_and_reaches_the_other(
    hosts: TwoHosts,
) -> None:
    for host, name in enumerate(ADDRESSES):
        assert said_on(hosts, host, "uname --nodename") == f"{name}\n"
        shown = said_on(hosts, host, "ip -4 -oneline address")
        found = {line.split()[1]: line.split()[3] for line in shown.splitlines()}
        # And no other: what runs there cannot leave the two.
        assert found == {"lo": "127.0.0.1/8", INTERFACE: f"{name}/24"}
    first, second = (
        said_on(hosts, host, "taskset --pid --cpu-list $$").split(": ")[-1] for host in (0, 1)
    )
    assert first != second or len(core_numbers()) == 1
    connect = f"import socket; socket.create_connection(('{ADDRESSES[1]}', 4321), 10)"
    # Nothing listens there, and the other host says so.
    assert "ConnectionRefusedError" in said_on(hosts, 0, f'{sys.executable} -c "{connect}"')


def test_the_rate_holds_for_both_directions_and_can_change(hosts: TwoHosts) -> None:
    for rate, written in ((10e9, "rate 10Gbit"), (1e8, "rate 100Mbit")):
        set_link(hosts, rate)
        for host in (0, 1):
            assert written in said_on(hosts, host, f"tc qdisc show dev {INTERFACE}")
    set_link(hosts, None)
    assert "rate" not in said_on(hosts, 0, f"tc qdisc show dev {INTERFACE}")


def test_what_runs_on_them_is_listed_and_ends_with_them(hosts: TwoHosts) -> None:
    del hosts  # It says whether they can be made here.
    with two_hosts() as own:
        sleeping = subprocess.Popen([*own.on(1), "sleep", "60"])
        while processes_in(own.holders[1]) != [sleeping.pid]:
            sleep(0.01)
        assert processes_in(own.holders[0]) == []
    assert sleeping.wait(timeout=60) == -signal.SIGKILL
    assert not any(Path(f"/proc/{holder}").exists() for holder in own.holders)


HOLD = """
from benchmarks.harness.two_hosts import two_hosts
with two_hosts() as hosts:
    print(*hosts.holders, flush=True)
    input()
"""


def test_nothing_is_left_when_the_program_is_killed(root: Path, hosts: TwoHosts) -> None:
    del hosts  # It says whether they can be made here.
    command, pipe = [sys.executable, "-c", HOLD], subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True) as holding:
        assert holding.stdout is not None
        holders = [int(word) for word in holding.stdout.readline().split()]
        assert len(holders) == 2
        holding.kill()
    deadline = monotonic() + 60
    # One that has ended and that nobody waits for yet is a zombie, and has no network any more.
    while any(hosting.network_of(holder) for holder in holders):
        assert monotonic() < deadline
        sleep(0.01)


@pytest.mark.parametrize(
    ("missing", "user", "reason"), [("tc", 0, "need tc: apt-get install"), ("", 1000, "need root")]
)
def test_without_what_they_need_there_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, missing: str, user: int, reason: str
) -> None:
    monkeypatch.setattr(hosting.shutil, "which", lambda name: None if name == missing else name)
    monkeypatch.setattr(hosting.os, "geteuid", lambda: user)
    with pytest.raises(NoHostsError, match=reason), two_hosts():
        pass
