"""A signal that asks the program to stop cancels its work, which then ends in good order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["until_stopped"]

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Result = TypeVar("Result")


async def until_stopped(work: Coroutine[Any, Any, Result]) -> Result | signal.Signals:
    """Do the work and return its result, or the signal that stopped it. Call from the main thread."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    stopped_by: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if stopped_by:
            return
        stopped_by.append(number)
        task.cancel()
        # A second Ctrl-C must not break the ending that the first one began, nor the last moments after the loop.
        for other in STOPPING:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_IGN)

    for number in STOPPING:
        # What nohup or a shell's background job ignores stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped_by:
            raise
    return stopped_by[0]
