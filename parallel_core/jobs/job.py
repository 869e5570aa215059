"""A job as data: its processes on this machine, and their environments.

Nothing is started here. The processes `rank 0`, `rank 1`, … train. MXNet also has a `scheduler` and
a `server`.
"""

import os
import sys
from dataclasses import dataclass

from backends.process_groups.rendezvous import BIND_VARIABLE, TIMEOUT_VARIABLE

Environment = dict[str, str | None]
"""Variables to add to those of this process; a variable that is None is removed."""
SERVER_COMMAND = (sys.executable, "-P", "-m", "backends.mxnet.parameter_server")
"""The command of MXNet's scheduler and server; an argument sets a deadline in seconds."""
SERVING_ENVIRONMENT: Environment = {"MXNET_ENGINE_TYPE": None, "OMP_NUM_THREADS": "1"}
"""The environment of MXNet's scheduler and server, which need no engine and one thread."""
ADDRESS = "127.0.0.1"
"""The address at which all processes listen, because the frameworks' protocols authenticate nobody.
"""


@dataclass(frozen=True)
class Job:
    """A job: a command that runs in several ranks, which meet at a port of this machine."""

    command: tuple[str, ...]
    processes: int
    """The number of ranks."""
    backend: str
    port: int
    timeout: float
    """The seconds without progress after which a rank gives up."""


@dataclass(frozen=True)
class Process:
    """One process of a job: a rank, or MXNet's scheduler or server."""

    name: str
    command: tuple[str, ...]
    environment: Environment


def environment_with(added: Environment) -> dict[str, str]:
    """Return this process's environment with added variables, and without those that are None."""
    variables = {**os.environ, **added}
    return {name: value for name, value in variables.items() if value is not None}


def is_rank(name: str) -> bool:
    """Return whether a process of a name is a rank, and no scheduler or server."""
    return name.startswith("rank ")


def processes_of(job: Job) -> list[Process]:
    """Return the processes of a job: the scheduler and the server first, then the ranks."""
    common: Environment = {
        TIMEOUT_VARIABLE: f"{job.timeout:g}",
        # gloo takes the loopback interface only if the variable names it.
        "GLOO_SOCKET_IFNAME": "lo",
        BIND_VARIABLE: None,
    }
    if job.backend != "mxnet":
        return _ranks_of(job, {**common, "DMLC_ROLE": None})
    common |= {
        "DMLC_PS_ROOT_URI": ADDRESS,
        "DMLC_PS_ROOT_PORT": str(job.port),
        "DMLC_NUM_WORKER": str(job.processes),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NODE_HOST": ADDRESS,
        "DMLC_INTERFACE": None,
        # Otherwise every process of ps-lite would listen at this port.
        "PORT": None,
        # With it ps-lite's scheduler would listen at all addresses.
        "DMLC_USE_KUBERNETES": None,
    }
    serving = []
    for role in ("scheduler", "server"):
        environment = {**common, **SERVING_ENVIRONMENT, "DMLC_ROLE": role}
        serving.append(Process(role, SERVER_COMMAND, environment))
    return [*serving, *_ranks_of(job, {**common, "DMLC_ROLE": "worker"})]


def _ranks_of(job: Job, common: Environment) -> list[Process]:
    """Return the ranks, with the environment variables that torchrun would set."""
    size = str(job.processes)
    common = {
        **common,
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(job.port),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
    }
    return [
        Process(f"rank {rank}", job.command, {**common, "RANK": rank, "LOCAL_RANK": rank})
        for rank in map(str, range(job.processes))
    ]
