"""Ctrl-C ends the program soon, whatever the framework is doing.

Python raises KeyboardInterrupt between its own instructions. A framework's wait may run outside of Python until the
queue has drained, which can take minutes, so a thread ends the process where the main thread has not done so in time.
"""

import os
import signal
import threading
from time import sleep

__all__ = ["INTERRUPTED", "end_soon_on_interrupt"]

INTERRUPTED = 128 + signal.SIGINT
GRACE_SECONDS = 2.0
SHOW_CURSOR = b"\x1b[?25h"


def end_soon_on_interrupt() -> None:
    """Start the thread that ends the process 2 s after SIGINT. Call once, from the main thread."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    # The interpreter's own signal handler writes the signal's number here at once, even while the main thread is away.
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)

    def watch() -> None:
        while signal.SIGINT not in os.read(readable, 64):
            pass
        sleep(GRACE_SECONDS)
        if os.isatty(2):
            os.write(2, SHOW_CURSOR)
        os.write(2, b"parallel-core: interrupted\n")
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, name="interrupt", daemon=True).start()
