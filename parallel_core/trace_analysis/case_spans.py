"""The spans of each case of a timeline, also as arrays: a million of them are too many for loops."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from backends.profiling import HostCalls, Span, SpanKind, Timeline, Window, in_seconds

__all__ = ["ALL", "KINDS", "UNKNOWN", "CaseSpans", "cases_of", "is_wait"]

ALL = "all"
"""The name of the one case of a timeline that names none."""
KINDS: tuple[SpanKind, ...] = ("compute", "copy", "exchange", "host")
UNKNOWN = -(2**63)
"""When a span was launched, if the profiler does not record it."""
UNITS = (1000, 100, 10)
"""Nanoseconds: in which units a trace's times may be whole. MXNet and PyTorch before 2.3 write whole microseconds."""

WAIT_VERBS = frozenset({"wait", "waitall"})
WAITS_QUEUE = "waits"


@dataclass(frozen=True, eq=False)
class CaseSpans:
    """The spans of one case, from its first launch to the end of its last span; times are whole nanoseconds.

    The arrays have an entry for each span, those of times are int64. A case without spans starts and ends at its
    window's start.
    """

    name: str
    start: int
    end: int
    spans: tuple[Span, ...]
    starts: np.ndarray
    ends: np.ndarray
    launched: np.ndarray
    """UNKNOWN if the profiler does not record it."""
    kinds: np.ndarray
    """Places in KINDS."""
    waits: np.ndarray
    """Whether the host only waited."""
    queues: tuple[tuple[str, str], ...]
    """Device and queue, in the order of their first spans."""
    queue_of: np.ndarray
    """Places in `queues`."""
    resolution: int
    """The unit in which all times of the timeline are whole, at most a microsecond: what is shorter is not there."""
    annotations: tuple[Window, ...] = ()
    """The program's own, of a timeline without cases."""
    host_calls: HostCalls | None = None
    """What the host did, call within call, of a timeline without cases."""

    @property
    def nanoseconds(self) -> int:
        """The length of the case."""
        return self.end - self.start

    @property
    def seconds(self) -> float:
        """The length of the case."""
        return in_seconds(self.nanoseconds)

    @property
    def linked(self) -> np.ndarray:
        """Whether the launch of each span is known."""
        return self.launched != UNKNOWN

    @property
    def operations(self) -> np.ndarray:
        """Whether each span is an operation on a device, and not the host's."""
        return self.kinds != KINDS.index("host")

    def intervals(self, mask: np.ndarray) -> np.ndarray:
        """Return the starts and ends of the spans that a mask selects, (n, 2)."""
        return np.stack((self.starts[mask], self.ends[mask]), axis=1)


def is_wait(span: Span) -> bool:
    """Return whether the host only waits in a span: a verb that blocks, or anything on the queue of waits."""
    return span.kind == "host" and (span.queue == WAITS_QUEUE or span.name.partition(" ")[0] in WAIT_VERBS)


def cases_of(timeline: Timeline) -> tuple[CaseSpans, ...]:
    """Return the spans of every case; a timeline without cases is one case as a whole.

    A case's repetition begins by waiting until the devices are idle: waits before the first launch are left out.
    """
    resolution = _resolution(timeline.spans)
    if not timeline.cases:
        whole = _case_spans(ALL, timeline.spans, None, resolution)
        return (replace(whole, annotations=timeline.annotations, host_calls=timeline.host_calls),)
    cases = []
    for name, *bounds in timeline.cases:
        first, last = (bisect_left(timeline.spans, time, key=attrgetter("start")) for time in bounds)
        cases.append(_case_spans(name, timeline.spans[first:last], bounds[0], resolution))
    return tuple(cases)


def _resolution(spans: tuple[Span, ...]) -> int:
    times = np.array([(span.start, span.end) for span in spans], np.int64).reshape(-1, 2)
    # The timeline may begin with an event of another clock.
    since_first = times - times[:1, :1]
    return next((unit for unit in UNITS if not np.any(since_first % unit)), 1)


def _case_spans(name: str, spans: tuple[Span, ...], earliest: int | None, resolution: int) -> CaseSpans:
    waits = np.fromiter(map(is_wait, spans), bool, len(spans))
    if not waits.all():
        first = int(np.argmin(waits))
        spans, waits = spans[first:], waits[first:]
    starts = np.fromiter((span.start for span in spans), np.int64, len(spans))
    ends = np.fromiter((span.end for span in spans), np.int64, len(spans))
    launches = (UNKNOWN if span.launched is None else span.launched for span in spans)
    launched = np.fromiter(launches, np.int64, len(spans))
    queues: dict[tuple[str, str], int] = {}
    queue_of = np.fromiter(
        (queues.setdefault((span.device, span.queue), len(queues)) for span in spans), np.intp, len(spans)
    )
    # A launch before the case's window is another case's.
    known = launched[launched > (UNKNOWN if earliest is None else earliest - 1)]
    return CaseSpans(
        name,
        start=int(known.min(initial=starts[0])) if spans else earliest or 0,
        end=int(ends.max()) if spans else earliest or 0,
        spans=spans,
        starts=starts,
        ends=ends,
        launched=launched,
        kinds=np.fromiter((KINDS.index(span.kind) for span in spans), np.int8, len(spans)),
        waits=waits,
        queues=tuple(queues),
        queue_of=queue_of,
        resolution=resolution,
    )
