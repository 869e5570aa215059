"""What processes tell the launcher: lines of JSON, one message each.

A rank writes its reports to a pipe whose number stands in PARALLEL_CORE_REPORTS. The agent on its host passes them on,
with what it sees of its processes itself.
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
"""Names the number of the file descriptor that a rank writes its reports to."""


class Arrived(msgspec.Struct, tag=True, frozen=True):
    """The rank is ready, and waits for the others where all meet."""

    host: str


class Joined(msgspec.Struct, tag=True, frozen=True):
    """The rank is in the group."""

    rank: int
    host: str


class Progress(msgspec.Struct, tag=True, frozen=True):
    """The rank did something: it launched its n-th exchange, or a batch is done. Sent at each of them."""

    exchanges: int
    epoch: int = 0
    step: int = 0
    """Of the batch that is done; both are 0 where none is."""
    images: int = 0
    """Of the batch that is done, over all ranks; 0 where none is."""

    def after(self, earlier: "Progress") -> "Progress":
        """Add it to earlier progress: images are summed, the last batch stays the last, and exchanges never go back."""
        epoch, step = (self.epoch, self.step) if self.epoch else (earlier.epoch, earlier.step)
        # What times how a job scales has a second counter.
        return Progress(max(self.exchanges, earlier.exchanges), epoch, step, earlier.images + self.images)


class Training(msgspec.Struct, tag=True, frozen=True):
    """A training of so many epochs with so many images each begins; for the progress bar."""

    epochs: int
    images: int


class TrainedEpoch(msgspec.Struct, tag=True, frozen=True):
    """An epoch is done. `line` is what a person is shown of it."""

    line: str


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The rank gives up for this reason. `by_others`: it only noticed that another one is gone or differs.

    `status` is the exit status that it is about to end with.
    """

    message: str
    by_others: bool
    status: int


Report: TypeAlias = Arrived | Joined | Progress | Training | TrainedEpoch | Failed


class Reported(msgspec.Struct, tag=True, frozen=True):
    """A process sent a report."""

    process: str
    report: Report


class Printed(msgspec.Struct, tag=True, frozen=True):
    """A process wrote these bytes to its standard output or error; lines may be cut anywhere."""

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

    `environment` is added to what the agent has itself; a variable that is None is taken away.
    """

    name: str
    host: int
    command: tuple[str, ...]
    environment: dict[str, str | None]


def is_rank(name: str) -> bool:
    """Tell whether a process is one of the training's, and not a scheduler or server beside them, by its name."""
    return name.startswith("rank ")
