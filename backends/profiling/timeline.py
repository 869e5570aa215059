"""What a profiler recorded, in the same terms for every framework: spans on queues, and when they were launched."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from backends.profiling.host_calls import HostCalls

__all__ = ["HOST_DEVICE", "Span", "SpanKind", "Timeline", "Window", "in_seconds", "queue_order"]

SpanKind: TypeAlias = Literal["compute", "copy", "exchange", "host"]
"""What a span does: compute, copy from one device to another, sum over devices, or launch and wait in Python."""

HOST_DEVICE = "host"
"""The device of spans that run on none: launching, waiting."""
QUEUES = ("python", "waits", "calling", "compute", "copy")
"""The first words of queues' names, in the order in which they are listed; others come after them."""


class Span(NamedTuple):
    """One operation, from start to end, on one queue; spans of one device and queue never overlap.

    Times are whole nanoseconds from the timeline's beginning. `launched` is when the call that asked for the operation
    began, if the profiler records it; `operator` is the framework's own name, `name` the one that readers know.
    """

    name: str
    kind: SpanKind
    device: str
    queue: str
    start: int
    end: int
    launched: int | None = None
    operator: str = ""


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
    spans: tuple[Span, ...] = field(repr=False)
    cases: tuple[Window, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know: events that could not be used, links that the profiler does not give."""
    annotations: tuple[Window, ...] = field(default=(), repr=False)
    """What a program says of itself in its profile: steps, phases; they may lie in each other."""
    host_calls: HostCalls | None = field(default=None, repr=False, compare=False)
    """All that the host did, call within call, if other programs' profiles have it, with links to operations."""


def in_seconds(nanoseconds: int) -> float:
    """Return a time in seconds: where figures leave the analysis, and nowhere before."""
    # Of two integers the quotient is rounded once; NumPy's integers would become floats first.
    return int(nanoseconds) / 1_000_000_000


def queue_order(device: str, queue: str) -> tuple[object, ...]:
    """Return the key by which queues are sorted: the host's first, cpu:2 before cpu:10, computation before copies."""
    first = queue.lower().split(" ")[0]
    rank = QUEUES.index(first) if first in QUEUES else len(QUEUES)
    return device != HOST_DEVICE, len(device), device, rank, len(queue), queue
