"""End a rank that is stuck with the stacks of its threads: the frameworks would wait for ever.

Under a launcher of ours the launcher keeps the deadline instead, because it can tell which rank is the cause.
"""

import faulthandler
import os
import signal
import socket
import sys
import threading
from time import monotonic, sleep
from typing import final

from backends.process_groups import Rendezvous

__all__ = ["OwnDeadline", "dump_stacks_on_request", "leave_with_starter"]

ENGINE_GRACE_SECONDS = 2.0
"""Added to the deadline: an engine with a deadline of its own gives up first, and names what it waited for."""


def dump_stacks_on_request() -> None:
    """Write the stacks of all threads to standard error at SIGUSR1, even if Python itself is stuck."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def leave_with_starter() -> None:
    """Leave as soon as standard input ends, which the process that started this one holds open."""

    def wait_for_the_end() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()


@final
class OwnDeadline:
    """Ends a rank that no launcher of ours watches, when it has launched no exchange for too long, even while it exits.

    It writes the stacks of all threads, and a line that says so, to standard error. The exit status is 1.
    """

    def __init__(self, where: Rendezvous) -> None:
        self._where, self._seconds = where, where.timeout + ENGINE_GRACE_SECONDS
        self._exchanges, self._last = 0, monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def on_exchange(self, number: int) -> None:
        """Record that the exchange of this number was launched."""
        self._exchanges, self._last = number, monotonic()

    def _watch(self) -> None:
        while (left := self._last + self._seconds - monotonic()) > 0:
            sleep(left)
        faulthandler.dump_traceback(all_threads=True)
        where = self._where
        who = f"rank {where.rank}" if where.rank is not None else "a worker"
        begun = f"it has launched {self._exchanges} exchanges" if self._exchanges else "not all ranks have joined"
        sys.stderr.write(
            f"parallel-core: {who} of {where.size} on {socket.gethostname()} made no progress for {self._seconds:g} s: "
            f"{begun}; look at the stacks above, and at the other ranks\n"
        )
        sys.stderr.flush()
        os._exit(1)
