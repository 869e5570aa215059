"""Where the processes of a job meet, and which of them this one is: read from the environment, as torchrun sets it.

Variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun, "Environment Variables");
for MXNet DMLC_ROLE, DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT, DMLC_NUM_WORKER, DMLC_NUM_SERVER (MXNet, "Distributed
Training"). Names of ours are PARALLEL_CORE_TIMEOUT, the seconds without progress after which a job is given up, and
PARALLEL_CORE_BIND, the address at which rank 0 listens where that is not the one at which it is reached.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from backends.errors import BackendError

__all__ = ["BIND_VARIABLE", "TIMEOUT", "TIMEOUT_VARIABLE", "Rendezvous", "rendezvous"]

TIMEOUT = 30.0
"""Seconds without progress after which a job is given up, where nobody says otherwise."""
TIMEOUT_VARIABLE = "PARALLEL_CORE_TIMEOUT"
BIND_VARIABLE = "PARALLEL_CORE_BIND"
MAX_PORT = 65535


@dataclass(frozen=True)
class Rendezvous:
    """Which process of a job this is, and where all of them meet.

    `rank` is None where the framework gives ranks out itself, which MXNet's scheduler does for workers that were
    started by hand.
    """

    rank: int | None
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    timeout: float


def rendezvous(environment: Mapping[str, str]) -> Rendezvous | None:
    """Read the environment; None where it describes no job. Raises BackendError where it does so by half."""
    by_torchrun = "RANK" in environment or "WORLD_SIZE" in environment
    by_scheduler = environment.get("DMLC_ROLE") == "worker"
    if not by_torchrun and not by_scheduler:
        return None
    names = ("DMLC_NUM_WORKER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT")
    size_name, address_name, port_name = names if by_scheduler else ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    rank = _number(environment, "RANK") if by_torchrun else None
    size = _number(environment, size_name)
    if size < 1 or (rank is not None and rank >= size):
        raise BackendError(f"rank {rank} of {size} processes cannot be: look at RANK and {size_name}")
    local_rank = _number(environment, "LOCAL_RANK", rank or 0)
    local_size = _number(environment, "LOCAL_WORLD_SIZE", 1 if rank is None else size)
    if local_rank >= local_size:
        raise BackendError(f"process {local_rank} of {local_size} on this host cannot be: look at LOCAL_RANK")
    port = _number(environment, port_name)
    if not 0 < port <= MAX_PORT:
        raise BackendError(f"{port_name}={port} is no port")
    return Rendezvous(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        address=_text(environment, address_name),
        port=port,
        timeout=_seconds(environment),
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise BackendError(f"{name} is not set, and the environment says that this is one process of several")
    return environment[name]


def _number(environment: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    if otherwise is not None and name not in environment:
        return otherwise
    text = _text(environment, name)
    if not (text.isascii() and text.isdigit()):
        raise BackendError(f"{name}={text} is not a whole number")
    return int(text)


def _seconds(environment: Mapping[str, str]) -> float:
    text = environment.get(TIMEOUT_VARIABLE, str(TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BackendError(f"{TIMEOUT_VARIABLE}={text} is not a number of seconds")
    return seconds
