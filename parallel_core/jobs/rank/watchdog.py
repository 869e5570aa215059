"""A rank that is stuck says so and leaves, with the stacks of its threads: frameworks would wait for ever.

Under a launcher of ours the launcher decides, for it sees which rank is the cause.
"""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import final

__all__ = ["Watch", "dump_stacks_on_request", "leave_with_starter"]


def dump_stacks_on_request() -> None:
    """Write the stacks of all threads to standard error at SIGUSR1, also where Python itself is stuck."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def leave_with_starter() -> None:
    """Leave as soon as standard input, which whoever started this process holds open, comes to its end."""

    def wait_for_the_end() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()


@final
class Watch:
    """Ends the process with status 1 where `progressed` has not been called for some seconds.

    It writes the line that `describe(seconds)` gives, and the stacks of all threads, to standard error.
    """

    def __init__(self, seconds: float, describe: Callable[[float], str]) -> None:
        self._seconds, self._describe = seconds, describe
        self._last = monotonic()
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def progressed(self) -> None:
        """Take note that there was progress."""
        self._last = monotonic()

    def stop(self) -> None:
        """Watch no longer."""
        self._over.set()

    def _watch(self) -> None:
        while (left := self._last + self._seconds - monotonic()) > 0:
            if self._over.wait(left):
                return
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.write(f"{self._describe(self._seconds)}\n")
        sys.stderr.flush()
        os._exit(1)
