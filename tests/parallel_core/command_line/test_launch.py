"""`parallel-core launch` as it is typed: what it asks of the launcher, and what it refuses in one line."""

import socket
import sys
from collections.abc import Callable

import pytest

from backends import ComputationError
from backends.process_groups.addresses import free_port
from parallel_core.command_line.launch import launch
from parallel_core.jobs.job import Job
from tests.conftest import RunProgram

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
    assert (job.processes, job.backend, job.servers, job.timeout) == (3, "torch", 0, 30.0)
    assert job.port > 0
    given_there = asked("--processes", "3", *RUN, "--backend=torch")
    assert given_there.command == (*program, "run", "data-parallel", "--backend=torch")


def test_only_mxnet_has_servers(asked: Asked) -> None:
    assert asked("--processes", "2", "--backend", "mxnet", *RUN).servers == 1
    assert asked("--processes", "2", "--servers", "3", *RUN, "--backend", "mxnet").servers == 3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--processes 2 -- run data-parallel", "say which framework"),
        ("--processes 2 --backend torch", "give the command of each process after --"),
        ("--processes 2 --backend torch -- compare", "give the command of each process after --"),
        ("--processes 2 --backend torch -- run", "'run' does not run on several processes"),
        ("--processes 2 --backend torch -- run async", "'run async' does not run on several processes"),
        ("--processes 2 --backend torch -- run data-parallel --backend mxnet", "name it once"),
        ("--processes 2 -- run data-parallel --backend", "say which framework"),
        ("--processes 2 --backend keras -- run data-parallel", "unknown backend 'keras' (known: jax, mxnet, numpy,"),
        ("--processes 2 --servers 2 --backend torch -- run data-parallel", "--servers are MXNet's"),
        ("--processes 2 --restarts 1 --backend torch -- run data-parallel", "give --checkpoint DIR to the run"),
        ("--backend torch -- run data-parallel", "say how many"),
        ("--processes 0 -- run data-parallel", "--processes"),
        ("--processes 2 --timeout nan -- run data-parallel", "--timeout"),
        ("--processes 2 --restarts -1 -- run data-parallel", "--restarts"),
        ("--processes 2 --port 65536 -- run data-parallel", "--port"),
    ],
)
def test_a_bad_request_is_refused_before_anything_is_started(
    program: RunProgram, line: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.run", lambda *_: pytest.fail("something was started"))
    done = program("launch", *line.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert expected in done.stderr


def test_a_port_that_is_given_is_kept_and_one_in_use_is_a_failure_that_is_reported_at_once(asked: Asked) -> None:
    port = free_port("127.0.0.1")
    given = asked("--processes", "2", "--port", str(port), "--backend", "torch", *RUN)
    assert (given.port, given.keeps_port) == (port, True)
    assert not asked("--processes", "2", "--backend", "torch", *RUN).keeps_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = str(taken.getsockname()[1])
        with pytest.raises(ComputationError, match=f"127.0.0.1:{used}: the port is in use"):
            asked("--processes", "2", "--port", used, "--backend", "torch", *RUN)
