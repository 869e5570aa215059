"""What the host did while devices worked: operators, annotations and the runtime's calls, nested, thread by thread.

A timeline's spans hold the outermost of them; this holds all, as arrays, because there are a million of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

__all__ = ["ROLES", "HostCalls", "HostRole", "KnownWait", "QueueWait"]

HostRole: TypeAlias = Literal[
    "operator",
    "annotation",
    "call",
    "copy",
    "let a queue wait",
    "wait for a device",
    "wait for a queue",
    "wait for an event",
]
"""An operator, an annotation of the program's own, or a call of the runtime by what it does: a copy may block the host,
and to let a queue wait for an event does not."""
ROLES: tuple[HostRole, ...] = get_args(HostRole)


class KnownWait(NamedTuple):
    """What a call waited for, if the profiler recorded that: all of a device, a queue, or a queue up to an event."""

    device: str
    queue: str | None = None
    recorded: int | None = None
    """When the event was recorded: only what was launched before counts."""


class QueueWait(NamedTuple):
    """A queue that was let wait for an event: what is launched there from then on waits for all before the event."""

    since: int
    waiting: tuple[str, str]
    """A device and one of its queues, as is the next."""
    awaited: tuple[str, str]
    recorded: int


@dataclass(frozen=True, eq=False)
class HostCalls:
    """All calls in the order of their start; the arrays have an entry for each. Times are as in the timeline."""

    names: tuple[str, ...]
    queues: tuple[str, ...]
    """The host's threads, by the names of their queues in the timeline."""
    starts: np.ndarray
    ends: np.ndarray
    name_of: np.ndarray
    """Places in `names`; `queue_of` likewise."""
    queue_of: np.ndarray
    roles: np.ndarray
    """Places in ROLES."""
    known_waits: Mapping[int, KnownWait] = field(default_factory=dict)
    """By the places of calls."""
    queue_waits: tuple[QueueWait, ...] = ()
