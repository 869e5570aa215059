"""What a rank does: join the group of processes that the environment describes, and end if it fails
or is stuck.

The frameworks would wait for ever, each for the rest. So every rank keeps a deadline, whoever
started it: a launcher of ours, torchrun, mpirun or somebody by hand.
"""

import faulthandler
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

from backends import Backend
from backends.host import core_numbers
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
"""Added to the deadline: an engine that has a deadline gives up first, and names what it waited
for.
"""
NAMING_SECONDS = 2 * ENGINE_GRACE_SECONDS
"""How long a rank waits for another one to say what went wrong, if that is rather for the other to
say.
"""
STACKS_SECONDS = 1.0
"""How long a rank that is stuck waits for others that are stuck to write their stacks, too."""

_leaving = threading.Event()


def in_a_job() -> bool:
    """Return whether the environment says that this is one process of several, correctly or not."""
    names = (*RANK_VARIABLES, "WORLD_SIZE")
    return any(name in os.environ for name in names) or bool(os.environ.get("DMLC_ROLE"))


def on_several_processes() -> list[str]:
    """List the experiments that can run on several processes."""
    return [name for name, experiment in EXPERIMENTS.items() if experiment.between_processes]


def check_job(experiment: str, backend: str) -> Rendezvous | None:
    """Return where this process meets the other ranks, None if there are none.

    Keep to its share of the host's cores. If DMLC_ROLE says that this process is MXNet's scheduler
    or a server, it serves instead, until the job ends, and does not return. Call this before the
    framework is imported. Raises RequestError for an experiment that one process does, and
    BackendError for a backend that cannot sum between processes and for variables that contradict
    each other.
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
    if role and not (os.environ.get("DMLC_NODE_HOST") or os.environ.get("DMLC_INTERFACE")):
        # ps-lite would take the first interface, wherever it leads.
        os.environ["DMLC_NODE_HOST"] = local_address(where.address)
    if where.role != "worker":
        _serve(where)
    cores = core_numbers()
    if where.local_size > 1 and len(cores) >= where.local_size:
        share = len(cores) // where.local_size
        os.sched_setaffinity(0, cores[where.local_rank * share : (where.local_rank + 1) * share])
    return where


def _serve(where: Rendezvous) -> NoReturn:
    """Become MXNet's scheduler or server, which the user started by hand.

    It keeps a separate deadline.
    """
    command = [*SERVER_COMMAND, f"{where.timeout}"]
    os.execve(sys.executable, command, environment_with(SERVING_ENVIRONMENT))


def share_gpus(where: Rendezvous, devices: int) -> None:
    """Let this process see only its share of the host's GPUs, `devices` of them, before a framework
    looks for them.

    Two ranks on one GPU would wait for each other, or be refused by NCCL.
    """
    if where.local_size == 1:
        return
    all_of_them = ",".join(map(str, range(where.local_size * devices)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", all_of_them).split(",")
    first = where.local_rank * devices
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[first : first + devices])


@contextmanager
def joined(
    local: Backend, where: Rendezvous, experiment: str, options: Mapping[str, Any]
) -> Iterator[GroupedBackend]:
    """Meet the other ranks for an experiment, and part in good order; a deadline is kept meanwhile.

    All ranks must have been started with the same options, except for paths, which may differ from
    host to host.
    """
    backend = join(local, where, on_exchange=_keep_deadline(where))
    alike = {name: value for name, value in options.items() if not isinstance(value, Path)}
    agree(backend.group, {"the experiment": experiment, **alike})
    yield backend
    backend.group.close()


def described(result: Result, backend: GroupedBackend) -> Result:
    """Add to a result which processes it comes from."""
    group = backend.group
    processes = {"processes": group.size, "transport": group.transport, "hosts": list(group.hosts)}
    return replace(result, backend={**result.backend, **processes})


def leave(error: BaseException, message: str, status: int) -> NoReturn:
    """Say on standard error why this process of a job fails, and end it with an exit status."""
    _leaving.set()
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
    role = os.environ.get("DMLC_ROLE") or "worker"
    fails_in_all_ranks = status == REFUSED or isinstance(error, DisagreementError)
    if fails_in_all_ranks and rank not in (None, "0"):
        # Whoever started the ranks ends this one when rank 0 has said the same.
        sleep(NAMING_SECONDS)
    _say(f"rank {rank}" if rank else f"a {role}", f": {message}")
    if _is_consequence(error):
        # Whoever started the ranks ends all of them when the first one ends, and that is the cause.
        sleep(NAMING_SECONDS)
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(status)


def _say(who: str, what: str) -> None:
    line = f"parallel-core: {who} on {socket.gethostname()}{visible(what)}"
    # If nobody reads any more, the process must end all the same.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _is_consequence(error: BaseException | None) -> bool:
    """Return whether an error is only the consequence of another rank's."""
    while error is not None:
        if isinstance(error, GroupError):
            return True
        # The sum is not finite, though this rank's own terms are.
        if isinstance(error, NotFiniteError) and not error.devices:
            return True
        error = error.__cause__
    return False


def _keep_deadline(where: Rendezvous) -> Callable[[int], None]:
    """End this rank when it launches no exchange for too long, even as it exits.

    Return what is called with the number of each exchange. The stacks of all threads, and a line
    that says why, go to standard error; the exit status is 1.
    """
    seconds = where.timeout + ENGINE_GRACE_SECONDS
    exchanges, last_progress = 0, monotonic()

    def on_exchange(number: int) -> None:
        nonlocal exchanges, last_progress
        exchanges, last_progress = number, monotonic()

    def watch() -> None:
        while (left := last_progress + seconds - monotonic()) > 0:
            if _leaving.wait(left):
                # It has said why, and ends by itself.
                return
        faulthandler.dump_traceback(all_threads=True)
        who = "a worker" if where.rank is None else f"rank {where.rank}"
        begun = (
            f"it has launched {exchanges} exchanges" if exchanges else "not all ranks have joined"
        )
        _say(
            f"{who} of {where.size}",
            f" made no progress for {seconds:g} s: {begun}; look at the stacks above, and at the "
            "other ranks",
        )
        # Whoever started the ranks ends all of them when the first one ends.
        sleep(STACKS_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
    return on_exchange
