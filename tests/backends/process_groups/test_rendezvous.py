"""The environment is read as torchrun and ps-lite mean it, or refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import BackendError
from backends.process_groups.rendezvous import TIMEOUT, Rendezvous, rendezvous

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}
PS_LITE = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "4",
    "DMLC_NUM_SERVER": "2",
    "DMLC_PS_ROOT_URI": "10.0.0.2",
    "DMLC_PS_ROOT_PORT": "9000",
}


def test_no_job_is_no_rendezvous() -> None:
    assert rendezvous({"PATH": "/bin", "MASTER_ADDR": "10.0.0.1"}) is None


@pytest.mark.parametrize(
    "environment",
    # A job of torchrun's or of ours within one of mpirun's is itself.
    [TORCHRUN, MPIRUN, TORCHRUN | {name: "9" for name in MPIRUN if name.startswith("OMPI")}],
)
def test_torchrun_s_and_mpirun_s_variables(environment: dict[str, str]) -> None:
    assert rendezvous(environment) == Rendezvous(3, 4, 1, 2, "10.0.0.1", 29500, TIMEOUT)


@pytest.mark.parametrize("others", [{}, MPIRUN])
def test_ps_lite_s_variables_alone_leave_the_rank_to_its_scheduler(others: dict[str, str]) -> None:
    assert rendezvous(PS_LITE | others) == Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT)


def test_ps_lite_s_place_and_our_rank() -> None:
    assert rendezvous(TORCHRUN | PS_LITE) == Rendezvous(3, 4, 1, 2, "10.0.0.2", 9000, TIMEOUT)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"RANK": "4"}, "RANK"),
        ({"RANK": "-1"}, "RANK"),
        ({"RANK": "²"}, "RANK"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR"),
        ({"MASTER_PORT": "0"}, "MASTER_PORT"),
        ({"MASTER_PORT": "65536"}, "MASTER_PORT"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK"),
        ({"PARALLEL_CORE_TIMEOUT": "soon"}, "PARALLEL_CORE_TIMEOUT"),
        ({"PARALLEL_CORE_TIMEOUT": "nan"}, "PARALLEL_CORE_TIMEOUT"),
        ({"PARALLEL_CORE_TIMEOUT": "-1"}, "PARALLEL_CORE_TIMEOUT"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changed: dict[str, str], named: str) -> None:
    with pytest.raises(BackendError, match=named):
        rendezvous(TORCHRUN | changed)


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_mxnet_s_other_roles_have_no_rank(role: str) -> None:
    assert rendezvous(PS_LITE | {"DMLC_ROLE": role}) == Rendezvous(None, 4, 0, 1, "10.0.0.2", 9000, TIMEOUT, role)
    with pytest.raises(BackendError, match=f"DMLC_ROLE={role} and RANK are both set"):
        rendezvous(TORCHRUN | PS_LITE | {"DMLC_ROLE": role})


NEEDED = [
    *((TORCHRUN, name, name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")),
    *((MPIRUN, name, "is not set") for name in MPIRUN if name != "OMPI_COMM_WORLD_RANK"),
    *((PS_LITE | {"DMLC_ROLE": role}, name, name) for role in ("worker", "server", "scheduler") for name in PS_LITE),
]


@pytest.mark.parametrize(("environment", "missing", "named"), NEEDED)
def test_half_a_job_is_refused(environment: dict[str, str], missing: str, named: str) -> None:
    with pytest.raises(BackendError, match=named):
        rendezvous({name: value for name, value in environment.items() if name != missing})


@pytest.mark.parametrize(
    ("changed", "named"), [({"DMLC_ROLE": "master"}, "master"), ({"DMLC_NUM_SERVER": "0"}, "SERVER")]
)
def test_what_cannot_be_of_mxnet_s_is_refused_by_name(changed: dict[str, str], named: str) -> None:
    with pytest.raises(BackendError, match=named):
        rendezvous(PS_LITE | changed)


@given(st.dictionaries(st.sampled_from([*TORCHRUN, *PS_LITE]), st.text(max_size=6), max_size=10))
def test_any_environment_is_read_or_refused(changed: dict[str, str]) -> None:
    try:
        result = rendezvous(TORCHRUN | changed)
    except BackendError:
        return
    assert result is not None
    assert result.size > 0
    assert result.rank is None or 0 <= result.rank < result.size
