"""The environment is read as torchrun and ps-lite mean it, or refused in one line; addresses are
this machine's.
"""

import socket

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


@pytest.mark.parametrize(
    ("environment", "name", "values", "message"),
    [
        (TORCHRUN, "RANK", ["4", "-1", "²"], "RANK"),
        (TORCHRUN, "WORLD_SIZE", ["", "0"], "WORLD_SIZE"),
        (TORCHRUN, "MASTER_ADDR", [""], "MASTER_ADDR"),
        (TORCHRUN, "MASTER_PORT", ["0", "65536", "http"], "MASTER_PORT"),
        (TORCHRUN, "LOCAL_RANK", ["2"], "LOCAL_RANK"),
        (TORCHRUN, "PARALLEL_CORE_TIMEOUT", ["soon", "nan", "-1"], "PARALLEL_CORE_TIMEOUT"),
        (TORCHRUN | PS_LITE, "DMLC_ROLE", ["server"], "DMLC_ROLE=server and RANK"),
        (TORCHRUN | PS_LITE, "DMLC_ROLE", ["scheduler"], "DMLC_ROLE=scheduler and RANK"),
        (PS_LITE, "DMLC_ROLE", ["master"], "master"),
        (PS_LITE, "DMLC_NUM_SERVER", ["0"], "SERVER"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    environment: dict[str, str], name: str, values: list[str], message: str
) -> None:
    for value in values:
        with pytest.raises(BackendError, match=message):
            rendezvous(environment | {name: value})


OPTIONAL = {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}


@pytest.mark.parametrize("job", [TORCHRUN, MPIRUN, PS_LITE, SERVER, SCHEDULER])
def test_half_a_job_is_refused_by_what_is_missing(job: dict[str, str]) -> None:
    for name in job.keys() - OPTIONAL:
        rest = {other: value for other, value in job.items() if other != name}
        with pytest.raises(BackendError, match="is not set" if job is MPIRUN else name):
            rendezvous(rest)


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
