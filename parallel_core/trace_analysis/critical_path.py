"""The critical path of a trace: the chain of spans that ended last, from a case's last operation
backwards.

Before an operation comes what it waited for (`waited_for.py`). On a thread of the host the path
goes back through its calls, until one that waited for an operation (`host_waits.py`): from the end
of that one to the end of the call is returning from the wait, and the path goes on with the
operation. Time between the end of one span and the start of the next is idle.

No profiler records which operation needs which result, so this is not the critical path of a task
graph: an operation that happens to end just before another begins is in the chain. To shorten the
case, something in it must change.

A trace of PyTorch on a GPU has all calls of the host's threads, nested, the operations that they
launched, and calls that wait for a stream, an event or a device. There the path never stands still
on the host while a device works.

The path of Holistic Trace Analysis (critical_path_analysis) is the heaviest one through a graph of
such links. The host's time between outermost operators has no weight there, nor has the rest of a
call that waits: here these are `between calls` and `waiting_seconds`, so that a case is covered
without holes. There the path may end with the host's last call, leaves out what was launched before
the recording began, gives a call that launches to the host until it starts and not until it ends,
waits for a busy queue only if the gap is shorter than 1.5 ms, and knows what a call waited for only
if Kineto was asked to write `cuda_sync`, not for copies that block, and not for HIP.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import (
    HOST_DEVICE,
    KINDS,
    UNKNOWN,
    HostCalls,
    SpanKind,
    Spans,
    in_seconds,
)
from parallel_core.trace_analysis.case_spans import CaseSpans, groups_of
from parallel_core.trace_analysis.host_waits import (
    HostWaits,
    innermost,
    linked_waits,
    waits_by_time,
)
from parallel_core.trace_analysis.waited_for import (
    NONE,
    Operations,
    linked_operations,
    operations_by_time,
)

BETWEEN_CALLS = "between calls"
"""The name of what a thread does that the profiler does not record, in Python mostly."""
OPERATION, HOST, WAIT, LAUNCH_DELAY, QUEUE_DELAY, START = range(6)
"""What a piece of a path is: running; the host's own work; returning from a wait; from the end of
the call that launched to the start, or from the end of what was waited for; and before all that is
known.
"""


@dataclass(frozen=True)
class PathPart:
    """All spans of one name on the path: their number, their seconds, and their share of it."""

    device: str
    queue: str
    kind: SpanKind
    name: str
    segments: int
    seconds: float
    share: float


@dataclass(frozen=True)
class PathCauses:
    """The seconds of a path by what bounds it; they add up. The delays, and what comes first, are
    the idle seconds.
    """

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


@dataclass(frozen=True)
class PathSummary:
    """The parts of a path, the longest first; their shares and the idle share sum to 1."""

    seconds: float
    idle_seconds: float
    idle_share: float
    parts: tuple[PathPart, ...]
    causes: PathCauses | None = None
    """What bounds each stretch, if the trace has the host's nested calls and links operations to
    them.
    """


class _Pieces(NamedTuple):
    """A path's pieces without holes: from when to when, what they are, and of which operation, call
    or thread.
    """

    starts: np.ndarray
    ends: np.ndarray
    whats: np.ndarray
    places: np.ndarray

    def only(self, what: int) -> "_Pieces":
        """Return those of one kind."""
        return _Pieces(*(column[self.whats == what] for column in self))

    @property
    def nanoseconds(self) -> int:
        """How long they last together."""
        return int(np.sum(self.ends - self.starts))


def path_summary(case: CaseSpans) -> PathSummary:
    """Find a case's critical path and add it up by name. O(n log n)."""
    pieces, path = _path(case)
    whole, lengths = pieces.nanoseconds, path.ends - path.starts
    idle = whole - int(lengths.sum())
    of_queues = path.queue_of.astype(np.int64) * len(KINDS) + path.kinds
    parts = []
    for own in groups_of(of_queues * len(path.names) + path.name_of):
        one, taken = path[int(own[0])], int(lengths[own].sum())
        parts.append(
            PathPart(
                one.device,
                one.queue,
                one.kind,
                one.name,
                len(own),
                in_seconds(taken),
                taken / whole,
            )
        )
    parts.sort(key=lambda part: (-part.seconds, part.name))
    causes = None
    if case.host_calls is not None:
        computed = [int(lengths[path.kinds == place].sum()) for place in range(3)]
        others = [pieces.only(what).nanoseconds for what in (HOST, WAIT, LAUNCH_DELAY, QUEUE_DELAY)]
        causes = PathCauses(*map(in_seconds, (*computed, *others)))
    return PathSummary(
        in_seconds(whole), in_seconds(idle), idle / whole if whole else 0.0, tuple(parts), causes
    )


def critical_path(case: CaseSpans) -> Spans:
    """Return the path of a case in the order of time: spans cut to it, which touch where it is not
    idle.

    It leads from the case's start to the end of its last operation; it is empty if no operation
    took any time. O(n log n).
    """
    return _path(case)[1]


