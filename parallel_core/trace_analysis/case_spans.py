"""The spans of each case of a timeline, as arrays: a million are too many for loops; and arithmetic
of times.

An interval set is an array (n, 2) of int64, starts and ends in nanoseconds: sorted, disjoint, not
touching, none of them empty. Every function of them returns one; `union` makes one of any
intervals.
"""

from dataclasses import dataclass, replace

import numpy as np

from backends.profiling.timeline import (
    KINDS,
    UNKNOWN,
    HostCalls,
    Span,
    SpanKind,
    Spans,
    Timeline,
    Window,
    in_seconds,
)

ALL = "all"
"""The name of the one case of a timeline that names none."""
PROFILER_STEP = "ProfilerStep#"
"""How torch.profiler annotates steps, and what `profile` records."""
MAX_SLOWDOWN = 1.3
"""From this ratio to the time without the profiler on, a picture is the profiler's: nothing is
divided by it.
"""
NO_INTERVALS = np.zeros((0, 2), np.int64)
UNITS = (1000, 100, 10)
"""Nanoseconds: in which units a trace's times may be whole. MXNet and PyTorch before 2.3 write
whole microseconds.
"""

WAIT_VERBS = frozenset({"wait", "waitall"})
WAITS_QUEUE = "waits"


@dataclass(frozen=True, eq=False)
class CaseSpans:
    """The spans of one case, from its first launch to the end of its last span; times are whole
    nanoseconds.

    Arrays have an entry for each span. A case without spans starts and ends at its window's start.
    """

    name: str
    start: int
    end: int
    spans: Spans
    """With queues in the order of their first spans."""
    waits: np.ndarray
    """Whether the host only waited."""
    resolution: int
    """The unit in which all times of the timeline are whole, at most a microsecond: what is shorter
    is not there.
    """
    timed: float | None = None
    """Seconds that it takes without a profiler, if that is known."""
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
    def slowdown(self) -> float | None:
        """Its time over its time without a profiler, if that is known."""
        return self.seconds / self.timed if self.timed else None

    @property
    def lengths(self) -> np.ndarray:
        """How long each span took."""
        return self.spans.ends - self.spans.starts

    @property
    def linked(self) -> np.ndarray:
        """Whether the launch of each span is known."""
        return self.spans.launched != UNKNOWN

    @property
    def since(self) -> np.ndarray:
        """When each span was launched, or began if its launch is not known."""
        return self.spans.since

    @property
    def operations(self) -> np.ndarray:
        """Whether each span is an operation on a device, and not the host's."""
        return ~self.of_kind("host")

    @property
    def device_of(self) -> np.ndarray:
        """The device of each span, by the place of the device's first queue."""
        first_queues: dict[str, int] = {}
        for place, (device, _) in enumerate(self.spans.queues):
            first_queues.setdefault(device, place)
        numbers = [first_queues[device] for device, _ in self.spans.queues]
        return np.array(numbers, np.intp)[self.spans.queue_of]

    def of_kind(self, *kinds: SpanKind) -> np.ndarray:
        """Return the mask of the spans of some kinds."""
        return np.isin(self.spans.kinds, [KINDS.index(kind) for kind in kinds])

    def intervals(self, where: np.ndarray) -> np.ndarray:
        """Return the starts and ends of the spans that a mask selects, or of those at some places,
        (n, 2).
        """
        return np.stack((self.spans.starts[where], self.spans.ends[where]), axis=1)

    def covered(self, where: np.ndarray) -> np.ndarray:
        """Return the times that these spans cover, as an interval set."""
        return union(self.intervals(where))


def is_wait(span: Span) -> bool:
    """Return whether the host only waits in a span: a verb that blocks, or anything on the queue of
    waits.
    """
    return span.kind == "host" and (span.queue == WAITS_QUEUE or _names_wait(span.name))


def cases_of(timeline: Timeline) -> tuple[CaseSpans, ...]:
    """Return the spans of every case; a timeline without cases is one case as a whole.

    A case's repetition begins and ends by waiting until the devices are idle: waits before the
    first launch are left out, and so is a wait after that with which the timing ends.
    """
    spans = timeline.columns
    resolution = _resolution(spans)
    if not timeline.cases:
        whole = _case_spans(ALL, spans, None, timeline.begin, resolution, timeline.timed.get(ALL))
        # What Python does at the edges of the steps that were recorded is part of them.
        times = [one[1:] for one in timeline.annotations if one.name.startswith(PROFILER_STEP)]
        if spans or not times:
            times.append((whole.start, whole.end))
        start, end = min(start for start, _ in times), max(end for _, end in times)
        return (
            replace(
                whole,
                start=start,
                end=end,
                annotations=timeline.annotations,
                host_calls=timeline.host_calls,
            ),
        )
    cases = []
    for name, start, end in timeline.cases:
        first, last = np.searchsorted(spans.starts, (start, end)).tolist()
        cases.append(
            _case_spans(name, spans[first:last], start, start, resolution, timeline.timed.get(name))
        )
    return tuple(cases)


