"""What both readers of traces do alike: outermost slices, cases from their marks, a queue for each thread."""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

from backends.profiling.chrome_trace.slices import Slice
from backends.profiling.marks import case_of, verb_of
from backends.profiling.timeline import HOST_DEVICE, Span, Timeline, Window

__all__ = [
    "Row",
    "assemble",
    "enclosing",
    "host_spans",
    "numbered_queues",
    "outermost",
    "python_queues",
    "row_of",
    "verbs_called",
    "windows",
]

Row: TypeAlias = "tuple[int | str, int | str]"
"""A thread in a trace: its process and its number there."""


def row_of(one: Slice) -> Row:
    """Return the thread that a slice ran on."""
    return one.process, one.thread


def outermost(slices: Iterable[Slice]) -> list[Slice]:
    """Return which of some slices, in the order of their start, lie in no other one of the same thread."""
    found: list[Slice] = []
    last: dict[Row, int] = {}
    for one in slices:
        row = one.process, one.thread
        place = last.get(row)
        if place is None or one.start >= found[place].end:
            last[row] = len(found)
            found.append(one)
        elif one.start == found[place].start and one.end > found[place].end:
            # Of those that begin together the longest holds the others.
            found[place] = one
    return found


def enclosing(slices: Iterable[Slice]) -> Callable[[Slice], Slice | None]:
    """Make what finds the slice in which another one of the same thread begins, among some that do not overlap."""
    rows: dict[Row, list[Slice]] = {}
    for one in slices:
        rows.setdefault(row_of(one), []).append(one)
    starts = {row: [one.start for one in held] for row, held in rows.items()}

    def find(one: Slice) -> Slice | None:
        row = row_of(one)
        if row not in rows:
            return None
        place = bisect_right(starts[row], one.start)
        return rows[row][place - 1] if place and one.start < rows[row][place - 1].end else None

    return find


def verbs_called(marks: Iterable[Slice]) -> list[Slice]:
    """Return the marks of verbs, but for those that another verb called."""
    return outermost(mark for mark in marks if verb_of(mark.name))


def windows(marks: Iterable[Slice]) -> tuple[Window, ...]:
    """Return the cases that stand in a trace's marks, in the order of time."""
    named = ((case_of(mark.name), mark) for mark in marks)
    found = (Window(name, mark.start, mark.end) for name, mark in named if name is not None)
    return tuple(sorted(found, key=lambda window: window.start))


def numbered_queues(rows: Mapping[Row, tuple[str, str]]) -> dict[Row, tuple[str, str]]:
    """Give each thread a queue of its own: where several serve one, the second is called `compute 2`, say."""
    seen: dict[Hashable, int] = {}
    found = {}
    for row, (device, queue) in rows.items():
        number = seen[device, queue] = seen.get((device, queue), 0) + 1
        found[row] = (device, queue if number == 1 else f"{queue} {number}")
    return found


def python_queues(slices: Iterable[Slice]) -> dict[Row, tuple[str, str]]:
    """Give each thread of Python's own a queue of the host, in the order of their first slices."""
    return numbered_queues({row_of(one): (HOST_DEVICE, "Python") for one in slices})


def host_spans(calls: Iterable[Slice], queues: Mapping[Row, tuple[str, str]]) -> list[Span]:
    """Return what Python did, from the marks of the verbs' outermost calls."""
    spans = []
    for call in calls:
        read = verb_of(call.name)
        assert read is not None
        spans.append(Span(read.name, "host", *queues[row_of(call)], call.start, call.end, operator=call.name))
    return spans


def assemble(source: str, spans: Iterable[Span], cases: tuple[Window, ...], notes: Sequence[str]) -> Timeline:
    """Make a timeline that begins with its first case; where there are cases, what lies outside them is left out."""
    ordered = sorted(spans, key=attrgetter("start"))
    if not cases:
        return Timeline(source, tuple(ordered), (), tuple(notes))
    begin = cases[0].start
    starts = [case.start for case in cases]

    def is_within(span: Span) -> bool:
        place = bisect_right(starts, span.start)
        return place > 0 and span.start < cases[place - 1].end

    moved = tuple(
        span._replace(
            start=span.start - begin,
            end=span.end - begin,
            launched=None if span.launched is None else span.launched - begin,
        )
        for span in ordered
        if is_within(span)
    )
    shifted = tuple(Window(case.name, case.start - begin, case.end - begin) for case in cases)
    return Timeline(source, moved, shifted, tuple(notes))
