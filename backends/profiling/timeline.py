"""What a profiler recorded, in the same terms for every framework: spans on queues, and when they were launched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from backends.profiling.host_calls import HostCalls
from backends.profiling.spans import Span, SpanKind, Spans

__all__ = ["HOST_DEVICE", "Span", "SpanKind", "Spans", "Timeline", "Window", "in_seconds", "queue_order"]

HOST_DEVICE = "host"
"""The device of spans that run on none: launching, waiting."""
QUEUES = ("python", "waits", "calling", "compute", "copy")
"""The first words of queues' names, in the order in which they are listed; others come after them."""


class Window(NamedTuple):
    """The time from `start` to `end`, in nanoseconds from the timeline's beginning, in which a case was repeated."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """Spans in the order of their start, and the cases whose repetitions they belong to, in the order of time."""

    source: str
    """The framework, its version and engine; the profiler's name if another program wrote the file."""
    spans: Sequence[Span] = field(repr=False)
    """Those of a file are `Spans`; `columns` has them as such in any case."""
    cases: tuple[Window, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know: events that could not be used, links that the profiler does not give."""
    unlinked: int = 0
    """The number of operations on devices that were launched, but by a call that is not known."""
    timed: Mapping[str, float] = field(default_factory=dict)
    """How many seconds each case takes without a profiler, if that is known."""
    experiment: str = ""
    """The name of the experiment whose cases these are, if it is one."""
    annotations: tuple[Window, ...] = field(default=(), repr=False)
    """What a program says of itself in its profile: steps, phases; they may lie in each other."""
    host_calls: HostCalls | None = field(default=None, repr=False, compare=False)
    """All that the host did, call within call, if other programs' profiles have it, with links to operations."""

    @cached_property
    def columns(self) -> Spans:
        """The spans as columns: for what is asked of all of them."""
        return Spans.of(self.spans)


def in_seconds(nanoseconds: int) -> float:
    """Return a time in seconds: where figures leave the analysis, and nowhere before."""
    # Of two integers the quotient is rounded once; NumPy's integers would become floats first.
    return int(nanoseconds) / 1_000_000_000


def queue_order(device: str, queue: str) -> tuple[object, ...]:
    """Return the key by which queues are sorted: the host's first, cpu:2 before cpu:10, computation before copies."""
    first = queue.lower().split(" ")[0]
    rank = QUEUES.index(first) if first in QUEUES else len(QUEUES)
    return device != HOST_DEVICE, len(device), device, rank, len(queue), queue
