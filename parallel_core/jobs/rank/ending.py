"""How a rank ends that fails or is stuck: the frameworks would wait for ever, each for the rest.

Under a launcher of ours the launcher keeps the deadline, because it knows which rank is the cause.
"""

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import NoReturn

from backends.process_groups import GroupError, Rendezvous
from backends.process_groups.rendezvous import RANK_VARIABLES
from parallel_core.jobs.reports import Failed, reports_are_read, send_report
from parallel_core.training.loop import NotFiniteError

__all__ = ["dump_stacks_on_request", "leave", "leave_with_starter", "own_deadline"]

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: which signal the end of the parent sends."""
ENGINE_GRACE_SECONDS = 2.0
"""Added to the deadline: an engine that has a deadline gives up first, and names what it waited for."""
NAMING_SECONDS = 2 * ENGINE_GRACE_SECONDS
"""How long a rank that gives up because of another one waits for that one to say so itself."""

_leaving = threading.Event()


def dump_stacks_on_request() -> None:
    """Write the stacks of all threads to standard error at SIGUSR1, even if Python itself is stuck."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


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
    if reports_are_read():
        send_report(Failed(message, by_others, status))
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
    sys.stderr.write(f"parallel-core: {who} on {socket.gethostname()}{what}\n")
    sys.stderr.flush()


def _is_consequence(error: BaseException | None) -> bool:
    """Return whether an error is only the consequence of another rank's."""
    while error is not None:
        # The sum is not finite, though this rank's own terms are.
        if isinstance(error, GroupError) or (isinstance(error, NotFiniteError) and not error.devices):
            return True
        error = error.__cause__
    return False


def own_deadline(where: Rendezvous) -> Callable[[int], None]:
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