def _resolution(spans: Spans) -> int:
    # The timeline may begin with an event of another clock.
    times = np.concatenate((spans.starts, spans.ends)) - spans.starts[:1]
    return next((unit for unit in UNITS if not np.any(times % unit)), 1)


def _case_spans(
    name: str,
    spans: Spans,
    earliest: int | None,
    first_launch: int,
    resolution: int,
    timed: float | None,
) -> CaseSpans:
    waits = _waits(spans)
    if not waits.all():
        first = int(np.argmin(waits))
        spans, waits = spans[first:], waits[first:]
    if (
        earliest is not None
        and len(calls := calls_of(spans, waits)) > 1
        and waits[calls[-2:]].all()
    ):
        kept = ~waits | (np.arange(len(waits)) < calls[-1])
        spans, waits = spans.select(kept), waits[kept]
    # In the order of their first spans, which is that of pictures and tables.
    used, first_spans, queue_of = np.unique(spans.queue_of, return_index=True, return_inverse=True)
    order = np.argsort(first_spans)
    queues = tuple(spans.queues[used[place]] for place in order.tolist())
    spans = replace(spans, queues=queues, queue_of=np.argsort(order)[queue_of])
    # A launch before the case's window is another case's, or another step's.
    known = spans.launched[spans.launched >= first_launch]
    return CaseSpans(
        name,
        start=int(known.min(initial=spans.starts[0])) if spans else earliest or 0,
        end=int(spans.ends.max()) if spans else earliest or 0,
        spans=spans,
        waits=waits,
        resolution=resolution,
        timed=timed,
    )


def calls_of(spans: Spans, waits: np.ndarray) -> np.ndarray:
    """Return the places of the calls, with their waits, of the thread that launched first; none if
    none did.
    """
    hosts = spans.kinds == KINDS.index("host")
    launches = np.flatnonzero(hosts & ~waits)
    return (
        np.flatnonzero(hosts & (spans.queue_of == spans.queue_of[launches[0]]))
        if len(launches)
        else launches
    )


def _waits(spans: Spans) -> np.ndarray:
    """Return the mask of the spans that `is_wait`."""
    if not spans:
        return np.zeros(0, bool)
    by_name = np.array([_names_wait(name) for name in spans.names], bool)
    by_queue = np.array([queue == WAITS_QUEUE for _, queue in spans.queues], bool)
    return (spans.kinds == KINDS.index("host")) & (
        by_name[spans.name_of] | by_queue[spans.queue_of]
    )


def _names_wait(name: str) -> bool:
    return name.partition(" ")[0] in WAIT_VERBS


def groups_of(keys: np.ndarray) -> list[np.ndarray]:
    """Return the places of equal keys, in order, an array for each key, the smallest first."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(keys) else []


def union(*intervals: np.ndarray) -> np.ndarray:
    """Return the times that any of some intervals covers; they may overlap, touch, be empty and
    come in any order.
    """
    joined = np.concatenate([some.reshape(-1, 2) for some in intervals])
    joined = joined[joined[:, 1] > joined[:, 0]]
    if len(joined) == 0:
        return joined
    if np.any(joined[1:, 0] < joined[:-1, 0]):
        joined = joined[np.argsort(joined[:, 0], kind="stable")]
    covered_until = np.maximum.accumulate(joined[:, 1])
    begins = np.concatenate(([True], joined[1:, 0] > covered_until[:-1]))
    ends = np.concatenate((begins[1:], [True]))
    return np.stack((joined[begins, 0], covered_until[ends]), axis=1)


def intersection(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the times that two interval sets both cover."""
    if min(len(one), len(other)) == 0:
        return NO_INTERVALS
    times = np.concatenate((one.ravel(), other.ravel()))
    steps = np.tile(np.array([1, -1], dtype=np.int8), len(times) // 2)
    # Of equal times, ends come first: what only touches is not covered by both.
    order = np.lexsort((steps, times))
    both = np.flatnonzero(np.cumsum(steps[order]) == 2)
    times = times[order]
    return np.stack((times[both], times[both + 1]), axis=1)


def clip(intervals: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the part of an interval set that lies from `start` to `end`."""
    first, last = (
        np.searchsorted(intervals[:, 1], start, "right"),
        np.searchsorted(intervals[:, 0], end),
    )
    cut = np.clip(intervals[first:last], start, end)
    return cut[cut[:, 1] > cut[:, 0]]


def gaps(intervals: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the times from `start` to `end` that an interval set leaves free."""
    inside = clip(intervals, start, end)
    bounds = np.concatenate(([start], inside.ravel(), [end])).reshape(-1, 2)
    return bounds[bounds[:, 1] > bounds[:, 0]]


def total_length(intervals: np.ndarray) -> int:
    """Return the sum of the lengths of an interval set, in nanoseconds."""
    return int(np.sum(intervals[:, 1] - intervals[:, 0]))
