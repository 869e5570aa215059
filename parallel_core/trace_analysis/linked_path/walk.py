"""The critical path, walked backwards from the operation that ended last: over operations and the host's threads.

An operation is on the path as a whole, and before it what it waited for (`operations.py`). On a thread the path goes
back through the innermost calls, until a call that waited for an operation: from the end of that one to the end of the
call is returning from the wait, and the path goes on with the operation.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from backends.profiling.timeline import HostCalls
from parallel_core.trace_analysis.case_spans import CaseSpans
from parallel_core.trace_analysis.linked_path.host_threads import NO_CALL, HostThreads, host_threads
from parallel_core.trace_analysis.linked_path.host_waits import host_waits
from parallel_core.trace_analysis.linked_path.operations import NONE, Operations, linked_operations

__all__ = ["LinkedPath", "Piece", "PieceKind", "Stretches", "fits", "host_stretches", "walk"]

LONGEST_AXIS = 2**62
PieceKind: TypeAlias = Literal["operation", "host", "wait", "launch delay", "queue delay", "start"]
"""Running; the host's own work; returning from a wait; from the end of the call that launched to the start, or from the
end of what was waited for; and before all that is known."""


class Piece(NamedTuple):
    """A stretch of the path in nanoseconds; `place` is that of a span, a call or a thread, by the kind."""

    start: int
    end: int
    kind: PieceKind
    place: int


@dataclass(frozen=True, eq=False)
class LinkedPath:
    """The pieces of a path in the order of time, without holes, and what is needed to take them apart."""

    pieces: tuple[Piece, ...]
    calls: HostCalls
    threads: HostThreads


class Stretches(NamedTuple):
    """Stretches of a path on the host, in the order of time: threads, calls or NO_CALL, starts and ends."""

    threads: np.ndarray
    calls: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def fits(case: CaseSpans, calls: HostCalls) -> bool:
    """Return whether all threads' times lie on one axis of 64 bits: not with an event of another century."""
    first, last = _bounds(case, calls)
    return (last - first + 2) * len(calls.queues) < LONGEST_AXIS


def walk(case: CaseSpans, calls: HostCalls) -> LinkedPath:
    """Walk the path of a case from the end of its last operation to the case's start; empty without any. O(n log n)."""
    operations = linked_operations(case, calls)
    threads = host_threads(calls, *_bounds(case, calls))
    pieces = tuple(_pieces(case, calls, operations, threads)) if len(operations.places) else ()
    return LinkedPath(tuple(one for one in reversed(pieces) if one.end > one.start), calls, threads)


def host_stretches(path: LinkedPath) -> Stretches:
    """Take apart the pieces of a path on the host's threads, by the innermost calls."""
    pieces = [one for one in path.pieces if one.kind == "host"]
    threads = np.array([one.place for one in pieces], np.int64)
    begins, axis = path.threads.begins, path.threads
    starts = axis.on_axis(threads, np.array([one.start for one in pieces], np.int64))
    ends = axis.on_axis(threads, np.array([one.end for one in pieces], np.int64))
    first = np.searchsorted(begins, starts, side="right") - 1
    counts = np.searchsorted(begins, ends) - first
    piece_of = np.repeat(np.arange(len(pieces)), counts)
    within = np.arange(len(piece_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = first[piece_of] + within
    # Before a thread's first call its part of the axis is empty, and what comes before it is another thread's.
    inside = (place >= 0) & (np.append(begins, 0)[place] >= (threads * axis.length)[piece_of])
    calls = np.where(inside, np.append(axis.calls, NO_CALL)[place], NO_CALL)
    begin = np.where(inside, np.maximum(np.append(begins, 0)[place], starts[piece_of]), starts[piece_of])
    end = np.minimum(np.append(begins[1:], (np.iinfo(np.int64).max,) * 2)[place], ends[piece_of])
    end = np.where(place < 0, np.minimum(np.append(begins, np.iinfo(np.int64).max)[0], ends[piece_of]), end)
    own = (threads * axis.length)[piece_of]
    return Stretches(threads[piece_of], calls, begin - own + axis.first, end - own + axis.first)


def _bounds(case: CaseSpans, calls: HostCalls) -> tuple[int, int]:
    first, last = (calls.starts.min(), calls.ends.max()) if len(calls.starts) else (case.start, case.end)
    return min(int(first), case.start), max(int(last), case.end)


def _pieces(case: CaseSpans, calls: HostCalls, operations: Operations, threads: HostThreads) -> Iterator[Piece]:
    waits = host_waits(calls, operations, threads)
    called = np.minimum(calls.ends[operations.calls], operations.starts)
    on_axis = threads.on_axis(calls.queue_of[operations.calls], called)
    # Lists, because taking one number out of an array takes ten times as long.
    spans, starts, ends = operations.places.tolist(), operations.starts.tolist(), operations.ends.tolist()
    before, launched_by, launches = operations.before.tolist(), operations.calls.tolist(), on_axis.tolist()
    places, awaited, waiting = waits.places.tolist(), waits.operations.tolist(), waits.calls.tolist()
    onward = waits.onward.tolist()

    operation = int(np.argmax(operations.ends))
    time = ends[operation]
    while True:
        start = starts[operation]
        yield Piece(start, time, "operation", spans[operation])
        earlier = before[operation]
        if earlier != NONE:
            time = min(ends[earlier], start)
            yield Piece(time, start, "queue delay", spans[operation])
            operation = earlier
            continue
        if launched_by[operation] == NONE:
            yield Piece(case.start, start, "start", NONE)
            return
        axis = launches[operation]
        thread, time = threads.off_axis(axis)
        yield Piece(time, start, "launch delay", spans[operation])
        while True:
            wait = bisect_right(places, axis) - 1
            if wait < 0 or threads.off_axis(places[wait])[0] != thread:
                yield Piece(case.start, time, "host", thread)
                return
            until = threads.off_axis(places[wait])[1]
            if until <= case.start:
                yield Piece(case.start, time, "host", thread)
                return
            yield Piece(until, time, "host", thread)
            if awaited[wait] != NONE:
                operation, time = awaited[wait], onward[wait]
                yield Piece(time, until, "wait", waiting[wait])
                break
            axis = onward[wait]
            thread, time = threads.off_axis(axis)
