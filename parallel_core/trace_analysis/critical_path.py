"""The critical path of a trace: the chain of spans that ended last, from a case's last operation backwards.

Before an operation comes whatever ended last before it began: an operation on any queue, or the host's call that
launched it. If the profiler does not record that call, it is the last one that was over. Among operations that ended
at the same time, within the profiler's resolution, the one on the same queue is taken. Before a call comes the host's
previous call. Before a wait comes what the host waited for: the operation that ended last during the wait; the same
holds for calls that compute themselves, on a synchronous engine. Time between the end of one span and the start of the
next is idle.

This is not the critical path of a task graph, because no profiler records which operation needs which result: an
operation that happens to end just before another begins is in the chain even if the other never needed it. The chain
shows where the time went: to shorten the case, something in it must change.

A trace of PyTorch on a GPU has more: all calls of the host's threads, one in another, the operations that they
launched, and the calls that wait for a stream, an event or a device. There the path never stands still on the host
while a device works: from the end of a wait it goes on with the last operation that was waited for (`linked_path/`).

It differs from the critical path of Holistic Trace Analysis (critical_path_analysis), which is the heaviest path
through a graph of such links, in this:

- It covers a case without holes. There the host's time between two outermost operators has no weight, nor has the rest
  of a call that waits, so the path is shorter by them; here they are `between calls` and `waiting_seconds`.
- It ends with the last operation, there with the host's last call if that path is heavier.
- A call that launches is the host's until it ends, there until it starts; what follows is the launch delay.
- A queue that was busy at the launch is waited for however long the gap is, there up to 1.5 ms.
- Which operation a call waited for is found without records too (Kineto writes `cuda_sync` only if asked), also for
  copies that block, and for HIP. There such calls have no weight, and the path stays on the host. `cudaEventQuery` has
  none there; here it polls and does not wait.
- What was launched before the recording began is on the path; there it is left out.
- Threads of autograd and those that call them take turns; there they become one if there is one of each.
"""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from backends.profiling import HOST_DEVICE, Span, SpanKind, in_seconds
from parallel_core.trace_analysis.case_spans import KINDS, UNKNOWN, CaseSpans
from parallel_core.trace_analysis.linked_path.walk import LinkedPath, fits, host_stretches, walk

__all__ = ["PathCauses", "PathPart", "PathSummary", "Segment", "critical_path", "path_summary", "summarize"]

BETWEEN_CALLS = "between calls"
"""The name of what a thread does that the profiler does not record, in Python mostly."""

SYNCHRONOUS = 0.9
"""If a larger share of the operations ends within the calls that launched them, calls compute themselves."""


class Segment(NamedTuple):
    """A stretch of the path in nanoseconds from the timeline's beginning, and the span it lies in; None while idle."""

    start: int
    end: int
    span: Span | None


@dataclass(frozen=True)
class PathPart:
    """All segments of one name: their number, their seconds, and their share of the path."""

    device: str
    queue: str
    kind: SpanKind
    name: str
    segments: int
    seconds: float
    share: float


@dataclass(frozen=True)
class PathCauses:
    """The seconds of a path by what bounds it; they add up. The delays, and what comes first, are the idle seconds."""

    compute_seconds: float
    copy_seconds: float
    exchange_seconds: float
    host_seconds: float
    """The host's own work, also what it did between the calls that are recorded."""
    waiting_seconds: float
    """From the end of what a call of the host waited for to the end of the call."""
    launch_delay_seconds: float
    """From the end of the call that launched an operation to its start."""
    queue_delay_seconds: float
    """From the end of the operation that another one waited for to the other's start."""


IDLE = -1
"""The place of no span."""
CAUSES = ("compute", "copy", "exchange", "host", "wait", "launch delay", "queue delay")
"""Kinds of spans and of pieces, in the order of the fields of PathCauses."""


@dataclass(frozen=True)
class PathSummary:
    """The parts of a path, the longest first; their shares and the idle share sum to 1."""

    seconds: float
    idle_seconds: float
    idle_share: float
    parts: tuple[PathPart, ...]
    causes: PathCauses | None = None
    """What bounds each stretch, if the trace has the host's nested calls and links operations to them."""


