"""The spans of each case of a timeline, also as arrays: a million of them are too many for loops."""

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from backends.profiling import Span, SpanKind, Timeline

__all__ = ["ALL", "KINDS", "RESOLUTION", "CaseSpans", "cases_of", "is_wait"]

ALL = "all"
"""The name of the one case of a timeline that names none."""
KINDS: tuple[SpanKind, ...] = ("compute", "copy", "exchange", "host")
RESOLUTION = 1e-6
"""Seconds: the frameworks' profilers write whole microseconds, so what is shorter may not be there."""

WAIT_VERBS = frozenset({"wait", "waitall"})
WAITS_QUEUE = "waits"


@dataclass(frozen=True, eq=False)
class CaseSpans:
    """The spans of one case, from its first launch to the end of its last span.

    The arrays have an entry for each span. A case without spans starts and ends at its window's start.
    """

    name: str
    start: float
    end: float
    spans: tuple[Span, ...]
    starts: np.ndarray
    ends: np.ndarray
    launched: np.ndarray
    """NaN if the profiler does not record it."""
    kinds: np.ndarray
    """Places in KINDS."""
    waits: np.ndarray
    """Whether the host only waited."""
    queues: tuple[tuple[str, str], ...]
    """Device and queue, in the order of their first spans."""
    queue_of: np.ndarray
    """Places in `queues`."""

    @property
    def seconds(self) -> float:
        """The length of the case."""
        return self.end - self.start

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
    if not timeline.cases:
        return (_case_spans(ALL, timeline.spans, -np.inf),)
    cases = []
    for name, *bounds in timeline.cases:
        first, last = (bisect_left(timeline.spans, time, key=attrgetter("start")) for time in bounds)
        cases.append(_case_spans(name, timeline.spans[first:last], bounds[0]))
    return tuple(cases)


def _case_spans(name: str, spans: tuple[Span, ...], earliest: float) -> CaseSpans:
    waits = np.fromiter(map(is_wait, spans), bool, len(spans))
    if not waits.all():
        first = int(np.argmin(waits))
        spans, waits = spans[first:], waits[first:]
    starts = np.fromiter((span.start for span in spans), np.float64, len(spans))
    ends = np.fromiter((span.end for span in spans), np.float64, len(spans))
    launches = (np.nan if span.launched is None else span.launched for span in spans)
    launched = np.fromiter(launches, np.float64, len(spans))
    queues: dict[tuple[str, str], int] = {}
    queue_of = np.fromiter(
        (queues.setdefault((span.device, span.queue), len(queues)) for span in spans), np.intp, len(spans)
    )
    # A launch before the case's window is another case's.
    known = launched[launched >= earliest]
    idle = earliest if np.isfinite(earliest) else 0.0
    return CaseSpans(
        name,
        start=float(min(starts[0], known.min(initial=np.inf))) if spans else idle,
        end=float(ends.max()) if spans else idle,
        spans=spans,
        starts=starts,
        ends=ends,
        launched=launched,
        kinds=np.fromiter((KINDS.index(span.kind) for span in spans), np.int8, len(spans)),
        waits=waits,
        queues=tuple(queues),
        queue_of=queue_of,
    )
