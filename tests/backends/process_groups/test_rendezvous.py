"""The environment is read as torchrun and ps-lite mean it, or refused in one line; addresses are
this machine's.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import BackendError
from backends.process_groups.addresses import interface_of, interface_towards, local_address
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
SERVER, SCHEDULER = (PS_LITE | {"DMLC_ROLE": role} for role in ("server", "scheduler"))
BY_TORCHRUN = Rendezvous(3, 4, 1, 2, "10.0.0.1", 29500, TIMEOUT)
BY_PS_LITE = Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"PATH": "/bin", "MASTER_ADDR": "10.0.0.1"}, None),
        (TORCHRUN, BY_TORCHRUN),
        (MPIRUN, BY_TORCHRUN),
        # A job of torchrun's or of ours within one of mpirun's is itself.
        (TORCHRUN | {name: "9" for name in MPIRUN if name.startswith("OMPI")}, BY_TORCHRUN),
        # ps-lite's scheduler numbers the ranks, unless we do.
        (PS_LITE, BY_PS_LITE),
        (PS_LITE | MPIRUN, BY_PS_LITE),
        (TORCHRUN | PS_LITE, Rendezvous(3, 4, 1, 2, "10.0.0.2", 9000, TIMEOUT)),
        (SERVER, Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT, "server")),
        (SCHEDULER, Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT, "scheduler")),
    ],
)
def test_the_variables_of_each_launcher_are_read(
    environment: dict[str, str], found: Rendezvous | None
) -> None:
    assert rendezvous(environment) == found


REFUSED: list[tuple[Mapping[str, str], str, str | None, str]] = [
    # Environments with a variable of another value, or without the variable if that is None, and
    # the message that names it.
    *((TORCHRUN, "RANK", value, "RANK") for value in ("4", "-1", "²", None)),
    *((TORCHRUN, "WORLD_SIZE", value, "WORLD_SIZE") for value in ("", "0", None)),
    *((TORCHRUN, "MASTER_ADDR", value, "MASTER_ADDR") for value in ("", None)),
    *((TORCHRUN, "MASTER_PORT", value, "MASTER_PORT") for value in ("0", "65536", "http", None)),
    (TORCHRUN, "LOCAL_RANK", "2", "LOCAL_RANK"),
    *(
        (TORCHRUN, "PARALLEL_CORE_TIMEOUT", value, "PARALLEL_CORE_TIMEOUT")
        for value in ("soon", "nan", "-1")
    ),
    *(
        (TORCHRUN | PS_LITE, "DMLC_ROLE", role, f"DMLC_ROLE={role} and RANK")
        for role in ("server", "scheduler")
    ),
    *((MPIRUN, name, None, "is not set") for name in MPIRUN if name != "OMPI_COMM_WORLD_RANK"),
    (PS_LITE, "DMLC_ROLE", "master", "master"),
    (PS_LITE, "DMLC_NUM_SERVER", "0", "SERVER"),
    *((job, name, None, name) for job in (PS_LITE, SERVER, SCHEDULER) for name in PS_LITE),
]


@pytest.mark.parametrize(("environment", "name", "value", "message"), REFUSED)
def test_half_a_job_and_what_cannot_be_are_refused_by_name(
    environment: dict[str, str], name: str, value: str | None, message: str
) -> None:
    changed_environment = dict(environment)
    if value is None:
        del changed_environment[name]
    else:
        changed_environment[name] = value
    with pytest.raises(BackendError, match=message):
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
