"""The spans of each case of a timeline, also as arrays: a million of them are too many for loops."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from backends.profiling import Kind, Span, Timeline, Window

__all__ = ["ALL", "KINDS", "RESOLUTION", "CaseSpans", "cases_of", "is_wait"]

ALL = "all"
"""The name of the one case of a timeline that tells of none."""
KINDS: tuple[Kind, ...] = ("compute", "copy", "exchange", "host")
RESOLUTION = 1e-6
"""Seconds: the frameworks' profilers write whole microseconds, so what is shorter may not be there."""

WAITS = frozenset({"wait", "waitall"})
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
    """NaN where the profiler does not tell."""
    kinds: np.ndarray
    """Places in KINDS."""
    waits: np.ndarray
    """Whether the host did nothing but wait."""
    queues: tuple[tuple[str, str], ...]
    """Device and queue, in the order of their first spans."""
    queue_of: np.ndarray
    """Places in `queues`."""

    @property
    def seconds(self) -> float:
        """How long the case took."""
        return self.end - self.start

    @property
    def operations(self) -> np.ndarray:
        """Whether each span is an operation on a device, and not the host's."""
        return self.kinds != KINDS.index("host")

    def intervals(self, chosen: np.ndarray) -> np.ndarray:
        """Return the starts and ends of the spans that a mask chooses, (n, 2)."""
        return np.stack((self.starts[chosen], self.ends[chosen]), axis=1)


def is_wait(span: Span) -> bool:
    """Tell whether the host only waits in a span: its name is of a verb that blocks, or its queue is for waits."""
    return span.kind == "host" and (span.queue == WAITS_QUEUE or span.name.partition(" ")[0] in WAITS)


def cases_of(timeline: Timeline) -> tuple[CaseSpans, ...]:
    """Return the spans of every case; of the whole timeline, as one case, where it has none.

    A case's repetition begins by waiting for idle devices: waits before the first launch are left out.
    """
    if not timeline.cases:
        return (_case_spans(ALL, timeline.spans, -np.inf),)
    return tuple(_case_spans(window.name, _within(timeline.spans, window), window.start) for window in timeline.cases)


def _within(spans: tuple[Span, ...], window: Window) -> tuple[Span, ...]:
    first, last = (bisect_left(spans, time, key=lambda span: span.start) for time in (window.start, window.end))
    return spans[first:last]


def _case_spans(name: str, spans: tuple[Span, ...], earliest: float) -> CaseSpans:
    waits = np.fromiter(map(is_wait, spans), bool, len(spans))
    if not waits.all():
        first = int(np.argmin(waits))
        spans, waits = spans[first:], waits[first:]
    starts = np.fromiter((span.start for span in spans), np.float64, len(spans))
    ends = np.fromiter((span.end for span in spans), np.float64, len(spans))
    unknown = float("nan")
    launched = np.fromiter(
        (unknown if span.launched is None else span.launched for span in spans), np.float64, len(spans)
    )
    queues: dict[tuple[str, str], int] = {}
    queue_of = np.fromiter(
        (queues.setdefault((span.device, span.queue), len(queues)) for span in spans), np.intp, len(spans)
    )
    code = {kind: place for place, kind in enumerate(KINDS)}
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
        kinds=np.fromiter((code[span.kind] for span in spans), np.int8, len(spans)),
        waits=waits,
        queues=tuple(queues),
        queue_of=queue_of,
    )
