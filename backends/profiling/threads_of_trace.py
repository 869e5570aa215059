"""What the readers of all frameworks' traces share: outermost slices, cases from marks, a queue for
each thread.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

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


def thread_of(one: Slice) -> TraceThread:
    return one.process, one.thread


def outermost(slices: Slices) -> Slices:
    """Return those slices that lie in no other one of the same thread."""
    places: list[int] = []
    last: dict[int, int] = {}
    until: dict[int, int] = {}
    starts, ends = slices.starts.tolist(), slices.ends.tolist()
    for place, (row, start, end) in enumerate(
        zip(slices.row_of.tolist(), starts, ends, strict=True)
    ):
        if start >= until.get(row, start):
            last[row] = len(places)
            until[row] = end
            places.append(place)
        elif end > until[row] and start == starts[places[last[row]]]:
            # Of those that begin together the longest holds the other spans.
            places[last[row]] = place
            until[row] = end
    return slices.select(np.array(places, np.intp))


def enclosing(slices: Iterable[Slice]) -> Callable[[Slice], Slice | None]:
    """Return a function that finds which of some slices, none of which overlap, another one of its
    thread begins in.
    """
    threads: dict[TraceThread, list[Slice]] = {}
    for one in slices:
        threads.setdefault(thread_of(one), []).append(one)
    starts = {thread: [one.start for one in own] for thread, own in threads.items()}

    def find(one: Slice) -> Slice | None:
        thread = thread_of(one)
        place = bisect_right(starts.get(thread, ()), one.start)
        return (
            threads[thread][place - 1]
            if place and one.start < threads[thread][place - 1].end
            else None
        )

    return find


def outermost_calls(marks: Iterable[Slice]) -> list[Slice]:
    """Return the marks of verbs' calls, without the calls that another verb made."""
    return list(outermost(Slices.of(mark for mark in marks if parse_verb(mark.name))))


def windows(marks: Iterable[Slice]) -> tuple[Window, ...]:
    """Return the cases that a trace's marks name, in the order of time."""
    named = ((parse_case(mark.name), mark) for mark in marks)
    cases = (Window(name, mark.start, mark.end) for name, mark in named if name is not None)
    return tuple(sorted(cases, key=attrgetter("start")))


def numbered_queues(threads: Mapping[TraceThread, Queue]) -> dict[TraceThread, Queue]:
    """Give each thread a separate queue: if several serve one, the second is called `compute 2`,
    say.
    """
    served: Counter[Queue] = Counter()
    queues = {}
    for thread, (device, queue) in threads.items():
        served[device, queue] += 1
        number = served[device, queue]
        queues[thread] = (device, queue if number == 1 else f"{queue} {number}")
    return queues


def python_queues(
    slices: Iterable[Slice], names: Mapping[TraceThread, str]
) -> dict[TraceThread, Queue]:
    """Give each of Python's own threads a queue of the host, in the order of their first slices,
    and of its name.
    """
    threads = slices.threads() if isinstance(slices, Slices) else map(thread_of, slices)
    return numbered_queues(
        {thread: (HOST_DEVICE, names.get(thread, "Python")) for thread in threads}
    )


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
    known, queue_of = recoded(slices.rows, slices.row_of, queues.__getitem__)
    kinds = np.array([KINDS.index(kind(operator)) for operator in operators], np.int8)[operator_of]
    launched = np.full(len(slices), UNKNOWN)
    return Spans(
        names,
        operators,
        known,
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
    """Return what Python did, from the marks of the verbs' outermost calls; without `queues`, on
    those of Python.
    """
    queues = queues or python_queues(calls, {})
    return [
        Span(
            parsed.name, "host", *queues[thread_of(call)], call.start, call.end, operator=call.name
        )
        for call in calls
        if (parsed := parse_verb(call.name))
    ]


def assemble(
    source: str,
    parts: Iterable[Spans],
    cases: tuple[Window, ...],
    notes: Sequence[str],
    devices: Container[str],
) -> Timeline:
    """Make a timeline that begins with its first case; if there are cases, spans outside of them
    are left out.

    The operations of `devices` are counted that no launch is linked to.
    """
    spans = Spans.joined(parts)
    if cases:
        begin = cases[0].start
        starts, ends = (np.array([case[place] for case in cases], np.int64) for place in (1, 2))
        case_of = np.searchsorted(starts, spans.starts, side="right") - 1
        spans = spans.select((case_of >= 0) & (spans.starts < ends[case_of])).moved(-begin)
        cases = tuple(Window(case.name, case.start - begin, case.end - begin) for case in cases)
    return count_unlinked(Timeline(source, spans, cases, tuple(notes)), devices)


def count_unlinked(timeline: Timeline, devices: Container[str]) -> Timeline:
    """Return the timeline with the number of the devices' operations that no launch is linked to,
    and notes of it.
    """
    spans = timeline.columns
    on_devices = np.array([device in devices for device, _ in spans.queues], bool)[spans.queue_of]
    linked = spans.launched != UNKNOWN
    before = on_devices & ~linked & _before_linked_ones(spans, on_devices & linked)
    # NumPy 2.4 counts in different numbers.
    count, unlinked, launched_before = (
        int(np.count_nonzero(mask)) for mask in (on_devices, on_devices & ~linked, before)
    )
    operations = "operation" if count == 1 else "operations"
    notes = [
        note.format(some, count, operations)
        for note, some in (
            (LAUNCHED_BEFORE, launched_before),
            (UNLINKED, unlinked - launched_before),
        )
        if some
    ]
    return replace(timeline, unlinked=unlinked, notes=(*timeline.notes, *notes))


def _before_linked_ones(spans: Spans, linked: np.ndarray) -> np.ndarray:
    """Return the mask of the spans that began before all linked ones of their queue.

    Of a queue without linked ones these are all, if another queue has some; else none is.
    """
    if not linked.any():
        return np.zeros(len(spans), bool)
    first = np.full(len(spans.queues), np.iinfo(np.int64).max)
    np.minimum.at(first, spans.queue_of[linked], spans.starts[linked])
    return spans.starts < first[spans.queue_of]
