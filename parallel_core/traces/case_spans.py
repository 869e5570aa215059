"""The spans of each case of a timeline, as arrays: a million are too many for loops; and arithmetic
of times.

An interval set is an array (n, 2) of int64, starts and ends in nanoseconds: sorted, disjoint, not
touching, none of them empty. Every function of them returns one; `union` makes one of any
intervals.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from backends.profiling.timeline import (
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
NONE = -1
"""Stands for the place of a span or a call where there is none."""
EARLIEST, LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
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
    begun: int = 0
    """When the devices had ended the steps before, of a single step."""

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
    def is_slowed_down(self) -> bool:
        """Whether the profiler slowed it down so much that its trace shows the profiler."""
        return self.slowdown is not None and self.slowdown > MAX_SLOWDOWN

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
        return self.spans.of_kind(*kinds)

    def named(self, pattern: str | re.Pattern[str]) -> np.ndarray:
        """Return the mask of the spans whose operators' names hold a regular expression."""
        holds = [re.search(pattern, name) is not None for name in self.spans.operators]
        return np.array(holds, bool)[self.spans.operator_of]

    def intervals(self, where: np.ndarray) -> np.ndarray:
        """Return the starts and ends of the spans that a mask selects, or of those at some places,
        (n, 2).
        """
        return self.spans.intervals(where)

    def in_order_of_launch(self, mask: np.ndarray) -> np.ndarray:
        """Return the places of the spans that a mask selects, those launched first coming first."""
        selected = np.flatnonzero(mask)
        return selected[np.argsort(self.since[selected], kind="stable")]

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
    if not timeline.cases:
        return (_whole_timeline(timeline),)
    spans = timeline.columns
    resolution = _resolution(spans)
    cases = []
    for name, start, end in timeline.cases:
        first, last = np.searchsorted(spans.starts, (start, end)).tolist()
        in_window = _without_last_wait(_from_first_launch(spans[first:last]))
        case = _case_spans(name, in_window, start, resolution)
        cases.append(replace(case, timed=timeline.timed.get(name)))
    return tuple(cases)


def _whole_timeline(timeline: Timeline) -> CaseSpans:
    """Return a timeline without cases as one case."""
    resolution = _resolution(timeline.columns)
    spans = _from_first_launch(timeline.columns)
    case = _case_spans(ALL, spans, timeline.begin, resolution)
    # What Python does at the edges of the steps that were recorded is part of them.
    steps = [mark for mark in timeline.annotations if mark.name.startswith(PROFILER_STEP)]
    starts = [step.start for step in steps]
    ends = [step.end for step in steps]
    if spans:
        starts.append(case.start)
        ends.append(case.end)
    return replace(
        case,
        start=min(starts, default=0),
        end=max(ends, default=0),
        timed=timeline.timed.get(ALL),
        annotations=timeline.annotations,
        host_calls=timeline.host_calls,
    )


def _resolution(spans: Spans) -> int:
    """Return the largest unit in which all times are whole, in nanoseconds."""
    # The timeline may begin with an event of another clock.
    times = np.concatenate((spans.starts, spans.ends)) - spans.starts[:1]
    for unit in UNITS:
        if not np.any(times % unit):
            return unit
    return 1


def _from_first_launch(spans: Spans) -> Spans:
    """Return the spans without the waits before all others; all if there are only waits."""
    waits = _waits(spans)
    return spans if waits.all() else spans[int(np.argmin(waits)) :]


def _without_last_wait(spans: Spans) -> Spans:
    """Return the spans without the wait with which a timing ends, if the one before it waits, too.

    Other threads' waits that begin later are left out with it.
    """
    waits = _waits(spans)
    calls = calls_of(spans, waits)
    if len(calls) < 2 or not waits[calls[-2:]].all():
        return spans
    begins_before = np.arange(len(spans)) < calls[-1]
    return spans.select(~waits | begins_before)


def _case_spans(name: str, spans: Spans, begin: int, resolution: int) -> CaseSpans:
    """Return a case of some spans whose window begins at a time; without spans it ends there."""
    # Queues come in the order of their first spans, which is that of pictures and tables.
    used, first_spans, queue_of = np.unique(spans.queue_of, return_index=True, return_inverse=True)
    order = np.argsort(first_spans)
    queues = tuple(spans.queues[used[number]] for number in order.tolist())
    spans = replace(spans, queues=queues, queue_of=np.argsort(order)[queue_of])
    start = end = begin
    if spans:
        # A launch before the case's window is another case's, or another step's.
        launches = spans.launched[spans.launched >= begin]
        start = int(launches.min(initial=spans.starts[0]))
        end = int(spans.ends.max())
    return CaseSpans(name, start, end, spans, _waits(spans), resolution)


def calls_of(spans: Spans, waits: np.ndarray) -> np.ndarray:
    """Return the places of the calls, with their waits, of the thread that launched first; none if
    none did.
    """
    is_host = spans.of_kind("host")
    launches = np.flatnonzero(is_host & ~waits)
    if len(launches) == 0:
        return launches
    first_thread = spans.queue_of[launches[0]]
    return np.flatnonzero(is_host & (spans.queue_of == first_thread))


