"""A job as data: which processes run on which host, with which environment. Nothing is started here.

`rank 0` … train. MXNet has a `scheduler` and `server 0` … beside them, on the first host.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from backends.process_groups.rendezvous import BIND_VARIABLE, TIMEOUT_VARIABLE
from parallel_core.jobs.addresses import PORTS, free_port
from parallel_core.jobs.messages import Process

__all__ = ["SERVER_MODULE", "SERVING_ENVIRONMENT", "Host", "Job", "port_for", "processes_of"]

SERVER_MODULE = "backends.mxnet.parameter_server"
SERVING_ENVIRONMENT: dict[str, str | None] = {"MXNET_ENGINE_TYPE": None, "OMP_NUM_THREADS": "1"}
"""Of MXNet's scheduler and servers, which need no engine and one thread; a variable that is None is removed."""
LOOPBACK_INTERFACE = "lo"


@dataclass(frozen=True)
class Host:
    """A machine, and how many ranks it takes. `name` is None for this machine, which needs no remote shell."""

    name: str | None
    slots: int


@dataclass(frozen=True)
class Job:
    """What to launch.

    `address` is where the others reach rank 0 or the scheduler. The scheduler listens at it; rank 0 listens at `bind`,
    which differs only if rank 0 listens at all addresses. `interface` names the network interface of all traffic, such
    as `lo`.
    """

    command: tuple[str, ...]
    hosts: tuple[Host, ...]
    backend: str
    servers: int
    address: str
    bind: str
    port: int
    interface: str | None
    timeout: float
    python: str = sys.executable
    """The Python of other hosts, which replaces this one in the command."""
    keeps_port: bool = False
    """Whether a restart meets at the same port, because the user chose it."""


def processes_of(job: Job) -> Sequence[Process]:
    """Return the job's processes, the scheduler and the servers first; ranks fill the hosts in their order."""
    serving = ("scheduler", *(f"server {i}" for i in range(job.servers))) if job.backend == "mxnet" else ()
    size = sum(host.slots for host in job.hosts)
    shared = _shared_environment(job, size)
    beside = [
        Process(
            name,
            0,
            _command_on(job.hosts[0], (sys.executable, "-P", "-m", SERVER_MODULE), job.python),
            {**shared, "DMLC_ROLE": name.split()[0], **SERVING_ENVIRONMENT},
        )
        for name in serving
    ]
    slots = [(index, place) for index, host in enumerate(job.hosts) for place in range(host.slots)]
    ranks = [
        Process(
            f"rank {rank}",
            index,
            _command_on(job.hosts[index], job.command, job.python),
            {
                **shared,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(place),
                "LOCAL_WORLD_SIZE": str(job.hosts[index].slots),
                "MASTER_ADDR": job.address,
                "MASTER_PORT": str(job.port),
                "DMLC_ROLE": "worker" if job.backend == "mxnet" else None,
            },
        )
        for rank, (index, place) in enumerate(slots)
    ]
    return (*beside, *ranks)


def port_for(root: Host, bind: str) -> int:
    """Return a port for a job whose first host is `root`: one that is free, if `root` is this machine, or else any."""
    return free_port(bind) if root.name is None else random.choice(PORTS)


def _command_on(host: Host, command: tuple[str, ...], python: str) -> tuple[str, ...]:
    return command if host.name is None else tuple(python if word == sys.executable else word for word in command)


def _shared_environment(job: Job, size: int) -> dict[str, str | None]:
    on_one_machine = all(host.name is None for host in job.hosts)
    environment = {
        TIMEOUT_VARIABLE: f"{job.timeout:g}",
        # gloo takes the loopback interface only if the variable names it.
        "GLOO_SOCKET_IFNAME": job.interface or (LOOPBACK_INTERFACE if on_one_machine else None),
        BIND_VARIABLE: job.bind if job.bind != job.address else None,
    }
    if job.backend == "mxnet":
        environment |= {
            "DMLC_PS_ROOT_URI": job.address,
            "DMLC_PS_ROOT_PORT": str(job.port),
            "DMLC_NUM_WORKER": str(size),
            "DMLC_NUM_SERVER": str(job.servers),
            # Each agent finds its own host's address.
            "DMLC_NODE_HOST": job.address if on_one_machine else None,
            "DMLC_INTERFACE": None,
            # ps-lite would listen at it in every process.
            "PORT": None,
            # With it ps-lite's scheduler would listen at all addresses.
            "DMLC_USE_KUBERNETES": None,
        }
    return environment
