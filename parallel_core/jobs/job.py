"""A job as data: which processes run on this machine, and with which environment.

Nothing is started here. `rank 0` … train. MXNet has a `scheduler` and `server 0` … beside them.
"""

import os
import sys
from dataclasses import dataclass
from typing import TypeAlias

from backends.process_groups.rendezvous import BIND_VARIABLE, TIMEOUT_VARIABLE

Environment: TypeAlias = dict[str, str | None]
"""Variables to be added to those of this process; one that is None is removed."""
SERVER_COMMAND = (sys.executable, "-P", "-m", "backends.mxnet.parameter_server")
"""Of MXNet's scheduler and servers; a number of seconds after it makes them keep a deadline."""
SERVING_ENVIRONMENT: Environment = {"MXNET_ENGINE_TYPE": None, "OMP_NUM_THREADS": "1"}
"""Of the same, which need no engine and one thread."""
ADDRESS = "127.0.0.1"
"""Where everything listens: what the frameworks speak is not authenticated."""


@dataclass(frozen=True)
class Job:
    """A job: a command that runs in several ranks, which meet at a port of this machine.

    `servers` are MXNet's. `timeout` is the seconds without progress after which a rank gives up.
    """

    command: tuple[str, ...]
    processes: int
    backend: str
    servers: int
    port: int
    timeout: float


@dataclass(frozen=True)
class Process:
    """One process of a job: `rank 0` … train.

    MXNet has a `scheduler` and `server 0` … beside them.
    """

    name: str
    command: tuple[str, ...]
    environment: Environment


def environment_with(added: Environment) -> dict[str, str]:
    """Return this process's environment with other variables."""
    return {name: value for name, value in (os.environ | added).items() if value is not None}


def is_rank(name: str) -> bool:
    """Return whether the process of this name trains; a scheduler or server does not."""
    return name.startswith("rank ")


def processes_of(job: Job) -> list[Process]:
    """Return the job's processes, the scheduler and the servers first."""
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
        "DMLC_NUM_SERVER": str(job.servers),
        "DMLC_NODE_HOST": ADDRESS,
        "DMLC_INTERFACE": None,
        # ps-lite would listen at it in every process.
        "PORT": None,
        # With it ps-lite's scheduler would listen at all addresses.
        "DMLC_USE_KUBERNETES": None,
    }
    return [*_serving_processes_of(job, common), *_ranks_of(job, {**common, "DMLC_ROLE": "worker"})]


def _serving_processes_of(job: Job, common: Environment) -> list[Process]:
    """Return MXNet's scheduler and servers."""
    serving = {**common, **SERVING_ENVIRONMENT}
    return [
        Process("scheduler", SERVER_COMMAND, {**serving, "DMLC_ROLE": "scheduler"}),
        *(
            Process(f"server {number}", SERVER_COMMAND, {**serving, "DMLC_ROLE": "server"})
            for number in range(job.servers)
        ),
    ]


def _ranks_of(job: Job, common: Environment) -> list[Process]:
    """Return the ranks, which find the variables that torchrun would set."""
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
