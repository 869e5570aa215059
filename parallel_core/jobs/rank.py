"""A rank of a job: it joins the processes that the environment describes, and ends if it fails or
is stuck.

If one rank failed, the frameworks of the others would wait for ever. So every rank has a deadline,
whoever started it: our launcher, torchrun, mpirun or a user.
"""

import faulthandler
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic, sleep
from typing import NoReturn

from backends import Backend
from backends.host import core_numbers, keep_to_cores
from backends.process_groups.addresses import local_address
from backends.process_groups.group import DisagreementError, GroupError, agree
from backends.process_groups.grouped_backend import GroupedBackend, check_group, join
from backends.process_groups.rendezvous import RANK_VARIABLES, Rendezvous, rendezvous
from parallel_core.experiments import EXPERIMENTS
from parallel_core.jobs.job import SERVER_COMMAND, SERVING_ENVIRONMENT, environment_with
from parallel_core.measurement.result import Result
from parallel_core.system.errors import REFUSED, RequestError
from parallel_core.system.formatting import visible
from parallel_core.training.loop import NotFiniteError

ENGINE_GRACE_SECONDS = 2.0
"""The seconds that are added to the deadline, so that an engine with a deadline gives up first, and
names what it waited for.
"""
NAMING_SECONDS = 2 * ENGINE_GRACE_SECONDS
"""The seconds for which a rank waits while another rank, which knows better, says what went wrong.
"""
STACKS_SECONDS = 1.0
"""The seconds for which a stuck rank waits until other stuck ranks have printed their stacks."""

_leaving = threading.Event()


def in_a_job() -> bool:
    """Return whether environment variables describe a job, correctly or not."""
    names = (*RANK_VARIABLES, "WORLD_SIZE")
    is_rank = any(name in os.environ for name in names)
    has_role = bool(os.environ.get("DMLC_ROLE"))
    return is_rank or has_role


def on_several_processes() -> list[str]:
    """Return the names of the experiments that can run on several processes."""
    return [name for name, experiment in EXPERIMENTS.items() if experiment.between_processes]


def check_job(experiment: str, backend: str) -> Rendezvous | None:
    """Return where this process meets the other ranks of its job; None if it has no job.

    The process is bound to its share of the host's cores. If DMLC_ROLE makes it MXNet's scheduler
    or a server, it serves until the job ends, and this function does not return. Call this before
    the framework is imported.

    Raises RequestError for an experiment that runs in one process, and BackendError for a backend
    that cannot sum between processes, or for variables that contradict each other.
    """
    where = rendezvous(os.environ)
    if where is None:
        return None
    if EXPERIMENTS[experiment].between_processes is None:
        others = ", ".join(on_several_processes())
        raise RequestError(f"{experiment!r} runs in one process (on several: {others})")
    check_group(backend)
    role = os.environ.get("DMLC_ROLE")
    if role and backend != "mxnet":
        problem = f"DMLC_ROLE={role} makes this a process of MXNet's"
        raise RequestError(f"{problem}, and the backend is {backend}: unset it")
    has_address = os.environ.get("DMLC_NODE_HOST") or os.environ.get("DMLC_INTERFACE")
    if role and not has_address:
        # Otherwise ps-lite would take the first network interface, wherever it leads.
        os.environ["DMLC_NODE_HOST"] = local_address(where.address)
    if where.role != "worker":
        _serve(where)
    cores = core_numbers()
    if where.local_size > 1 and len(cores) >= where.local_size:
        share = len(cores) // where.local_size
        first = where.local_rank * share
        keep_to_cores(cores[first : first + share])
    return where


def _serve(where: Rendezvous) -> NoReturn:
    """Become MXNet's scheduler or server, with a deadline, in place of this process."""
    command = [*SERVER_COMMAND, f"{where.timeout}"]
    os.execve(sys.executable, command, environment_with(SERVING_ENVIRONMENT))


def share_gpus(where: Rendezvous, devices: int) -> None:
    """Let this process see only its share of the host's GPUs, `devices` of them.

    Two ranks on one GPU would wait for each other, or be refused by NCCL. Call this before a
    framework looks for GPUs.
    """
    if where.local_size == 1:
        return
    numbers = [str(number) for number in range(where.local_size * devices)]
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        numbers = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    first = where.local_rank * devices
    own_numbers = numbers[first : first + devices]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(own_numbers)


@contextmanager
def joined(
    local: Backend, where: Rendezvous, asked: Mapping[str, object]
) -> Iterator[GroupedBackend]:
    """Join the other ranks, under a deadline, and leave the group at the end.

    All ranks must be asked for the same, by the names of these values.
    """
    backend = join(local, where, on_exchange=_keep_deadline(where))
    agree(backend.group, asked)
    yield backend
    backend.group.close()


def described(result: Result, backend: GroupedBackend) -> Result:
    """Return a result with the number, the transport and the hosts of its processes."""
    group = backend.group
    processes = {"processes": group.size, "transport": group.transport, "hosts": list(group.hosts)}
    return replace(result, backend={**result.backend, **processes})


def leave(error: BaseException, message: str, status: int) -> NoReturn:
    """Print on standard error why this process of a job fails, and end it with an exit status."""
    _leaving.set()
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
    role = os.environ.get("DMLC_ROLE") or "worker"
    fails_in_all_ranks = status == REFUSED or isinstance(error, DisagreementError)
    if fails_in_all_ranks and rank not in (None, "0"):
        # Rank 0 prints the same message first. Then the launcher ends this rank.
        sleep(NAMING_SECONDS)
    who = f"rank {rank}" if rank else f"a {role}"
    _say(who, f": {message}")
    if _is_consequence(error):
        # The rank with the cause should end first: the launcher then ends all others.
        sleep(NAMING_SECONDS)
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(status)


def _say(who: str, what: str) -> None:
    """Print a line on standard error, with the host of this process."""
    line = f"parallel-core: {who} on {socket.gethostname()}{visible(what)}"
    # The process must end even if nobody reads its output any more.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _is_consequence(error: BaseException | None) -> bool:
    """Return whether an error is only the consequence of another rank's error."""
    while error is not None:
        if isinstance(error, GroupError):
            return True
        # The sum is not finite, although this rank's own gradients are.
        if isinstance(error, NotFiniteError) and not error.devices:
            return True
        error = error.__cause__
    return False


def _keep_deadline(where: Rendezvous) -> Callable[[int], None]:
    """Start a watchdog that ends this rank if it launches no exchange for too long.

    Returns the function to call with the number of each exchange. The watchdog prints the stacks of
    all threads and the reason on standard error, and ends the process with status 1.
    """
    seconds = where.timeout + ENGINE_GRACE_SECONDS
    exchanges, last_progress = 0, monotonic()

    def on_exchange(number: int) -> None:
        nonlocal exchanges, last_progress
        exchanges, last_progress = number, monotonic()

    def watch() -> None:
        while (left := last_progress + seconds - monotonic()) > 0:
            if _leaving.wait(left):
                # This rank has printed its error, and ends by itself.
                return
        faulthandler.dump_traceback(all_threads=True)
        who = "a worker" if where.rank is None else f"rank {where.rank}"
        progress = "not all ranks have joined"
        if exchanges:
            progress = f"it has launched {exchanges} exchanges"
        _say(
            f"{who} of {where.size}",
            f" made no progress for {seconds:g} s: {progress}; look at the stacks above, and at "
            "the other ranks",
        )
        # The launcher ends all ranks when the first one ends.
        sleep(STACKS_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
    return on_exchange