def _waits(spans: Spans) -> np.ndarray:
    """Return the mask of the spans that `is_wait`."""
    if not spans:
        return np.zeros(0, bool)
    is_host = spans.of_kind("host")
    is_wait_name = np.array([_names_wait(name) for name in spans.names], bool)
    is_waits_queue = np.array([queue == WAITS_QUEUE for _, queue in spans.queues], bool)
    return is_host & (is_wait_name[spans.name_of] | is_waits_queue[spans.queue_of])


def _names_wait(name: str) -> bool:
    """Return whether a span's name is that of a verb that blocks, as in `waitall` or `wait x`."""
    verb, _, _ = name.partition(" ")
    return verb in WAIT_VERBS


def groups_of(keys: np.ndarray) -> list[np.ndarray]:
    """Return the places of equal keys, in order, an array for each key, the smallest first."""
    if len(keys) == 0:
        return []
    # NumPy sorts small integers by their digits, in a fraction of the time.
    from_zero = keys - keys.min()
    small_keys = from_zero.astype(np.min_scalar_type(from_zero.max()))
    order = np.argsort(small_keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    return np.split(order, bounds)


def places_by_key(keys: np.ndarray, places: np.ndarray) -> dict[int, np.ndarray]:
    """Return some places of spans by their keys, the smallest first; `keys` has all spans'."""
    by_key = {}
    for same_key in groups_of(keys[places]):
        with_key = places[same_key]
        by_key[int(keys[with_key[0]])] = with_key
    return by_key


def of_last_begun(
    starts: np.ndarray,
    values: np.ndarray,
    times: np.ndarray,
    without: int,
    side: Literal["left", "right"] = "right",
) -> np.ndarray:
    """Return the value of the last of some starts, in order, up to each time; `without` where none
    began. From the left, what begins at a time has not begun by then.
    """
    return np.append(without, values)[np.searchsorted(starts, times, side=side)]


def union(*intervals: np.ndarray) -> np.ndarray:
    """Return the times that any of some intervals covers; they may overlap, touch, be empty and
    come in any order.
    """
    starts, ends = np.concatenate([array.reshape(-1, 2) for array in intervals]).T
    takes_time = ends > starts
    if not takes_time.all():
        starts, ends = starts[takes_time], ends[takes_time]
    if len(starts) == 0:
        return NO_INTERVALS
    if np.any(starts[1:] < starts[:-1]):
        by_start = np.argsort(starts, kind="stable")
        starts, ends = starts[by_start], ends[by_start]
    covered_until = np.maximum.accumulate(ends)
    is_free_before = starts[1:] > covered_until[:-1]
    begins = starts[np.append(True, is_free_before)]
    return np.stack((begins, covered_until[np.append(is_free_before, True)]), axis=1)


def intersection(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the times that two interval sets both cover."""
    return covered_twice(np.concatenate((first, second)))


def covered_twice(intervals: np.ndarray) -> np.ndarray:
    """Return the times that two or more of some intervals cover."""
    # At each start one more covers the time, at each end one less.
    times = intervals.ravel()
    steps = np.tile(np.array([1, -1], dtype=np.int64), len(intervals))
    # Of equal times, ends come first: what only touches is not covered twice.
    order = np.lexsort((steps, times))
    times = times[order]
    begins = np.flatnonzero(np.cumsum(steps[order]) >= 2)
    return union(np.stack((times[begins], times[begins + 1]), axis=1))


def clip(intervals: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the part of an interval set that lies from `start` to `end`."""
    first = np.searchsorted(intervals[:, 1], start, "right")
    last = np.searchsorted(intervals[:, 0], end)
    cut = np.clip(intervals[first:last], start, end)
    return cut[cut[:, 1] > cut[:, 0]]


def gaps(intervals: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the times from `start` to `end` that an interval set leaves free."""
    covered = clip(intervals, start, end)
    # Up to the first interval, from each interval to the next, and from the last one on.
    free = np.concatenate(([start], covered.ravel(), [end])).reshape(-1, 2)
    return free[free[:, 1] > free[:, 0]]


def lengths_within(intervals: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Return how many nanoseconds of each window an interval set covers.

    `windows` has the start and the end of each, (n, 2); they may overlap.
    """
    if len(intervals) == 0:
        return np.zeros(len(windows), np.int64)
    ended = np.searchsorted(intervals[:, 1], windows, side="right")
    # What is covered up to each time: the intervals that have ended by then, and of one that has
    # begun the time since its start.
    covered_before = np.where(ended > 0, np.cumsum(np.diff(intervals)[:, 0])[ended - 1], 0)
    running = np.minimum(ended, len(intervals) - 1)
    start, end = intervals[running, 0], intervals[running, 1]
    covered_before += np.where(end > windows, np.maximum(windows - start, 0), 0)
    return covered_before[:, 1] - covered_before[:, 0]


def total_length(intervals: np.ndarray) -> int:
    """Return the sum of the lengths of an interval set, in nanoseconds."""
    return int(np.sum(intervals[:, 1] - intervals[:, 0]))
