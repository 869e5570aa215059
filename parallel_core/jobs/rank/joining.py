"""Join the group of processes that the environment describes, and give up if it makes no progress."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from backends import Backend
from backends.host import core_numbers
from backends.process_groups import GroupedBackend, Rendezvous, agree, check_group, join, rendezvous
from backends.process_groups.addresses import local_address
from backends.process_groups.rendezvous import RANK_VARIABLES
from parallel_core.experiments import EXPERIMENTS
from parallel_core.jobs.job import SERVER_MODULE, SERVING_ENVIRONMENT
from parallel_core.jobs.rank.ending import dump_stacks_on_request, leave_with_starter, own_deadline
from parallel_core.jobs.reports import Arrived, Progress, reports_are_read, send_report
from parallel_core.measurement.result import Result
from parallel_core.system.errors import RequestError

__all__ = ["check_job", "described", "in_a_job", "joined", "on_several_processes", "share_gpus"]


def in_a_job() -> bool:
    """Return whether the environment says that this is one process of several, correctly or not."""
    return any(name in os.environ for name in (*RANK_VARIABLES, "WORLD_SIZE")) or bool(os.environ.get("DMLC_ROLE"))


def on_several_processes() -> list[str]:
    """List the experiments that can run on several processes."""
    return [name for name, experiment in EXPERIMENTS.items() if experiment.between_processes]


def check_job(experiment: str, backend: str) -> Rendezvous | None:
    """Return where this process meets the other ranks, None if there are none; keep to its share of the host's cores.

    If DMLC_ROLE says that this process is MXNet's scheduler or a server, it serves instead, until the job ends, and
    does not return. Call this before the framework is imported. Raises RequestError for an experiment that one process
    does, and BackendError for a backend that cannot sum between processes and for variables that contradict each other.
    """
    where = rendezvous(os.environ)
    if where is None:
        return None
    if EXPERIMENTS[experiment].between_processes is None:
        raise RequestError(f"{experiment!r} runs in one process (on several: {', '.join(on_several_processes())})")
    check_group(backend)
    role = os.environ.get("DMLC_ROLE")
    if role and backend != "mxnet":
        raise RequestError(f"DMLC_ROLE={role} makes this a process of MXNet's, and the backend is {backend}: unset it")
    if role and not (os.environ.get("DMLC_NODE_HOST") or os.environ.get("DMLC_INTERFACE")):
        # ps-lite would take the first interface, wherever it leads.
        os.environ["DMLC_NODE_HOST"] = local_address(where.address)
    if where.role != "worker":
        _serve(where)
    if reports_are_read():
        leave_with_starter()
    dump_stacks_on_request()
    cores = core_numbers()
    if where.local_size > 1 and len(cores) >= where.local_size:
        share = len(cores) // where.local_size
        os.sched_setaffinity(0, cores[where.local_rank * share : (where.local_rank + 1) * share])
    return where


def _serve(where: Rendezvous) -> NoReturn:
    """Become MXNet's scheduler or server, which the user started by hand; it keeps a separate deadline."""
    environment = {name: value for name, value in (os.environ | SERVING_ENVIRONMENT).items() if value is not None}
    os.execve(sys.executable, [sys.executable, "-P", "-m", SERVER_MODULE, f"{where.timeout}"], environment)


def share_gpus(where: Rendezvous, devices: int) -> None:
    """Let this process see only its share of the host's GPUs, `devices` of them, before a framework looks for them.

    Two ranks on one GPU would wait for each other, or be refused by NCCL.
    """
    if where.local_size == 1:
        return
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = [str(number) for number in range(where.local_size * devices)] if given is None else given.split(",")
    first = where.local_rank * devices
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[first : first + devices])


@contextmanager
def joined(
    local: Backend, where: Rendezvous, experiment: str, options: Mapping[str, object]
) -> Iterator[GroupedBackend]:
    """Meet the other ranks for an experiment, and part in good order; every exchange is reported and watched.

    All ranks must have been started with the same options, except for paths, which may differ from host to host.
    """
    send_report(Arrived())
    on_exchange = (lambda number: send_report(Progress(number))) if reports_are_read() else own_deadline(where)
    backend = join(local, where, on_exchange)
    send_report(Progress())
    alike = {name: value for name, value in options.items() if not isinstance(value, Path)}
    agree(backend.group, {"the experiment": experiment, **alike})
    yield backend
    backend.group.close()


def described(result: Result, backend: GroupedBackend) -> Result:
    """Add to a result which processes it comes from."""
    group = backend.group
    processes = {"processes": group.size, "transport": group.transport, "hosts": list(group.hosts)}
    return replace(result, backend={**result.backend, **processes})
