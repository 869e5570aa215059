"""A job as data: which processes run on which host, with which environment. Nothing is started here.

`rank 0` … are the training's processes. MXNet has a `scheduler` and `server 0` … beside them, on the first host.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

__all__ = ["Host", "Job", "Process", "processes_of"]


@dataclass(frozen=True)
class Host:
    """A machine, and how many ranks it takes. `name` is None for this machine, where no remote shell is needed."""

    name: str | None
    slots: int


@dataclass(frozen=True)
class Job:
    """What is to be launched.

    `address` is where rank 0 or the scheduler listens, as the others reach it; `bind` is what it listens at, which is
    the same but where it listens everywhere. `interface` names the network interface of all traffic, such as `lo`.
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


class Process(msgspec.Struct, frozen=True):
    """One process: `name` is `rank 0`, `server 0` or `scheduler`; `host` an index of the job's hosts."""

    name: str
    host: int
    command: tuple[str, ...]
    environment: dict[str, str]


def processes_of(job: Job) -> Sequence[Process]:
    """Return the job's processes, the scheduler and the servers first."""
    raise NotImplementedError
