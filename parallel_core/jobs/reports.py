"""What becomes known of a process: what a rank reports, in lines of JSON on a pipe, what it prints, and its end."""

import os
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

__all__ = [
    *("REPORTS_VARIABLE", "Arrived", "Ended", "Failed", "News", "Printed", "Progress", "Report", "TrainedEpoch"),
    *("Training", "decode_report", "reports_are_read", "send_report"),
]

REPORTS_VARIABLE = "PARALLEL_CORE_REPORTS"
"""Holds the number of the pipe."""


class Arrived(msgspec.Struct, tag=True, frozen=True):
    """The rank is ready, and waits for the other ranks to join."""


class Progress(msgspec.Struct, tag=True, frozen=True):
    """The rank is in the group, and launched its n-th exchange or did a batch. Sent at each of them."""

    exchanges: int = 0
    epoch: int = 0
    step: int = 0
    """Of the batch that is done; `epoch` and `step` are 0 if none is."""
    images: int = 0
    """Of the batch that is done, over all ranks; 0 if none is."""


class Training(msgspec.Struct, tag=True, frozen=True):
    """A training begins, of `epochs` with `images` each; for the progress bar."""

    epochs: int
    images: int


class TrainedEpoch(msgspec.Struct, tag=True, frozen=True):
    """An epoch is done; `line` is shown to the user."""

    line: str


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The rank gives up, and exits with `status`. `by_others`: the cause is another rank, which is gone or differs."""

    message: str
    by_others: bool
    status: int


class Printed(NamedTuple):
    """It wrote this to standard output or standard error; a line may be cut anywhere."""

    data: bytes
    error: bool


class Ended(NamedTuple):
    """It has ended, with an exit status or the negative number of a signal; no news come after this."""

    status: int


Report: TypeAlias = Arrived | Progress | Training | TrainedEpoch | Failed
News: TypeAlias = Report | Printed | Ended

decode_report: Callable[[bytes], Report] = msgspec.json.Decoder(Report).decode
"""Raises msgspec.DecodeError for a line that is no report."""


def reports_are_read() -> bool:
    """Return whether a launcher of ours started this process and reads its reports."""
    return REPORTS_VARIABLE in os.environ


def send_report(report: Report) -> None:
    """Send a report to the launcher, if there is one; leave at once if it is gone."""
    if not reports_are_read():
        return
    try:
        os.write(int(os.environ[REPORTS_VARIABLE]), msgspec.json.encode(report) + b"\n")
    except BrokenPipeError:
        os._exit(1)
