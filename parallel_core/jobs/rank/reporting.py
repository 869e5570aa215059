"""Tell the launcher what this rank does; tell nobody where there is none."""

import os
import socket
import sys
from typing import NoReturn

import msgspec

from backends.process_groups import GroupError
from parallel_core.jobs.messages import REPORTS_VARIABLE, Failed, Report
from parallel_core.training.divergence import GradientsAreNotFiniteError

__all__ = ["leave", "report", "reports_are_read"]


def reports_are_read() -> bool:
    """Tell whether a launcher of ours started this process, and shows what it reports."""
    return REPORTS_VARIABLE in os.environ


def report(message: Report) -> None:
    """Send a report; leave at once where the launcher is gone."""
    if not reports_are_read():
        return
    line = msgspec.json.encode(message) + b"\n"
    try:
        os.write(int(os.environ[REPORTS_VARIABLE]), line)
    except BrokenPipeError:
        os._exit(1)


def leave(error: BaseException, message: str, status: int) -> NoReturn:
    """Report a failure, to the launcher or on standard error, and end the process."""
    if reports_are_read():
        report(Failed(message, noticed(error), status))
    else:
        rank = os.environ.get("RANK")
        who = f"rank {rank} on {socket.gethostname()}" if rank else f"a worker on {socket.gethostname()}"
        sys.stderr.write(f"parallel-core: {who}: {message}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def noticed(error: BaseException | None) -> bool:
    """Tell whether an error is only the consequence of another rank's."""
    while error is not None:
        # A sum that is not finite, of own terms that are.
        if isinstance(error, GroupError) or (isinstance(error, GradientsAreNotFiniteError) and not error.devices):
            return True
        error = error.__cause__
    return False
