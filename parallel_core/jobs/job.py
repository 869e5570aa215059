"""A job as data: which processes run on this machine, with which environment, and what becomes known of each.

Nothing is started here. `rank 0` … train. MXNet has a `scheduler` and `server 0` … beside them. What becomes known of a
process is what a rank reports, in lines of JSON on a pipe, what it prints, and its end.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from backends.process_groups.rendezvous import BIND_VARIABLE, TIMEOUT_VARIABLE

SERVER_MODULE = "backends.mxnet.parameter_server"
SERVING_ENVIRONMENT: dict[str, str | None] = {"MXNET_ENGINE_TYPE": None, "OMP_NUM_THREADS": "1"}
"""Of MXNet's scheduler and servers, which need no engine and one thread; a variable that is None is removed."""
ADDRESS = "127.0.0.1"
"""Where everything listens: what the frameworks speak is not authenticated."""
REPORTS_VARIABLE = "PARALLEL_CORE_REPORTS"
"""Holds the number of the pipe."""


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


class Arrived(msgspec.Struct, tag=True, frozen=True):
    """The rank is ready, and waits for the other ranks to join."""


class Progress(msgspec.Struct, tag=True, frozen=True):
    """The rank is in the group, and launched its n-th exchange or did a batch. Sent at each of them."""

    exchanges: int = 0
    epoch: int = 0
    step: int = 0
    """Of the batch that is done; `epoch` and `step` are 0 if none is."""
    images: int = 0
    """Of the batch that is done, over all ranks; 0 if none is."""


class Training(msgspec.Struct, tag=True, frozen=True):
    """A training begins, of `epochs` with `images` each; for the progress bar."""

    epochs: int
    images: int


class TrainedEpoch(msgspec.Struct, tag=True, frozen=True):
    """An epoch is done; `line` is shown to the user."""

    line: str


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The rank gives up, and exits with `status`. `by_others`: the cause is another rank, which is gone or differs."""

    message: str
    by_others: bool
    status: int


class Printed(NamedTuple):
    """It wrote this to standard output or standard error; a line may be cut anywhere."""

    data: bytes
    error: bool


class Ended(NamedTuple):
    """It has ended, with an exit status or the negative number of a signal; no news come after this."""

    status: int


Report: TypeAlias = Arrived | Progress | Training | TrainedEpoch | Failed
News: TypeAlias = Report | Printed | Ended

decode_report: Callable[[bytes], Report] = msgspec.json.Decoder(Report).decode
"""Raises msgspec.DecodeError for a line that is no report."""


def reports_are_read() -> bool:
    """Return whether a launcher of ours started this process and reads its reports."""
    return REPORTS_VARIABLE in os.environ


def send_report(report: Report) -> None:
    """Send a report to the launcher, if there is one; leave at once if it is gone."""
    if not reports_are_read():
        return
    try:
        os.write(int(os.environ[REPORTS_VARIABLE]), msgspec.json.encode(report) + b"\n")
    except BrokenPipeError:
        os._exit(1)
