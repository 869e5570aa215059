"""Which processes a job has, and what each finds in its environment."""

import sys
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backends.process_groups.rendezvous import rendezvous
from parallel_core.jobs.job import Host, Job, processes_of
from parallel_core.jobs.messages import Process

JOB = Job(("run", "it"), (Host(None, 2),), "torch", 0, "127.0.0.1", "127.0.0.1", 1234, None, 12.5)
MXNET = replace(JOB, backend="mxnet", servers=2)


def ranks_of(job: Job) -> list[Process]:
    return [process for process in processes_of(job) if process.name.startswith("rank")]


def given_to(process: Process) -> dict[str, str]:
    return {name: value for name, value in process.environment.items() if value is not None}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from(["torch", "mxnet"]))
def test_ranks_fill_the_hosts_in_order_and_read_back_what_they_are(slots: list[int], backend: str) -> None:
    hosts = tuple(Host(f"host-{index}", number) for index, number in enumerate(slots))
    job = replace(JOB, hosts=hosts, backend=backend, servers=int(backend == "mxnet"))
    reads = [(process.host, rendezvous(given_to(process))) for process in ranks_of(job)]
    places = [(index, place) for index, number in enumerate(slots) for place in range(number)]
    assert [(host, read.local_rank) for host, read in reads if read] == places
    assert [read.rank for _, read in reads if read] == list(range(sum(slots)))
    for host, read in reads:
        assert read is not None
        assert (read.size, read.local_size) == (sum(slots), slots[host])
        assert (read.address, read.port, read.timeout) == ("127.0.0.1", 1234, 12.5)


def test_only_mxnet_has_a_scheduler_and_servers_and_they_come_first() -> None:
    assert [process.name for process in processes_of(JOB)] == ["rank 0", "rank 1"]
    names = ["scheduler", "server 0", "server 1", "rank 0", "rank 1"]
    assert [process.name for process in processes_of(MXNET)] == names


def test_scheduler_and_servers_are_on_the_first_host_with_an_engine_of_their_own() -> None:
    hosts = (Host("a", 1), Host("b", 1))
    for process in processes_of(replace(MXNET, hosts=hosts, python="/there/python"))[:3]:
        assert process.host == 0
        assert process.command == ("/there/python", "-P", "-m", "backends.mxnet.parameter_server")
        assert process.environment["DMLC_ROLE"] == process.name.split()[0]
        # Whoever chose the synchronous engine did not choose it for them.
        assert process.environment["MXNET_ENGINE_TYPE"] is None
        assert process.environment["OMP_NUM_THREADS"] == "1"
        assert "RANK" not in process.environment


def test_what_somebody_else_set_is_taken_away() -> None:
    for name in ("PORT", "DMLC_USE_KUBERNETES"):
        assert all(process.environment[name] is None for process in processes_of(MXNET))
    assert all(process.environment["DMLC_ROLE"] is None for process in processes_of(JOB))


def test_on_one_machine_all_traffic_is_on_the_loopback_interface() -> None:
    for process in processes_of(MXNET):
        assert process.environment["GLOO_SOCKET_IFNAME"] == "lo"
        assert process.environment["DMLC_NODE_HOST"] == "127.0.0.1"
    elsewhere = replace(MXNET, hosts=(Host("a", 1), Host("b", 1)))
    for process in processes_of(elsewhere):
        assert process.environment["GLOO_SOCKET_IFNAME"] is None
        # The agent finds it out.
        assert process.environment["DMLC_NODE_HOST"] is None
    assert processes_of(replace(elsewhere, interface="eth1"))[0].environment["GLOO_SOCKET_IFNAME"] == "eth1"


def test_the_listening_address_is_set_only_if_it_is_another_one() -> None:
    assert processes_of(JOB)[0].environment["PARALLEL_CORE_BIND"] is None
    assert processes_of(replace(JOB, bind="0.0.0.0"))[0].environment["PARALLEL_CORE_BIND"] == "0.0.0.0"


def test_another_host_has_a_python_of_its_own() -> None:
    job = replace(JOB, command=(sys.executable, "-m", "x"), hosts=(Host(None, 1), Host("b", 1)), python="/there/python")
    assert [process.command for process in processes_of(job)] == [
        (sys.executable, "-m", "x"),
        ("/there/python", "-m", "x"),
    ]
