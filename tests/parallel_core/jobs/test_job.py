"""A job's processes: which there are, and what each finds in its environment."""

from dataclasses import replace

import pytest

from backends.process_groups.rendezvous import Rendezvous, rendezvous
from parallel_core.jobs.job import Job, Process, processes_of

JOB = Job(("run", "it"), 3, "torch", 0, 1234, 12.5)
MXNET = replace(JOB, backend="mxnet", servers=2)


def rendezvous_of(process: Process) -> Rendezvous | None:
    return rendezvous(
        {name: value for name, value in process.environment.items() if value is not None}
    )


@pytest.mark.parametrize("job", [JOB, MXNET])
def test_ranks_read_back_what_they_are(job: Job) -> None:
    ranks = [process for process in processes_of(job) if process.name.startswith("rank")]
    assert [process.name for process in ranks] == ["rank 0", "rank 1", "rank 2"]
    # What somebody else set is taken away.
    own = {"DMLC_ROLE": None if job is JOB else "worker", "PARALLEL_CORE_BIND": None}
    for number, process in enumerate(ranks):
        assert process.command == ("run", "it")
        assert rendezvous_of(process) == Rendezvous(number, 3, number, 3, "127.0.0.1", 1234, 12.5)
        assert own.items() <= process.environment.items()


def test_only_mxnet_has_a_scheduler_and_servers_and_they_come_first() -> None:
    assert [process.name for process in processes_of(JOB)] == ["rank 0", "rank 1", "rank 2"]
    serving = processes_of(MXNET)[:-3]
    assert [process.name for process in serving] == ["scheduler", "server 0", "server 1"]
    # Whoever chose the synchronous engine did not choose it for them.
    own = {"MXNET_ENGINE_TYPE": None, "OMP_NUM_THREADS": "1"}
    for process in serving:
        where = rendezvous_of(process)
        assert where is not None
        assert (where.role, where.rank, where.size) == (process.name.split()[0], None, 3)
        assert process.command[1:] == ("-P", "-m", "backends.mxnet.parameter_server")
        assert own.items() <= process.environment.items()


def test_all_traffic_is_on_the_loopback_interface() -> None:
    here = {"GLOO_SOCKET_IFNAME": "lo", "DMLC_NODE_HOST": "127.0.0.1"}
    here |= dict.fromkeys(("PORT", "DMLC_USE_KUBERNETES", "DMLC_INTERFACE"))
    assert all(here.items() <= process.environment.items() for process in processes_of(MXNET))
