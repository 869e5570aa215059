"""End a rank that is stuck with the stacks of its threads: the frameworks would wait for ever.

Under a launcher of ours the launcher keeps the deadline instead, because it can tell which rank is the cause.
"""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import final

__all__ = ["Watchdog", "dump_stacks_on_request", "leave_with_starter"]


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
class Watchdog:
    """Ends the process with status 1 when `progressed` has not been called for some seconds, even while it exits.

    It writes the stacks of all threads and the line that `describe(seconds)` returns to standard error.
    """

    def __init__(self, seconds: float, describe: Callable[[float], str]) -> None:
        self._seconds, self._describe = seconds, describe
        self._last = monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def progressed(self) -> None:
        """Record that there was progress."""
        self._last = monotonic()

    def _watch(self) -> None:
        while (left := self._last + self._seconds - monotonic()) > 0:
            sleep(left)
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.write(f"{self._describe(self._seconds)}\n")
        sys.stderr.flush()
        os._exit(1)
