"""A job as data: which processes run on this machine, with which environment. Nothing is started here.

`rank 0` … train. MXNet has a `scheduler` and `server 0` … beside them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from backends.process_groups.rendezvous import BIND_VARIABLE, TIMEOUT_VARIABLE

__all__ = ["ADDRESS", "SERVER_MODULE", "SERVING_ENVIRONMENT", "Job", "Process", "is_rank", "processes_of"]

SERVER_MODULE = "backends.mxnet.parameter_server"
SERVING_ENVIRONMENT: dict[str, str | None] = {"MXNET_ENGINE_TYPE": None, "OMP_NUM_THREADS": "1"}
"""Of MXNet's scheduler and servers, which need no engine and one thread; a variable that is None is removed."""
ADDRESS = "127.0.0.1"
"""Where everything listens: what the frameworks speak is not authenticated."""


@dataclass(frozen=True)
class Job:
    """What to launch: a command in so many ranks, which meet at a port. `timeout` is in seconds."""

    command: tuple[str, ...]
    processes: int
    backend: str
    servers: int
    port: int
    timeout: float
    keeps_port: bool = False
    """Whether a restart meets at the same port, because the user chose it."""


@dataclass(frozen=True)
class Process:
    """One process; `environment` is added to the launcher's, and a variable that is None is removed."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str | None]


def is_rank(name: str) -> bool:
    """Return whether a process of this name trains; a scheduler or server does not."""
    return name.startswith("rank ")


def processes_of(job: Job) -> Sequence[Process]:
    """Return the job's processes, the scheduler and the servers first."""
    size = str(job.processes)
    shared: dict[str, str | None] = {
        TIMEOUT_VARIABLE: f"{job.timeout:g}",
        # gloo takes the loopback interface only if the variable names it.
        "GLOO_SOCKET_IFNAME": "lo",
        BIND_VARIABLE: None,
    }
    serving: tuple[str, ...] = ()
    if job.backend == "mxnet":
        serving = ("scheduler", *(f"server {number}" for number in range(job.servers)))
        shared |= {
            "DMLC_PS_ROOT_URI": ADDRESS,
            "DMLC_PS_ROOT_PORT": str(job.port),
            "DMLC_NUM_WORKER": size,
            "DMLC_NUM_SERVER": str(job.servers),
            "DMLC_NODE_HOST": ADDRESS,
            "DMLC_INTERFACE": None,
            # ps-lite would listen at it in every process.
            "PORT": None,
            # With it ps-lite's scheduler would listen at all addresses.
            "DMLC_USE_KUBERNETES": None,
        }
    of_ranks = {
        **shared,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(job.port),
        "DMLC_ROLE": "worker" if job.backend == "mxnet" else None,
    }
    serve = (sys.executable, "-P", "-m", SERVER_MODULE)
    return (
        *(Process(name, serve, {**shared, "DMLC_ROLE": name.split()[0], **SERVING_ENVIRONMENT}) for name in serving),
        *(
            Process(f"rank {rank}", job.command, {**of_ranks, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(job.processes)
        ),
    )
