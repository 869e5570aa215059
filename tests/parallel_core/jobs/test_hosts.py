"""The file of hosts: what is read, what is refused with file and line, and how many ranks each host takes."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.errors import RequestError
from parallel_core.jobs.hosts import hosts_for, parse_hosts, read_hosts
from parallel_core.jobs.job import Host

NAMES = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}\.example", fullmatch=True)
HOSTS = st.lists(st.builds(Host, NAMES, st.integers(1, 9999)), min_size=1, max_size=8, unique_by=lambda host: host.name)
BETWEEN = st.sampled_from(["", "   ", "# a comment", "\t# slots=2"])
FEW_HOSTS = st.lists(st.builds(Host, NAMES, st.integers(1, 5)), min_size=1, max_size=5)


@given(HOSTS, st.data())
def test_what_is_written_is_read(hosts: list[Host], data: st.DataObject) -> None:
    lines = []
    for host in hosts:
        slots = "" if host.slots == 1 else f" slots={host.slots}"
        lines += [data.draw(BETWEEN), f"  {host.name}\t{slots} {data.draw(BETWEEN)}"]
    assert parse_hosts(lines, "hosts") == tuple(hosts)


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_text_is_read_or_refused_by_its_line(lines: list[str]) -> None:
    said = ""
    try:
        hosts = parse_hosts(lines, "hosts")
        assert all(host.slots > 0 and not (host.name or "").startswith("-") for host in hosts)
    except RequestError as error:
        said = str(error)
    assert not said or said.startswith(("hosts, line ", "hosts names no host"))


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.0.0.3", socket.gethostname()])
def test_this_machine_needs_no_remote_shell(name: str) -> None:
    assert parse_hosts([f"{name} slots=2", "other.example"], "hosts") == (Host(None, 2), Host("other.example", 1))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a.example", "a.example slots=2"], "line 2: 'a.example' stands in line 1 already"),
        (["a.example", "A.Example"], "line 2: 'A.Example' stands in line 1 already"),
        (["localhost", "", "127.0.0.1"], "line 3: '127.0.0.1' stands in line 1 already"),
        (["a.example slots=0"], "line 1: 'slots=0' is not understood"),
        (["a.example slots=-1"], "line 1: 'slots=-1' is not understood"),
        (["a.example slots=٣"], "line 1: 'slots=٣' is not understood"),
        (["a.example slots=99999"], "line 1: 'slots=99999' is not understood"),
        (["a.example 2"], "line 1: '2' is not understood"),
        (["a.example slots=1 slots=2"], "line 1: 'slots=1 slots=2' is not understood"),
        (["-oProxyCommand=reboot"], "line 1: '-oProxyCommand=reboot' is no host name"),
        (["user@-oProxyCommand"], "line 1: 'user@-oProxyCommand' is no host name"),
        (["fe80::1"], "line 1: 'fe80::1' is no host name or IPv4 address"),
        (["a;reboot"], "line 1: 'a;reboot' is no host name"),
        (["# nothing"], "names no host"),
    ],
)
def test_what_is_wrong_is_refused_by_its_line(lines: list[str], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_hosts(lines, "hosts")
    assert said in str(caught.value)


def test_a_user_may_stand_before_the_host() -> None:
    assert parse_hosts(["some-user@a.example"], "hosts") == (Host("some-user@a.example", 1),)


def test_a_file_is_read_and_one_that_cannot_be_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    with pytest.raises(RequestError, match=r"cannot read .*hosts: No such file"):
        read_hosts(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="hosts is not text"):
        read_hosts(path)
    path.write_bytes("\ufeffa.example slots=2\r\nb.example\r\n".encode())
    assert read_hosts(path) == (Host("a.example", 2), Host("b.example", 1))


@given(FEW_HOSTS, st.integers(1, 30))
def test_the_first_hosts_are_filled_first(hosts: list[Host], processes: int) -> None:
    total = sum(host.slots for host in hosts)
    if processes > total:
        with pytest.raises(RequestError, match=f"the hosts have {total};"):
            hosts_for(hosts, processes)
        return
    taken = hosts_for(hosts, processes)
    assert sum(host.slots for host in taken) == processes
    assert taken[:-1] == tuple(hosts[: len(taken) - 1])
    assert taken[-1].name == hosts[len(taken) - 1].name