def path_summary(case: CaseSpans) -> PathSummary:
    """Find a case's critical path and add it up by name. O(n log n)."""
    if case.host_calls is None or not fits(case, case.host_calls):
        return _unlinked_summary(case)
    path = walk(case, case.host_calls)
    lengths = defaultdict[str, int](int)
    for piece in path.pieces:
        kind = KINDS[case.kinds[piece.place]] if piece.kind == "operation" else piece.kind
        lengths[kind] += piece.end - piece.start
    whole = sum(lengths.values())
    idle = whole - sum(lengths[one] for one in CAUSES[:5])
    causes = PathCauses(*(in_seconds(lengths[one]) for one in CAUSES))
    parts = _linked_parts(case, path, whole)
    return PathSummary(in_seconds(whole), in_seconds(idle), idle / whole if whole else 0.0, parts, causes)


def summarize(path: Sequence[Segment]) -> PathSummary:
    """Add the segments of a path up by name."""
    whole = sum(end - start for start, end, _ in path)
    idle = sum(end - start for start, end, span in path if span is None)
    by_name: dict[tuple[str, str, SpanKind, str], list[int]] = {}
    for start, end, span in path:
        if span is not None:
            by_name.setdefault((span.device, span.queue, span.kind, span.name), []).append(end - start)
    parts = [PathPart(*key, len(some), in_seconds(sum(some)), sum(some) / whole) for key, some in by_name.items()]
    parts.sort(key=lambda part: -part.seconds)
    return PathSummary(in_seconds(whole), in_seconds(idle), idle / whole if whole else 0.0, tuple(parts))


def critical_path(case: CaseSpans) -> tuple[Segment, ...]:
    """Return the path of a case in the order of time, from its start to the end of its last operation, without holes.

    It is empty if no operation of the case took any time. O(n log n).
    """
    if case.host_calls is not None and fits(case, case.host_calls):
        return _linked_segments(case, walk(case, case.host_calls))
    stretches = zip(*_unlinked_path(case), strict=True)
    return tuple(Segment(start, end, None if place == IDLE else case.spans[place]) for start, end, place in stretches)


def _unlinked_summary(case: CaseSpans) -> PathSummary:
    """Add a path up by name, in columns, as `summarize` does."""
    starts, ends, places = (np.frombuffer(column, np.int64) for column in _unlinked_path(case))
    lengths = ends - starts
    whole, idle = int(lengths.sum()), int(lengths[places == IDLE].sum())
    lengths, places = lengths[places != IDLE], places[places != IDLE]
    spans = case.spans
    of_queues = case.queue_of[places].astype(np.int64) * len(KINDS) + case.kinds[places]
    keys, first, key_of, counts = np.unique(
        of_queues * len(spans.names) + spans.name_of[places], return_index=True, return_inverse=True, return_counts=True
    )
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, key_of, lengths)
    parts = []
    for place in np.argsort(first).tolist():
        span, taken = spans[int(places[first[place]])], int(sums[place])
        share = taken / whole
        parts.append(
            PathPart(span.device, span.queue, span.kind, span.name, int(counts[place]), in_seconds(taken), share)
        )
    parts.sort(key=lambda part: -part.seconds)
    return PathSummary(in_seconds(whole), in_seconds(idle), idle / whole if whole else 0.0, tuple(parts))


def _unlinked_path(case: CaseSpans) -> "tuple[array[int], array[int], array[int]]":
    """Return the path's stretches in the order of time: from when to when, and the places of the spans, or IDLE."""
    starts, ends, places = path = array("q"), array("q"), array("q")

    def add(start: int, end: int, place: int) -> None:
        starts.append(start)
        ends.append(end)
        places.append(place)

    if not np.any(case.operations & (case.ends > case.starts)):
        return path
    trace = _Candidates(case)
    place: int | None = trace.by_end[-1]
    time = trace.ends[trace.by_end[-1]]
    while place is not None:
        end = min(trace.ends[place], time)
        if end < time:
            add(end, time, IDLE)
        if trace.is_operation[place]:
            following, time = trace.before_operation(place), trace.starts[place]
        else:
            following, time = trace.before_call(place, end)
        if time < end:
            add(time, end, place)
        place = following
    if case.start < time:
        add(case.start, time, IDLE)
    for column in path:
        column.reverse()
    return path