def _path(case: CaseSpans) -> tuple[_Pieces, Spans]:
    """Return a path's pieces, and the spans of those that are not idle; none if no operation took
    any time.
    """
    if not np.any(case.operations & (case.lengths > 0)):
        return _Pieces(*np.zeros((4, 0), np.int64)), Spans.of(())
    calls = case.host_calls
    if calls is not None:
        operations = linked_operations(case, calls)
        waits = linked_waits(calls, operations)
    else:
        host = np.flatnonzero(~case.operations)
        queues, spans = tuple(queue for _, queue in case.spans.queues), case.spans.select(host)
        calls = HostCalls(
            spans.names,
            queues,
            spans.starts,
            spans.ends,
            spans.name_of,
            spans.queue_of,
            spans.kinds,
        )
        operations = operations_by_time(case, host)
        waits = waits_by_time(case, calls, host, operations)
    pieces = _walk(case.start, operations, calls, waits)
    ran = pieces.only(OPERATION)
    on_devices = replace(
        case.spans.select(operations.places[ran.places]), starts=ran.starts, ends=ran.ends
    )
    starts, ends, places, threads = _on_host(calls, pieces)
    names = (*calls.names, BETWEEN_CALLS)
    name_of = np.append(calls.name_of, len(calls.names))[places]
    kinds = np.full(len(places), KINDS.index("host"), np.int8)
    on_queues = tuple((HOST_DEVICE, queue) for queue in calls.queues)
    launched = np.full(len(places), UNKNOWN)
    on_host = Spans(
        names, names, on_queues, name_of, name_of, threads, kinds, starts, ends, launched
    )
    # Of calls that are not nested the profiler may leave out some.
    known = slice(None) if case.host_calls is not None else places != NONE
    return pieces, Spans.joined((on_devices, on_host.select(known)))


def _walk(begin: int, operations: Operations, calls: HostCalls, waits: HostWaits) -> _Pieces:
    """Walk backwards from the end of the last operation to the case's start."""
    pieces = array("q")

    def add(start: int, end: int, what: int, place: int) -> None:
        if end > start:
            pieces.extend((start, end, what, place))

    starts, ends, before, launched_by = map(
        _numbers, (operations.starts, operations.ends, operations.before, operations.calls)
    )
    call_ends, call_threads = _numbers(calls.ends), _numbers(calls.queue_of)
    times, awaited, waiting, onward, others = map(_numbers, waits[1:])
    bounds = np.searchsorted(waits.threads, np.arange(len(calls.queues) + 1)).tolist()
    operation = int(np.lexsort((operations.starts, operations.ends))[-1])
    time = ends[operation]
    while operation != NONE:
        start = starts[operation]
        add(start, time, OPERATION, operation)
        earlier, call = before[operation], launched_by[operation]
        if earlier != NONE:
            time = min(ends[earlier], start)
            add(time, start, QUEUE_DELAY, operation)
            operation = earlier
            continue
        if call == NONE or call_ends[call] <= begin:
            add(begin, start, START, NONE)
            break
        thread, time = call_threads[call], min(call_ends[call], start)
        add(time, start, LAUNCH_DELAY, operation)
        operation = NONE
        while operation == NONE:
            wait = bisect_right(times, time, bounds[thread], bounds[thread + 1]) - 1
            if wait < bounds[thread] or times[wait] <= begin:
                add(begin, time, HOST, thread)
                break
            add(times[wait], time, HOST, thread)
            operation, time = awaited[wait], onward[wait]
            if operation == NONE:
                thread = others[wait]
            else:
                add(time, times[wait], WAIT, waiting[wait])
    return _Pieces(*np.frombuffer(pieces, np.int64).reshape(-1, 4)[::-1].T)


def _numbers(column: np.ndarray) -> "array[int]":
    # Taking one number out of NumPy's arrays takes ten times the time, and lists of a million four
    # times the room.
    numbers = array("q")
    numbers.frombytes(column.astype(np.int64).tobytes())
    return numbers


def _on_host(calls: HostCalls, pieces: _Pieces) -> Iterator[np.ndarray]:
    """Give the starts and ends of the path's stretches on the host, the innermost calls or NONE,
    and the threads.
    """
    own, waits = pieces.only(HOST), pieces.only(WAIT)
    found = [(waits.starts, waits.ends, waits.places, calls.queue_of[waits.places])]
    limits = np.iinfo(np.int64)
    calls_of = {int(calls.queue_of[places[0]]): places for places in groups_of(calls.queue_of)}
    for pieces_of_thread in groups_of(own.places):
        thread = int(own.places[pieces_of_thread[0]])
        begins, running = innermost(calls, calls_of[thread])
        # Before a thread's first call nothing runs.
        edges, running = (
            np.concatenate(([limits.min], begins, [limits.max])),
            np.append(NONE, running),
        )
        starts, ends = own.starts[pieces_of_thread], own.ends[pieces_of_thread]
        first = np.searchsorted(begins, starts, side="right")
        counts = np.searchsorted(begins, ends) + 1 - first
        piece_of = np.repeat(np.arange(len(starts)), counts)
        place = (
            first[piece_of]
            + np.arange(len(piece_of))
            - np.repeat(np.cumsum(counts) - counts, counts)
        )
        found.append(
            (
                np.maximum(edges[place], starts[piece_of]),
                np.minimum(edges[place + 1], ends[piece_of]),
                running[place],
                np.full(len(place), thread),
            )
        )
    return map(np.concatenate, zip(*found, strict=True))
