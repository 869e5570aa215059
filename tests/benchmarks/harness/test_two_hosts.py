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


def output_on(hosts: TwoHosts, host: int, command: str) -> str:
    """Return what a shell's command prints on a host."""
    words = [*hosts.on(host), "sh", "-c", command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def test_each_host_has_its_own_name_address_and_loopback(hosts: TwoHosts) -> None:
    for host, name in enumerate(ADDRESSES):
        assert output_on(hosts, host, "uname --nodename") == f"{name}\n"
        rows = output_on(hosts, host, "ip -4 -oneline address").splitlines()
        # Such as "1: lo inet 127.0.0.1/8 scope host lo".
        addresses = {row.split()[1]: row.split()[3] for row in rows}
        # The host has no other: what runs there cannot leave the two.
        assert addresses == {"lo": "127.0.0.1/8", INTERFACE: f"{name}/24"}


def test_each_host_has_its_own_cores_if_there_is_more_than_one(hosts: TwoHosts) -> None:
    def cores_of(host: int) -> str:
        affinity = output_on(hosts, host, "taskset --pid --cpu-list $$")
        return affinity.split(": ")[-1]

    assert cores_of(0) != cores_of(1) or len(core_numbers()) == 1


def test_each_host_reaches_the_other(hosts: TwoHosts) -> None:
    connect = f"import socket; socket.create_connection(('{ADDRESSES[1]}', 4321), 10)"
    # Nothing listens there, and the other host says so.
    assert "ConnectionRefusedError" in output_on(hosts, 0, f'{sys.executable} -c "{connect}"')


def test_the_rate_holds_for_both_directions_and_can_change(hosts: TwoHosts) -> None:
    show = f"tc qdisc show dev {INTERFACE}"
    for bits_per_second, rate in ((10e9, "rate 10Gbit"), (1e8, "rate 100Mbit")):
        set_link(hosts, bits_per_second)
        assert rate in output_on(hosts, 0, show)
        assert rate in output_on(hosts, 1, show)
    set_link(hosts, None)
    assert "rate" not in output_on(hosts, 0, show)


@pytest.mark.usefixtures("hosts")  # It says whether they can be made here.
def test_what_runs_on_hosts_is_listed_and_ends_with_them() -> None:
    with two_hosts() as new_hosts:
        first_holder, second_holder = new_hosts.holders
        sleeping = subprocess.Popen([*new_hosts.on(1), "sleep", "60"])
        while processes_in(second_holder) != [sleeping.pid]:
            sleep(0.01)
        assert processes_in(first_holder) == []
    assert sleeping.wait(timeout=60) == -signal.SIGKILL
    assert not Path(f"/proc/{first_holder}").exists()
    assert not Path(f"/proc/{second_holder}").exists()


HOLD = """
from benchmarks.harness.two_hosts import two_hosts
with two_hosts() as hosts:
    print(*hosts.holders, flush=True)
    input()
"""


@pytest.mark.usefixtures("hosts")  # It says whether they can be made here.
def test_nothing_is_left_when_the_program_is_killed(root: Path) -> None:
    command = [sys.executable, "-c", HOLD]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, text=True) as holding:
        assert holding.stdout is not None
        holders = [int(word) for word in holding.stdout.readline().split()]
        assert len(holders) == 2
        holding.kill()
    deadline = monotonic() + 60
    # A holder that has ended and that nobody waits for yet is a zombie, and has no network any
    # more.
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
