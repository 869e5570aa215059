"""Report what this rank does to the launcher, if there is one."""

import os
import socket
import sys
from typing import NoReturn

import msgspec

from backends.process_groups import GroupError
from parallel_core.jobs.messages import REPORTS_VARIABLE, Failed, Report
from parallel_core.training.loop import GradientsAreNotFiniteError

__all__ = ["leave", "reports_are_read", "send_report"]


def reports_are_read() -> bool:
    """Return whether a launcher of ours started this process and reads its reports."""
    return REPORTS_VARIABLE in os.environ


def send_report(report: Report) -> None:
    """Send a report to the launcher; leave at once if the launcher is gone."""
    if not reports_are_read():
        return
    line = msgspec.json.encode(report) + b"\n"
    try:
        os.write(int(os.environ[REPORTS_VARIABLE]), line)
    except BrokenPipeError:
        os._exit(1)


def leave(error: BaseException, message: str, status: int) -> NoReturn:
    """Report a failure, to the launcher or on standard error, and end the process."""
    if reports_are_read():
        send_report(Failed(message, _is_consequence(error), status))
    else:
        rank, role = os.environ.get("RANK"), os.environ.get("DMLC_ROLE") or "worker"
        who = f"{f'rank {rank}' if rank else f'a {role}'} on {socket.gethostname()}"
        sys.stderr.write(f"parallel-core: {who}: {message}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _is_consequence(error: BaseException | None) -> bool:
    """Return whether an error is only the consequence of another rank's."""
    while error is not None:
        # The sum is not finite, though this rank's own terms are.
        if isinstance(error, GroupError) or (isinstance(error, GradientsAreNotFiniteError) and not error.devices):
            return True
        error = error.__cause__
    return False
