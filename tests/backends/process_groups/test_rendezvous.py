"""The environment is read as torchrun and ps-lite mean it, or refused in one line; addresses are
this machine's.
"""

import socket
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import BackendError, ComputationError
from backends.process_groups.addresses import (
    interface_of,
    interface_towards,
    listen_at,
    local_address,
)
from backends.process_groups.rendezvous import TIMEOUT, Rendezvous, rendezvous


def variables(text: str) -> dict[str, str]:
    """Return environment variables from a text of NAME=value pairs."""
    return dict(assignment.split("=") for assignment in text.split())


ADDRESS = "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"
TORCHRUN = variables(f"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 {ADDRESS}")
MPIRUN = variables(
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
    f"OMPI_COMM_WORLD_LOCAL_SIZE=2 {ADDRESS}"
)
PS_LITE = variables(
    "DMLC_ROLE=worker DMLC_NUM_WORKER=4 DMLC_NUM_SERVER=2 DMLC_PS_ROOT_URI=10.0.0.2 "
    "DMLC_PS_ROOT_PORT=9000"
)
SERVER = PS_LITE | {"DMLC_ROLE": "server"}
SCHEDULER = PS_LITE | {"DMLC_ROLE": "scheduler"}
OPEN_MPI_S_NAMES = [name for name in MPIRUN if name.startswith("OMPI")]
BY_TORCHRUN = Rendezvous(3, 4, 1, 2, "10.0.0.1", 29500, TIMEOUT)
BY_PS_LITE = Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PATH": "/bin", "MASTER_ADDR": "10.0.0.1"}, None),
        (TORCHRUN, BY_TORCHRUN),
        (MPIRUN, BY_TORCHRUN),
        # A job of torchrun's or of ours within one of mpirun's is itself.
        (TORCHRUN | dict.fromkeys(OPEN_MPI_S_NAMES, "9"), BY_TORCHRUN),
        # ps-lite's scheduler numbers the ranks, unless we do.
        (PS_LITE, BY_PS_LITE),
        (PS_LITE | MPIRUN, BY_PS_LITE),
        (TORCHRUN | PS_LITE, Rendezvous(3, 4, 1, 2, "10.0.0.2", 9000, TIMEOUT)),
        (SERVER, Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT, "server")),
        (SCHEDULER, Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT, "scheduler")),
    ],
)
def test_the_variables_of_each_launcher_are_read(
    environment: dict[str, str], expected: Rendezvous | None
) -> None:
    assert rendezvous(environment) == expected


class Refused(NamedTuple):
    """An environment in which a variable has another value, or is missing if that is None."""

    environment: Mapping[str, str]
    name: str
    value: str | None
    message: str


def refused(environment: Mapping[str, str], name: str, *values: str | None) -> list[Refused]:
    """Make a case of each value of a variable, with messages that name it."""
    return [Refused(environment, name, value, name) for value in values]


def refused_without(job: Mapping[str, str], *names: str) -> list[Refused]:
    """Make a case of each variable that a job lacks, with messages that name it."""
    return [Refused(job, name, None, name) for name in names]


TWO_LAUNCHERS = TORCHRUN | PS_LITE
MPIRUN_BESIDE_RANK = [name for name in MPIRUN if name != "OMPI_COMM_WORLD_RANK"]
REFUSED: list[Refused] = [
    *refused(TORCHRUN, "RANK", "4", "-1", "²", None),
    *refused(TORCHRUN, "WORLD_SIZE", "", "0", None),
    *refused(TORCHRUN, "MASTER_ADDR", "", None),
    *refused(TORCHRUN, "MASTER_PORT", "0", "65536", "http", None),
    *refused(TORCHRUN, "LOCAL_RANK", "2"),
    *refused(TORCHRUN, "PARALLEL_CORE_TIMEOUT", "soon", "nan", "-1"),
    Refused(TWO_LAUNCHERS, "DMLC_ROLE", "server", "DMLC_ROLE=server and RANK"),
    Refused(TWO_LAUNCHERS, "DMLC_ROLE", "scheduler", "DMLC_ROLE=scheduler and RANK"),
    *(Refused(MPIRUN, name, None, "is not set") for name in MPIRUN_BESIDE_RANK),
    Refused(PS_LITE, "DMLC_ROLE", "master", "master"),
    Refused(PS_LITE, "DMLC_NUM_SERVER", "0", "SERVER"),
    *refused_without(PS_LITE, *PS_LITE),
    *refused_without(SERVER, *SERVER),
    *refused_without(SCHEDULER, *SCHEDULER),
]


@pytest.mark.parametrize("case", REFUSED)
def test_half_a_job_and_what_cannot_be_are_refused_by_name(case: Refused) -> None:
    changed_environment = dict(case.environment)
    if case.value is None:
        del changed_environment[case.name]
    else:
        changed_environment[case.name] = case.value
    with pytest.raises(BackendError, match=case.message):
        rendezvous(changed_environment)


@given(st.dictionaries(st.sampled_from([*TORCHRUN, *PS_LITE]), st.text(max_size=6), max_size=10))
def test_any_environment_is_read_or_refused(changed: dict[str, str]) -> None:
    try:
        result = rendezvous(TORCHRUN | changed)
    except BackendError:
        return
    assert result is not None
    assert result.size > 0
    assert result.rank is None or 0 <= result.rank < result.size


@pytest.mark.parametrize("address", ["192.0.2.255", "nobody", ""])
def test_what_no_interface_has_belongs_to_none(address: str) -> None:
    assert interface_of(address) is None


def test_from_loopback_loopback_is_reached() -> None:
    assert local_address("127.0.0.1") == "127.0.0.1"
    assert interface_towards("127.0.0.1") == interface_of("127.0.0.1")


def test_a_port_in_use_is_said_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        _, used = taken.getsockname()
        with pytest.raises(ComputationError, match=f"127.0.0.1:{used}: the port is in use"):
            listen_at("127.0.0.1", used)
