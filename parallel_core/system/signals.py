"""Ctrl-C ends the program soon, whatever the framework is doing.

Python raises KeyboardInterrupt only between its own instructions. A framework's wait may run
outside of Python for minutes, until the queue is empty. So a thread ends the process if the main
thread has not ended it in time.
"""

import asyncio
import os
import re
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

INTERRUPTED = 128 + signal.SIGINT
INTERRUPT_SECONDS = 2.0
SHOW_CURSOR = b"\x1b[?25h"
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Returned = TypeVar("Returned")


def end_soon_on_interrupt() -> None:
    """Start the thread that ends the process 2 s after SIGINT.

    Call this once, from the main thread.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    # The interpreter writes the signal's number to this pipe at once, even while the main thread
    # runs outside of Python.
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)

    def watch() -> None:
        while signal.SIGINT not in os.read(readable, 64):
            pass
        sleep(INTERRUPT_SECONDS)
        if os.isatty(2):
            os.write(2, SHOW_CURSOR)
        os.write(2, b"parallel-core: interrupted\n")
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, name="interrupt", daemon=True).start()


def is_pending(number: int, process: int) -> bool:
    """Return whether a signal waits for a process that takes none.

    False if the system does not say.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    pending = re.search(r"^ShdPnd:\s*(\w+)", status, re.MULTILINE)
    return pending is not None and bool(int(pending[1], 16) >> (number - 1) & 1)


async def until_stopped(work: Coroutine[Any, Any, Returned]) -> Returned | signal.Signals:
    """Await the work, and return its result, or the signal that stopped it.

    Call this from the main thread.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    stopped_by: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if stopped_by:
            return
        stopped_by.append(number)
        task.cancel()
        # A second Ctrl-C must not disturb the ending that the first one began.
        for other in STOPPING:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_IGN)

    for number in STOPPING:
        # Signals that nohup, or a shell for its background jobs, ignores stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped_by:
            raise
    return stopped_by[0]
