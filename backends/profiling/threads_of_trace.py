"""What the readers of all frameworks' traces share: outermost slices, cases from marks, a queue for
each thread.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from operator import attrgetter

import numpy as np

from backends.profiling.doubts import Doubt
from backends.profiling.marks import parse_case, parse_verb
from backends.profiling.slices import Slice, Slices, TraceThread, recoded
from backends.profiling.timeline import (
    HOST_DEVICE,
    KINDS,
    UNKNOWN,
    Queue,
    Span,
    SpanKind,
    Spans,
    Timeline,
    Window,
)

UNLINKED = (
    "{:,} of {:,} {} on devices are linked to no launch: the profiler does not report it. How long "
    "they waited is not known"
)
LAUNCHED_BEFORE = (
    "{:,} of {:,} {} on devices were launched before the recording began: how long they waited is "
    "not known"
)


def thread_of(slice_: Slice) -> TraceThread:
    """Return the thread of a slice."""
    return slice_.process, slice_.thread


def outermost(slices: Slices) -> Slices:
    """Return those slices that lie in no other one of the same thread."""
    kept: list[int] = []
    # For each row, where in `kept` its latest slice stands, and when that one ends.
    latest_of_row: dict[int, int] = {}
    latest_end_of_row: dict[int, int] = {}
    starts, ends = slices.starts.tolist(), slices.ends.tolist()
    columns = zip(slices.row_of.tolist(), starts, ends, strict=True)
    for position, (row, start, end) in enumerate(columns):
        if start >= latest_end_of_row.get(row, start):
            latest_of_row[row] = len(kept)
            latest_end_of_row[row] = end
            kept.append(position)
        elif end > latest_end_of_row[row] and start == starts[kept[latest_of_row[row]]]:
            # Of slices that start together, the longest holds the others.
            kept[latest_of_row[row]] = position
            latest_end_of_row[row] = end
    return slices.select(np.array(kept, np.intp))


def enclosing(slices: Iterable[Slice]) -> Callable[[Slice], Slice | None]:
    """Return a function that finds the slice in which another slice of the same thread begins.

    It returns one of `slices`, none of which overlap, or None.
    """
    slices_of: dict[TraceThread, list[Slice]] = {}
    starts_of: dict[TraceThread, list[int]] = {}
    for slice_ in slices:
        slices_of.setdefault(thread_of(slice_), []).append(slice_)
        starts_of.setdefault(thread_of(slice_), []).append(slice_.start)

    def find(inner: Slice) -> Slice | None:
        """Return the last slice that starts before `inner`, if it has not ended by then."""
        thread = thread_of(inner)
        earlier = bisect_right(starts_of.get(thread, ()), inner.start)
        if earlier == 0:
            return None
        outer = slices_of[thread][earlier - 1]
        return outer if inner.start < outer.end else None

    return find


def outermost_calls(marks: Iterable[Slice]) -> list[Slice]:
    """Return the marks of verbs' calls, without the calls that another verb made."""
    calls = Slices.of(mark for mark in marks if parse_verb(mark.name))
    return list(outermost(calls))


def windows(marks: Iterable[Slice]) -> tuple[Window, ...]:
    """Return the cases that a trace's marks name, in the order of time."""
    cases = []
    for mark in marks:
        name = parse_case(mark.name)
        if name is not None:
            cases.append(Window(name, mark.start, mark.end))
    return tuple(sorted(cases, key=attrgetter("start")))


def numbered_queues(threads: Mapping[TraceThread, Queue]) -> dict[TraceThread, Queue]:
    """Give each thread a separate queue.

    If two threads have the queue `compute` of one device, that of the second becomes `compute 2`.
    """
    thread_counts: Counter[Queue] = Counter()
    queues = {}
    for thread, (device, queue) in threads.items():
        thread_counts[device, queue] += 1
        number = thread_counts[device, queue]
        queues[thread] = (device, queue if number == 1 else f"{queue} {number}")
    return queues


def python_queues(
    slices: Iterable[Slice], names: Mapping[TraceThread, str]
) -> dict[TraceThread, Queue]:
    """Give each of Python's own threads a queue of the host, called as the thread is.

    They come in the order of their first slices.
    """
    threads = slices.threads() if isinstance(slices, Slices) else map(thread_of, slices)
    queues = {thread: (HOST_DEVICE, names.get(thread, "Python")) for thread in threads}
    return numbered_queues(queues)


class Lanes:
    """Lanes for operations, by number: those that overlap in time are on different lanes.

    A thread may have several in flight. Threads have no lanes in common.
    """

    def __init__(self) -> None:
        self.count = 0
        self.free_lanes: dict[TraceThread, list[int]] = defaultdict(list)
        self.ends_and_lanes: dict[TraceThread, list[tuple[int, int]]] = defaultdict(list)
        """The lanes in use, as a heap: the one whose operation ends first comes first."""

    def take(self, thread: TraceThread, start: int, end: int) -> int:
        """Return a thread's first lane that is free at `start`, or a new one.

        Each call has a later start than the one before.
        """
        free_lanes, ends_and_lanes = self.free_lanes[thread], self.ends_and_lanes[thread]
        while ends_and_lanes and ends_and_lanes[0][0] <= start:
            _, lane = heappop(ends_and_lanes)
            heappush(free_lanes, lane)
        if free_lanes:
            lane = heappop(free_lanes)
        else:
            lane = self.count
            self.count += 1
        heappush(ends_and_lanes, (end, lane))
        return lane


