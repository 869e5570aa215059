"""The rendezvous of a job's processes, and which of them this is: read from the environment.

torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun,
"Environment Variables"). Open MPI's mpirun sets the first four under different names (mpirun(1),
"Environment Variables"), and passes on the last two on request. MXNet's launcher sets DMLC_ROLE,
DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT, DMLC_NUM_WORKER and DMLC_NUM_SERVER (MXNet, "Distributed
Training"). Two are our own: PARALLEL_CORE_TIMEOUT, after how many seconds without progress a
process gives up, and PARALLEL_CORE_BIND, the address at which rank 0 listens if it is not
MASTER_ADDR.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from backends.errors import BackendError

TIMEOUT = 30.0
"""Default seconds without progress after which a process gives up."""
TIMEOUT_VARIABLE = "PARALLEL_CORE_TIMEOUT"
BIND_VARIABLE = "PARALLEL_CORE_BIND"
MPIRUN_VARIABLES = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
"""What mpirun calls torchrun's variables."""
RANK_VARIABLES = ("RANK", MPIRUN_VARIABLES["RANK"])
ROOT_VARIABLES = ("DMLC_NUM_WORKER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT")

Role = Literal["worker", "server", "scheduler"]


@dataclass(frozen=True)
class Rendezvous:
    """This process's place in a job, and the address at which all of the job meet.

    `rank` is None if the framework numbers the processes itself: MXNet's scheduler numbers workers
    that were started by hand. Only MXNet has other roles than `worker`; a server or scheduler
    trains nothing.
    """

    rank: int | None
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    timeout: float
    role: Role = "worker"


def rendezvous(environment: Mapping[str, str]) -> Rendezvous | None:
    """Return the rendezvous that the environment describes; None if it describes no job.

    Raises BackendError if the description is incomplete.
    """
    has_ranks = "RANK" in environment or "WORLD_SIZE" in environment
    role = environment.get("DMLC_ROLE")
    if not role and not has_ranks and MPIRUN_VARIABLES["RANK"] in environment:
        environment = _with_variables_of_torchrun(environment)
        has_ranks = True
    if not role and not has_ranks:
        left_over = [name for name in ROOT_VARIABLES if environment.get(name)]
        if left_over:
            raise BackendError(
                f"{left_over[0]} is set, and DMLC_ROLE is not: set it, or unset "
                f"{' '.join(left_over)}"
            )
        return None
    if role:
        _check_role(role, has_ranks)
        size_name, address_name, port_name = ROOT_VARIABLES
    else:
        size_name, address_name, port_name = "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
    rank = _number(environment, "RANK") if has_ranks else None
    size = _number(environment, size_name)
    if size < 1 or (rank is not None and rank >= size):
        raise BackendError(
            f"rank {rank} of {size} processes cannot be: look at RANK and {size_name}"
        )
    if role and not _number(environment, "DMLC_NUM_SERVER"):
        raise BackendError("DMLC_NUM_SERVER=0: MXNet's workers need a server at least")
    # A launcher that names no local ranks starts all ranks on this host.
    local_rank = _number(environment, "LOCAL_RANK", rank or 0)
    processes_here = 1 if rank is None else size
    local_size = _number(environment, "LOCAL_WORLD_SIZE", processes_here)
    if local_rank >= local_size:
        raise BackendError(
            f"process {local_rank} of {local_size} on this host cannot be: look at LOCAL_RANK"
        )
    port = _number(environment, port_name)
    if not 0 < port < 2**16:
        raise BackendError(f"{port_name}={port} is no port")
    return Rendezvous(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        address=_text(environment, address_name),
        port=port,
        timeout=_seconds(environment),
        role=cast(Role, role or "worker"),
    )


def _with_variables_of_torchrun(environment: Mapping[str, str]) -> dict[str, str]:
    """Return mpirun's environment with its variables under torchrun's names too."""
    renamed = dict(environment)
    for torchrun_name, mpirun_name in MPIRUN_VARIABLES.items():
        renamed[torchrun_name] = environment.get(mpirun_name, "")
    return renamed


def _check_role(role: str, has_ranks: bool) -> None:
    """Raise BackendError for a role that MXNet does not have, or that cannot have a rank."""
    roles = get_args(Role)
    if role not in roles:
        raise BackendError(f"DMLC_ROLE={role} is no role of MXNet's (known: {', '.join(roles)})")
    if has_ranks and role != "worker":
        raise BackendError(
            f"DMLC_ROLE={role} and RANK are both set: a {role} of MXNet's has no rank; unset one "
            "of them"
        )


def _text(environment: Mapping[str, str], name: str) -> str:
    """Return a variable's value; raises BackendError if it is not set."""
    if not environment.get(name):
        raise BackendError(
            f"{name} is not set, and the environment says that this is one process of several"
        )
    return environment[name]


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a variable's value as a whole number, or the default if it is not set."""
    if default is not None and name not in environment:
        return default
    text = _text(environment, name)
    if not (text.isascii() and text.isdigit()):
        raise BackendError(f"{name}={text} is not a whole number")
    return int(text)


def _seconds(environment: Mapping[str, str]) -> float:
    """Return the seconds without progress after which a process gives up."""
    text = environment.get(TIMEOUT_VARIABLE, str(TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BackendError(f"{TIMEOUT_VARIABLE}={text} is not a number of seconds")
    return seconds
