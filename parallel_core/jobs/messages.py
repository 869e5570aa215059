"""What processes report to the launcher: lines of JSON, one message each.

A rank writes its reports to a pipe, whose number PARALLEL_CORE_REPORTS holds. The agent on its host passes them on, and
adds messages on what its processes print and how they end.
"""

from typing import TypeAlias

import msgspec

__all__ = [
    "REPORTS_VARIABLE",
    "Arrived",
    "Ended",
    "Failed",
    "FromAgent",
    "Joined",
    "Printed",
    "Process",
    "Progress",
    "Report",
    "Reported",
    "TrainedEpoch",
    "Training",
    "Unstartable",
    "is_rank",
]


REPORTS_VARIABLE = "PARALLEL_CORE_REPORTS"
"""Holds the number of the file descriptor to which a rank writes its reports."""


class Arrived(msgspec.Struct, tag=True, frozen=True):
    """The rank is ready, and waits for the others to join."""

    host: str


class Joined(msgspec.Struct, tag=True, frozen=True):
    """The rank is in the group."""

    host: str


class Progress(msgspec.Struct, tag=True, frozen=True):
    """The rank launched its n-th exchange, or a batch is done. Sent at each of them."""

    exchanges: int
    epoch: int = 0
    step: int = 0
    """Of the batch that is done; `epoch` and `step` are 0 if none is."""
    images: int = 0
    """Of the batch that is done, over all ranks; 0 if none is."""

    def after(self, earlier: "Progress") -> "Progress":
        """Add it to earlier progress: images are summed, the last batch is kept, and exchanges never decrease."""
        epoch, step = (self.epoch, self.step) if self.epoch else (earlier.epoch, earlier.step)
        # `process_scaling` counts exchanges a second time, from 1.
        return Progress(max(self.exchanges, earlier.exchanges), epoch, step, earlier.images + self.images)


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


Report: TypeAlias = Arrived | Joined | Progress | Training | TrainedEpoch | Failed


class Reported(msgspec.Struct, tag=True, frozen=True):
    """A process sent a report."""

    process: str
    report: Report


class Printed(msgspec.Struct, tag=True, frozen=True):
    """A process wrote these bytes to its standard output or error; a line may be cut anywhere."""

    process: str
    data: bytes
    error: bool


class Ended(msgspec.Struct, tag=True, frozen=True):
    """A process ended; `status` is its exit status, negative for the signal that killed it."""

    process: str
    status: int


class Unstartable(msgspec.Struct, tag=True, frozen=True):
    """A process could not be started."""

    process: str
    reason: str


FromAgent: TypeAlias = Reported | Printed | Ended | Unstartable


class Process(msgspec.Struct, frozen=True):
    """One process: `name` is `rank 0`, `server 0` or `scheduler`; `host` an index of the job's hosts.

    `environment` is added to what the agent has itself; a variable that is None is removed.
    """

    name: str
    host: int
    command: tuple[str, ...]
    environment: dict[str, str | None]


def is_rank(name: str) -> bool:
    """Return whether a process of this name trains; a scheduler or server does not."""
    return name.startswith("rank ")