def spans_of(
    slices: Slices,
    kind: Callable[[str], SpanKind],
    queues: Mapping[TraceThread, Queue],
    readable: Callable[[str], str],
) -> Spans:
    """Return slices of operators as spans without a launch, on the queues of their threads.

    `kind` and `readable` take an operator's own name.
    """
    operators, operator_of = recoded(slices.names, slices.name_of, str)
    names, name_of = recoded(operators, operator_of, readable)
    used_queues, queue_of = recoded(slices.rows, slices.row_of, queues.__getitem__)
    kind_of_operator = [KINDS.index(kind(operator)) for operator in operators]
    kinds = np.array(kind_of_operator, np.int8)[operator_of]
    launched = np.full(len(slices), UNKNOWN)
    return Spans(
        names,
        operators,
        used_queues,
        name_of,
        operator_of,
        queue_of,
        kinds,
        slices.starts,
        slices.ends,
        launched,
    )


def host_spans(
    calls: Sequence[Slice], queues: Mapping[TraceThread, Queue] | None = None
) -> list[Span]:
    """Return a span of the host for each verb's call, from the marks of the outermost calls.

    `queues` are those of the calls' threads; without them each is called `Python`.
    """
    queues = queues or python_queues(calls, {})
    spans = []
    for call in calls:
        mark = parse_verb(call.name)
        if mark is not None:
            device, queue = queues[thread_of(call)]
            spans.append(
                Span(
                    mark.name,
                    "host",
                    device,
                    queue,
                    call.start,
                    call.end,
                    operator=call.name,
                )
            )
    return spans


def assemble(
    source: str,
    parts: Iterable[Spans],
    cases: tuple[Window, ...],
    notes: Sequence[Doubt],
    devices: Container[str],
) -> Timeline:
    """Make a timeline of the spans that start within a case; of all spans if there are no cases.

    The cases are in the order of time, and the timeline begins with the first one. The operations
    of `devices` are counted that no launch is linked to.
    """
    spans = Spans.joined(parts)
    if cases:
        case_starts = np.array([case.start for case in cases], np.int64)
        case_ends = np.array([case.end for case in cases], np.int64)
        # The position of the last case that starts before a span; -1 if there is none.
        case_of = np.searchsorted(case_starts, spans.starts, side="right") - 1
        is_in_case = (case_of >= 0) & (spans.starts < case_ends[case_of])
        begin = cases[0].start
        spans = spans.select(is_in_case).moved(-begin)
        cases = tuple(Window(case.name, case.start - begin, case.end - begin) for case in cases)
    return count_unlinked(Timeline(source, spans, cases, tuple(notes)), devices)


def count_unlinked(timeline: Timeline, devices: Container[str]) -> Timeline:
    """Return the timeline with the number of the devices' operations that no launch is linked to,
    and notes of it.
    """
    spans = timeline.columns
    queue_is_on_device = [device in devices for device, _ in spans.queues]
    is_operation = np.array(queue_is_on_device, bool)[spans.queue_of]
    is_linked = spans.launched != UNKNOWN
    is_unlinked = is_operation & ~is_linked
    is_earlier = is_unlinked & _before_linked_ones(spans, is_operation & is_linked)
    # NumPy 2.4 counts in NumPy's own numbers.
    count = int(np.count_nonzero(is_operation))
    unlinked = int(np.count_nonzero(is_unlinked))
    launched_before = int(np.count_nonzero(is_earlier))
    not_reported = unlinked - launched_before
    operations = "operation" if count == 1 else "operations"
    notes = list(timeline.notes)
    if launched_before > 0:
        sentence = LAUNCHED_BEFORE.format(launched_before, count, operations)
        notes.append(Doubt("launched-before", sentence))
    if not_reported > 0:
        notes.append(Doubt("unlinked", UNLINKED.format(not_reported, count, operations)))
    return replace(timeline, unlinked=unlinked, notes=tuple(notes))


def _before_linked_ones(spans: Spans, is_linked: np.ndarray) -> np.ndarray:
    """Return which spans began before all linked ones of their queue: a mask.

    Of a queue without linked ones these are all, if another queue has linked ones; else none.
    """
    if not is_linked.any():
        return np.zeros(len(spans), bool)
    first_linked_start = np.full(len(spans.queues), np.iinfo(np.int64).max)
    queues_of_linked = spans.queue_of[is_linked]
    np.minimum.at(first_linked_start, queues_of_linked, spans.starts[is_linked])
    return spans.starts < first_linked_start[spans.queue_of]
