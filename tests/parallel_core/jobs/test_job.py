"""A job's processes: which there are, and what each finds in its environment."""

from dataclasses import replace

import pytest

from backends.process_groups.rendezvous import Rendezvous, rendezvous
from parallel_core.jobs.job import Job, Process, processes_of

TORCH = Job(("run", "it"), processes=3, backend="torch", port=1234, timeout=12.5)
MXNET = replace(TORCH, backend="mxnet")


def rendezvous_of(process: Process) -> Rendezvous | None:
    """Return where a process meets the others, as it reads it from its environment."""
    environment = {name: value for name, value in process.environment.items() if value is not None}
    return rendezvous(environment)


@pytest.mark.parametrize(
    ("job", "role"), [(TORCH, None), (MXNET, "worker")], ids=["torch", "mxnet"]
)
def test_ranks_read_back_what_they_are(job: Job, role: str | None) -> None:
    for number, process in enumerate(processes_of(job)[-3:]):
        assert process.name == f"rank {number}"
        assert process.command == ("run", "it")
        assert rendezvous_of(process) == Rendezvous(number, 3, number, 3, "127.0.0.1", 1234, 12.5)
        assert process.environment["DMLC_ROLE"] == role
        # What somebody else set is taken away.
        assert process.environment["PARALLEL_CORE_BIND"] is None


def test_only_mxnet_has_a_scheduler_and_a_server_and_they_come_first() -> None:
    assert len(processes_of(TORCH)) == 3
    serving = processes_of(MXNET)[:-3]
    assert [process.name for process in serving] == ["scheduler", "server"]
    for process in serving:
        meeting = rendezvous_of(process)
        assert meeting is not None
        assert (meeting.role, meeting.rank, meeting.size) == (process.name, None, 3)
        assert process.command[1:] == ("-P", "-m", "backends.mxnet.parameter_server")
        # Whoever chose the synchronous engine did not choose it for them.
        assert process.environment["MXNET_ENGINE_TYPE"] is None
        assert process.environment["OMP_NUM_THREADS"] == "1"


def test_all_traffic_is_on_the_loopback_interface() -> None:
    loopback = {
        "GLOO_SOCKET_IFNAME": "lo",
        "DMLC_NODE_HOST": "127.0.0.1",
        "PORT": None,
        "DMLC_USE_KUBERNETES": None,
        "DMLC_INTERFACE": None,
    }
    for process in processes_of(MXNET):
        assert loopback.items() <= process.environment.items()
