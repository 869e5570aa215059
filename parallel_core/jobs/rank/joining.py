"""Join the group of processes that the environment describes, and keep watch from then on."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import final

from backends import Backend
from backends.host import core_numbers
from backends.process_groups import GroupedBackend, Rendezvous, agree, check_group, join, rendezvous
from parallel_core.errors import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.jobs.messages import Arrived, Joined, Progress
from parallel_core.jobs.rank.reporting import report, reports_are_read
from parallel_core.jobs.rank.watchdog import Watch, dump_stacks_on_request, leave_with_starter
from parallel_core.measurement.result import Result

__all__ = ["check_job", "described", "in_a_job", "joined", "on_several_processes", "share_gpus"]

GRACE_SECONDS = 2.0
"""The engines that have a deadline themselves know better what they were waiting for, and come first."""


def in_a_job() -> bool:
    """Tell whether the environment says that this is one process of several, whether rightly or not."""
    return "RANK" in os.environ or "WORLD_SIZE" in os.environ or "DMLC_ROLE" in os.environ


def on_several_processes() -> list[str]:
    """List the experiments that can run on several processes."""
    return [name for name, experiment in EXPERIMENTS.items() if experiment.run_between_processes]


def check_job(experiment: str, backend: str) -> Rendezvous | None:
    """Return where this process meets the others, None where it is alone; keep to its share of the host's cores.

    Call it before the framework is imported. Raises RequestError for an experiment that one process does, and
    BackendError for a backend that has nothing between processes.
    """
    where = rendezvous(os.environ)
    if where is None:
        return None
    if EXPERIMENTS[experiment].run_between_processes is None:
        raise RequestError(f"{experiment!r} runs in one process (on several: {', '.join(on_several_processes())})")
    check_group(backend)
    if reports_are_read():
        leave_with_starter()
    dump_stacks_on_request()
    cores = core_numbers()
    if where.local_size > 1 and len(cores) >= where.local_size:
        share = len(cores) // where.local_size
        os.sched_setaffinity(0, cores[where.local_rank * share : (where.local_rank + 1) * share])
    return where


def share_gpus(where: Rendezvous, devices: int) -> None:
    """Let this process see its share of the host's GPUs only, so many, before a framework looks for them.

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
    """Meet the others for an experiment, report and watch over every exchange, and part in good order.

    All ranks must have been started with the same options, except for paths, which may differ from host to host.
    """
    progress = _Progress(where)
    host = socket.gethostname()
    report(Arrived(host))
    backend = join(local, where, progress.on_exchange)
    report(Joined(backend.group.rank, host))
    alike = {name: value for name, value in options.items() if not isinstance(value, Path)}
    agree(backend.group, {"the experiment": experiment, **alike})
    yield backend
    backend.group.close()
    progress.stop()


def described(result: Result, backend: GroupedBackend) -> Result:
    """Add to a result which processes it is of."""
    group = backend.group
    told = {"processes": group.size, "transport": group.transport, "hosts": list(group.hosts)}
    return replace(result, backend={**result.backend, **told})


@final
class _Progress:
    def __init__(self, where: Rendezvous) -> None:
        self._exchanges = 0
        self._where = where
        self._watch = None if reports_are_read() else Watch(where.timeout + GRACE_SECONDS, self._describe)

    def on_exchange(self, number: int) -> None:
        self._exchanges = number
        report(Progress(number))
        if self._watch is not None:
            self._watch.progressed()

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _describe(self, seconds: float) -> str:
        where = self._where
        who = f"rank {where.rank}" if where.rank is not None else "a worker"
        begun = f"it has begun {self._exchanges} exchanges" if self._exchanges else "not all of the ranks have joined"
        return (
            f"parallel-core: {who} of {where.size} on {socket.gethostname()} made no progress for {seconds:g} s: "
            f"{begun}; look at the stacks above, and at the other ranks"
        )
