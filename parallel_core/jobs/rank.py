"""What a rank does: join the group of processes that the environment describes, and end if it fails or is stuck.

The frameworks would wait for ever, each for the rest. Under a launcher of ours the launcher keeps the deadline, because
it knows which rank is the cause; without one, the rank does.
"""

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

from backends import Backend
from backends.host import core_numbers
from backends.process_groups import GroupedBackend, GroupError, Rendezvous, agree, check_group, join, rendezvous
from backends.process_groups.addresses import local_address
from backends.process_groups.rendezvous import RANK_VARIABLES
from parallel_core.experiments import EXPERIMENTS
from parallel_core.jobs import job
from parallel_core.jobs.job import Arrived, Failed, Progress
from parallel_core.measurement.result import Result
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import visible
from parallel_core.training.loop import NotFiniteError

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: which signal the end of the parent sends."""
ENGINE_GRACE_SECONDS = 2.0
"""Added to the deadline: an engine that has a deadline gives up first, and names what it waited for."""
NAMING_SECONDS = 2 * ENGINE_GRACE_SECONDS
"""How long a rank that gives up because of another one waits for that one to say so itself."""

_leaving = threading.Event()


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
    if job.reports_are_read():
        leave_with_starter()
    # At this signal the stacks of all threads go to standard error, even if Python itself is stuck.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    cores = core_numbers()
    if where.local_size > 1 and len(cores) >= where.local_size:
        share = len(cores) // where.local_size
        os.sched_setaffinity(0, cores[where.local_rank * share : (where.local_rank + 1) * share])
    return where


def _serve(where: Rendezvous) -> NoReturn:
    """Become MXNet's scheduler or server, which the user started by hand; it keeps a separate deadline."""
    environment = {name: value for name, value in (os.environ | job.SERVING_ENVIRONMENT).items() if value is not None}
    os.execve(sys.executable, [sys.executable, "-P", "-m", job.SERVER_MODULE, f"{where.timeout}"], environment)


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
def joined(local: Backend, where: Rendezvous, experiment: str, options: Mapping[str, Any]) -> Iterator[GroupedBackend]:
    """Meet the other ranks for an experiment, and part in good order; every exchange is reported and watched.

    All ranks must have been started with the same options, except for paths, which may differ from host to host.
    """
    job.send_report(Arrived())
    on_exchange = (lambda number: job.send_report(Progress(number))) if job.reports_are_read() else _own_deadline(where)
    backend = join(local, where, on_exchange)
    job.send_report(Progress())
    alike = {name: value for name, value in options.items() if not isinstance(value, Path)}
    agree(backend.group, {"the experiment": experiment, **alike})
    yield backend
    backend.group.close()


def described(result: Result, backend: GroupedBackend) -> Result:
    """Add to a result which processes it comes from."""
    group = backend.group
    processes = {"processes": group.size, "transport": group.transport, "hosts": list(group.hosts)}
    return replace(result, backend={**result.backend, **processes})


def leave_with_starter() -> None:
    """Kill this process and its children as soon as the launcher is gone, which holds standard input open."""
    # Also if it is stopped, or Python is stuck, by then.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def wait_for_the_end() -> None:
        while os.read(0, 4096):
            pass
        # The launcher made this process the leader of a group.
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()


def leave(error: BaseException, message: str, status: int) -> NoReturn:
    """Report a failure, to the launcher or on standard error, and end the process."""
    _leaving.set()
    by_others = _is_consequence(error)
    if job.reports_are_read():
        job.send_report(Failed(message, by_others, status))
    else:
        rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
        role = os.environ.get("DMLC_ROLE") or "worker"
        _say(f"rank {rank}" if rank else f"a {role}", f": {message}")
        if by_others:
            # torchrun and mpirun end all ranks when the first one ends.
            sleep(NAMING_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _say(who: str, what: str) -> None:
    sys.stderr.write(f"parallel-core: {who} on {socket.gethostname()}{visible(what)}\n")
    sys.stderr.flush()


def _is_consequence(error: BaseException | None) -> bool:
    """Return whether an error is only the consequence of another rank's."""
    while error is not None:
        # The sum is not finite, though this rank's own terms are.
        if isinstance(error, GroupError) or (isinstance(error, NotFiniteError) and not error.devices):
            return True
        error = error.__cause__
    return False


def _own_deadline(where: Rendezvous) -> Callable[[int], None]:
    """End this rank, which no launcher of ours watches, when it launches no exchange for too long, even as it exits.

    Return what is called with the number of each exchange. The stacks of all threads, and a line that says why, go to
    standard error; the exit status is 1.
    """
    seconds = where.timeout + ENGINE_GRACE_SECONDS
    exchanges, last = 0, monotonic()

    def on_exchange(number: int) -> None:
        nonlocal exchanges, last
        exchanges, last = number, monotonic()

    def watch() -> None:
        while (left := last + seconds - monotonic()) > 0:
            if _leaving.wait(left):
                # It has said why, and ends by itself.
                return
        faulthandler.dump_traceback(all_threads=True)
        begun = f"it has launched {exchanges} exchanges" if exchanges else "not all ranks have joined"
        _say(
            f"{'a worker' if where.rank is None else f'rank {where.rank}'} of {where.size}",
            f" made no progress for {seconds:g} s: {begun}; look at the stacks above, and at the other ranks",
        )
        os._exit(1)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
    return on_exchange
