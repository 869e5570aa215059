"""`parallel-core launch` as it is typed: what it asks of the launcher, and what it refuses in one line."""

import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest

from backends import ComputationError
from parallel_core.command_line.launch import launch
from parallel_core.errors import RequestError
from parallel_core.jobs.addresses import free_port
from parallel_core.jobs.job import Host, Job

MODULE = "parallel_core.command_line.launch"
RUN = ("--", "run", "data-parallel")
Asked = Callable[..., Job]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return the job that a command line asks the launcher for."""
    jobs: list[Job] = []

    def take(job: Job, *_: object) -> int:
        jobs.append(job)
        return 0

    # The command stands in the place of its module.
    monkeypatch.setattr(sys.modules[MODULE], "launch_job", take)

    def launched(*arguments: str) -> Job:
        launch.main(list(arguments), standalone_mode=False)
        return jobs[-1]

    return launched


def test_the_command_of_each_rank_is_our_own_program_with_its_backend(asked: Asked) -> None:
    job = asked("--processes", "3", "--backend", "torch", *RUN, "--epochs", "2")
    program = (sys.executable, "-P", "-m", "parallel_core")
    assert job.command == (*program, "run", "data-parallel", "--epochs", "2", "--backend", "torch")
    assert (job.hosts, job.backend, job.servers, job.timeout) == ((Host(None, 3),), "torch", 0, 30.0)
    assert job.address == job.bind == "127.0.0.1"
    assert job.port > 0
    given_there = asked("--processes", "3", *RUN, "--backend=torch")
    assert given_there.command == (*program, "run", "data-parallel", "--backend=torch")


def test_only_mxnet_has_servers(asked: Asked) -> None:
    assert asked("--processes", "2", "--backend", "mxnet", *RUN).servers == 1
    assert asked("--processes", "2", "--servers", "3", *RUN, "--backend", "mxnet").servers == 3


def test_hosts_are_read_from_a_file(asked: Asked, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 slots=2\nsomebody@10.255.0.7 slots=2\n")
    job = asked("--hosts", str(path), "--bind", "127.0.0.1", "--backend", "torch", *RUN)
    assert job.hosts == (Host(None, 2), Host("somebody@10.255.0.7", 2))
    fewer = asked("--hosts", str(path), "--bind", "127.0.0.1", "--processes", "3", "--backend", "torch", *RUN)
    assert [host.slots for host in fewer.hosts] == [2, 1]
    path.write_text("somebody@10.255.0.7\n")
    elsewhere = asked("--hosts", str(path), "--python", "/there/python", "--backend", "torch", *RUN)
    assert (elsewhere.address, elsewhere.python) == ("10.255.0.7", "/there/python")


def test_a_wildcard_is_listened_at_only_on_a_trusted_network(asked: Asked) -> None:
    job = asked("--processes", "2", "--bind", "0.0.0.0", "--trusted-network", "--backend", "torch", *RUN)
    assert (job.bind, job.address) == ("0.0.0.0", "127.0.0.1")


@pytest.mark.parametrize("name", ["0.0.0.0", "0", "0x0", "somebody@0", "everywhere"])
def test_a_wildcard_is_refused_wherever_it_comes_from(
    name: str, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: [(0, 0, 0, "", ("0.0.0.0", 0))])
    path = tmp_path / "hosts"
    path.write_text(f"{name}\n")
    named = ("--bind", name.rpartition("@")[2], "--processes", "2")
    for arguments in (("--hosts", str(path)), named):
        with pytest.raises(RequestError, match="say --trusted-network"):
            asked(*arguments, "--backend", "torch", *RUN)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--processes", "2", *RUN), "say which framework"),
        (("--processes", "2", "--backend", "torch"), "give the command of each process after --"),
        (("--processes", "2", "--backend", "torch", "--", "compare"), "give the command of each process after --"),
        (("--processes", "2", "--backend", "torch", "--", "run"), "no experiment does not run on several processes"),
        (("--processes", "2", "--backend", "torch", "--", "run", "async"), "'async' does not run on several processes"),
        (("--processes", "2", "--backend", "torch", *RUN, "--backend", "mxnet"), "name it once"),
        (("--processes", "2", "--backend", "keras", *RUN), "unknown backend 'keras' (known: jax, mxnet, numpy, torch)"),
        (("--processes", "2", "--servers", "2", "--backend", "torch", *RUN), "--servers are MXNet's"),
        (("--processes", "2", "--restarts", "1", "--backend", "torch", *RUN), "give --checkpoint DIR to the run"),
        (("--processes", "2", "--bind", "0.0.0.0", "--backend", "torch", *RUN), "say --trusted-network"),
        (
            ("--processes", "2", "--bind", "0.0.0.0", "--trusted-network", "--backend", "mxnet", *RUN),
            "MXNet's scheduler listens at one address alone",
        ),
        (("--processes", "2", "--interface", "none0", "--backend", "torch", *RUN), "no network interface 'none0'"),
        (("--processes", "2", "--remote-shell", "", "--backend", "torch", *RUN), "names no command"),
        (("--processes", "2", "--remote-shell", "a 'b", "--backend", "torch", *RUN), "cannot be read"),
        (("--backend", "torch", *RUN), "say how many"),
        (("--hosts", "no-such-file", "--backend", "torch", *RUN), "cannot read no-such-file"),
    ],
)
def test_a_bad_request_is_refused_before_anything_is_started(
    arguments: Sequence[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.run", lambda *_: pytest.fail("something was started"))
    with pytest.raises(RequestError) as refused:
        launch.main(list(arguments), standalone_mode=False)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [("--processes", "0"), ("--timeout", "0"), ("--timeout", "nan"), ("--restarts", "-1"), ("--port", "65536")],
)
def test_numbers_out_of_range_are_refused(arguments: Sequence[str]) -> None:
    with pytest.raises(click.BadParameter):
        launch.main([*arguments, "--backend", "torch", *RUN], standalone_mode=False)


def test_a_port_that_is_given_is_kept(asked: Asked) -> None:
    port = free_port("127.0.0.1")
    given = asked("--processes", "2", "--port", str(port), "--backend", "torch", *RUN)
    assert (given.port, given.keeps_port) == (port, True)
    assert not asked("--processes", "2", "--backend", "torch", *RUN).keeps_port


def test_a_port_in_use_is_a_failure_that_is_reported_at_once(asked: Asked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(ComputationError, match=f"127.0.0.1:{port}: the port is in use"):
            asked("--processes", "2", "--port", port, "--backend", "torch", *RUN)