def _linked_parts(case: CaseSpans, path: LinkedPath, whole: int) -> tuple[PathPart, ...]:
    """Add a path up by queue, kind and name, in columns: it may have a million stretches."""
    calls, spans, stretches = path.calls, case.spans, host_stretches(path)
    # The names of spans come first, then those of calls.
    names = (*spans.names, *calls.names, BETWEEN_CALLS)
    queues = (*spans.queues, *((HOST_DEVICE, queue) for queue in calls.queues))
    pieces = ([one for one in path.pieces if one.kind == kind] for kind in ("operation", "wait"))
    operations, waits = (
        np.array([(one.place, one.end - one.start) for one in some], np.int64).reshape(-1, 2).T for some in pieces
    )
    between = np.where(stretches.calls >= 0, calls.name_of[stretches.calls], len(calls.names))
    name_of = (spans.name_of[operations[0]], calls.name_of[waits[0]] + len(spans.names), between + len(spans.names))
    of_host = (calls.queue_of[waits[0]], stretches.threads)
    queue_of = (spans.queue_of[operations[0]], *(queue + len(spans.queues) for queue in of_host))
    kinds = np.concatenate((case.kinds[operations[0]], np.full(len(waits[0]) + len(between), KINDS.index("host"))))
    lengths = np.concatenate((operations[1], waits[1], stretches.ends - stretches.starts))
    of_queues = np.concatenate(queue_of).astype(np.int64) * len(KINDS) + kinds
    keys, key_of, counts = np.unique(
        of_queues * len(names) + np.concatenate(name_of), return_inverse=True, return_counts=True
    )
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, key_of, lengths)
    parts = []
    for key, count, taken in zip(keys.tolist(), counts.tolist(), sums.tolist(), strict=True):
        (queue, kind), name = divmod(key // len(names), len(KINDS)), key % len(names)
        if taken:
            device, own = queues[queue]
            parts.append(PathPart(device, own, KINDS[kind], names[name], count, in_seconds(taken), taken / whole))
    return tuple(sorted(parts, key=lambda part: (-part.seconds, part.name)))


def _linked_segments(case: CaseSpans, path: LinkedPath) -> tuple[Segment, ...]:
    calls = path.calls

    def host_span(name: str, queue: int, start: int, end: int) -> Span:
        return Span(name, "host", HOST_DEVICE, calls.queues[queue], start, end, operator=name)

    found = []
    for start, end, kind, place in path.pieces:
        if kind == "operation":
            found.append(Segment(start, end, case.spans[place]))
        elif kind == "wait":
            name = calls.names[calls.name_of[place]]
            found.append(
                Segment(
                    start,
                    end,
                    host_span(name, calls.queue_of[place], int(calls.starts[place]), int(calls.ends[place])),
                )
            )
        elif kind != "host":
            found.append(Segment(start, end, None))
    stretches = host_stretches(path)
    names = [*calls.names, BETWEEN_CALLS]
    name_of = np.where(stretches.calls >= 0, calls.name_of[stretches.calls], len(calls.names))
    columns = (name_of, stretches.threads, stretches.starts, stretches.ends)
    found += [
        Segment(start, end, host_span(names[name], thread, start, end))
        for name, thread, start, end in zip(*(column.tolist() for column in columns), strict=True)
        if end > start
    ]
    return tuple(sorted(found, key=attrgetter("start")))


class _Candidates:
    """A case's spans, sorted so that bisection gives what ended last before a time. Places are indices in the case."""

    def __init__(self, case: CaseSpans) -> None:
        timed = case.operations & (case.ends > case.starts)
        operations = np.flatnonzero(timed)
        operations = operations[np.lexsort((case.starts[operations], case.ends[operations]))]
        self.resolution = case.resolution
        calling = ~case.operations
        launched_by = _launched_by(case, timed, calling & ~case.waits)

        # Taking one number out of NumPy's arrays takes ten times as long, and lists of a million four times the room.
        self.starts = _numbers(case.starts)
        self.ends = _numbers(case.ends)
        self.is_operation: list[bool] = timed.tolist()
        self.is_wait: list[bool] = case.waits.tolist()
        self.by_end = _numbers(operations)
        self.operation_ends = _numbers(case.ends[operations])
        self.previous = _numbers(_previous_on_queue(case, timed | calling))
        self.launched_by = _numbers(launched_by)

        begins_within = (launched_by >= 0) & (case.starts >= case.starts[launched_by])
        within = timed & begins_within & (case.ends <= case.ends[launched_by])
        synchronous = within.sum() > SYNCHRONOUS * timed.sum()
        computed = np.flatnonzero(within) if synchronous else np.array([], dtype=np.intp)
        computed = computed[np.lexsort((case.ends[computed], launched_by[computed]))]
        self.computed = _numbers(computed)
        self.computed_ends = _numbers(case.ends[computed])
        self.computed_from = _numbers(np.searchsorted(launched_by[computed], np.arange(len(case.spans) + 1)))

    def before_operation(self, place: int) -> int | None:
        """Return what ended last before an operation began and may have delayed it."""
        begin = self.starts[place]
        before = bisect_right(self.operation_ends, begin)
        latest = self.by_end[before - 1] if before else None
        ended = self.ends[latest] if latest is not None else UNKNOWN
        call = self.launched_by[place]
        if call >= 0 and min(self.ends[call], begin) > ended:
            latest, ended = call, min(self.ends[call], begin)
        previous = self.previous[place]
        if previous >= 0 and ended - self.resolution <= self.ends[previous] <= begin:
            return previous
        return latest

    def before_call(self, place: int, time: int) -> tuple[int | None, int]:
        """Return what came before a call of the host that lasted until `time`, and from when on the call counts."""
        if self.is_wait[place]:
            until = bisect_right(self.operation_ends, time)
            if until and self.operation_ends[until - 1] > self.starts[place]:
                return self.by_end[until - 1], self.operation_ends[until - 1]
        else:
            first, last = self.computed_from[place], self.computed_from[place + 1]
            until = bisect_right(self.computed_ends, time, first, last)
            if until > first and self.computed_ends[until - 1] > self.starts[place]:
                return self.computed[until - 1], self.computed_ends[until - 1]
        previous = self.previous[place]
        return (previous if previous >= 0 else None), min(self.starts[place], time)


def _numbers(column: np.ndarray) -> "array[int]":
    numbers = array("q")
    numbers.frombytes(column.astype(np.int64).tobytes())
    return numbers


def _previous_on_queue(case: CaseSpans, mask: np.ndarray) -> np.ndarray:
    places = np.flatnonzero(mask)
    places = places[np.argsort(case.queue_of[places], kind="stable")]
    previous = np.full(len(case.spans), -1, dtype=np.intp)
    same = case.queue_of[places[1:]] == case.queue_of[places[:-1]]
    previous[places[1:][same]] = places[:-1][same]
    return previous


def _launched_by(case: CaseSpans, operations: np.ndarray, launches: np.ndarray) -> np.ndarray:
    """Return the place of the call that launched each operation, or of the last that was over; -1 if there is none."""
    launched_by = np.full(len(case.spans), -1, dtype=np.intp)
    calls, places = np.flatnonzero(launches), np.flatnonzero(operations)
    if len(calls) == 0:
        return launched_by
    begins, linked = case.starts[places], case.linked[places]
    since = np.where(linked, np.minimum(case.launched[places], begins), begins)
    nearest = np.searchsorted(case.starts[calls], since, side="right") - 1
    ends = case.ends[calls[nearest]]
    # A call that was under way and ended before the operation need not have launched it.
    under_way = ~linked & (ends > begins) & (ends < case.ends[places])
    nearest = np.maximum(nearest - under_way, -1)
    launched_by[places] = np.where(nearest >= 0, calls[nearest], -1)
    return launched_by
