"""Tell the launcher what this rank does; tell nobody where there is none."""

import os

import msgspec

from parallel_core.jobs.messages import REPORTS_VARIABLE, Report

__all__ = ["report", "reports_are_read"]


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
