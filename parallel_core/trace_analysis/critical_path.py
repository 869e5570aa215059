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

EARLIEST, LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
BETWEEN_CALLS = "between calls"
"""The name of what a thread does that the profiler does not record, in Python mostly."""
OPERATION, HOST, WAIT, LAUNCH_DELAY, QUEUE_DELAY, START = range(6)
"""What a piece of a path is: an operation that runs; the host's own work; the host's return from a
wait; the time before an operation, from the end of the call that launched it, or from the end of
the operation that it waited for; and the time before all that is known.
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
    """A path's pieces in the order of time, without holes; an entry for each in all arrays."""

    starts: np.ndarray
    ends: np.ndarray
    kinds: np.ndarray
    """What each is: OPERATION to START."""
    places: np.ndarray
    """The operation, of HOST the thread, of WAIT the call, and NONE of START."""

    def only(self, kind: int) -> "_Pieces":
        """Return those of one kind."""
        return _Pieces(*(column[self.kinds == kind] for column in self))

    @property
    def nanoseconds(self) -> int:
        """How long they last together."""
        return int(np.sum(self.ends - self.starts))


class _Stretches(NamedTuple):
    """A path's stretches on the host; an entry for each in all arrays."""

    starts: np.ndarray
    ends: np.ndarray
    calls: np.ndarray
    """The innermost calls, or NONE."""
    threads: np.ndarray


def path_summary(case: CaseSpans) -> PathSummary:
    """Find a case's critical path and add it up by name. O(n log n)."""
    pieces, path = _path(case)
    time, lengths = pieces.nanoseconds, path.ends - path.starts
    idle = time - int(lengths.sum())
    # A number for each queue, kind and name.
    queue_and_kind = path.queue_of.astype(np.int64) * len(KINDS) + path.kinds
    parts = []
    for alike in groups_of(queue_and_kind * len(path.names) + path.name_of):
        first, time_of_part = path[int(alike[0])], int(lengths[alike].sum())
        parts.append(
            PathPart(
                device=first.device,
                queue=first.queue,
                kind=first.kind,
                name=first.name,
                segments=len(alike),
                seconds=in_seconds(time_of_part),
                share=time_of_part / time,
            )
        )
    parts.sort(key=lambda part: (-part.seconds, part.name))
    return PathSummary(
        seconds=in_seconds(time),
        idle_seconds=in_seconds(idle),
        idle_share=idle / time if time else 0.0,
        parts=tuple(parts),
        causes=None if case.host_calls is None else _causes(pieces, path),
    )


def _causes(pieces: _Pieces, path: Spans) -> PathCauses:
    """Add up a path's pieces, and its spans, by what bounds them."""
    lengths = path.ends - path.starts

    def seconds_of_spans(kind: SpanKind) -> float:
        return in_seconds(lengths[path.kinds == KINDS.index(kind)].sum())

    def seconds_of_pieces(kind: int) -> float:
        return in_seconds(pieces.only(kind).nanoseconds)

    return PathCauses(
        compute_seconds=seconds_of_spans("compute"),
        copy_seconds=seconds_of_spans("copy"),
        exchange_seconds=seconds_of_spans("exchange"),
        host_seconds=seconds_of_pieces(HOST),
        waiting_seconds=seconds_of_pieces(WAIT),
        launch_delay_seconds=seconds_of_pieces(LAUNCH_DELAY),
        queue_delay_seconds=seconds_of_pieces(QUEUE_DELAY),
    )


def critical_path(case: CaseSpans) -> Spans:
    """Return the path of a case in the order of time: spans cut to it, which touch where it is not
    idle.

    It leads from the case's start to the end of its last operation; it is empty if no operation
    took any time. O(n log n).
    """
    _, path = _path(case)
    return path


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
        spans = case.spans.select(host)
        calls = HostCalls(
            names=spans.names,
            queues=tuple(queue for _, queue in spans.queues),
            starts=spans.starts,
            ends=spans.ends,
            name_of=spans.name_of,
            queue_of=spans.queue_of,
            roles=spans.kinds,
        )
        operations = operations_by_time(case, host)
        waits = waits_by_time(case, calls, host, operations)
    pieces = _walk(case.start, operations, calls, waits)
    running = pieces.only(OPERATION)
    spans_that_ran = case.spans.select(operations.places[running.places])
    on_devices = replace(spans_that_ran, starts=running.starts, ends=running.ends)
    on_host = _spans_on_host(calls, _stretches_on_host(calls, pieces))
    if case.host_calls is None:
        # Of calls that are not nested the profiler may leave out some.
        is_known = on_host.name_of < len(calls.names)
        on_host = on_host.select(is_known)
    return pieces, Spans.joined((on_devices, on_host))


def _spans_on_host(calls: HostCalls, stretches: _Stretches) -> Spans:
    """Return the path's stretches on the host as spans, which have the names of the calls."""
    count = len(stretches.calls)
    names = (*calls.names, BETWEEN_CALLS)
    # The last entry is for stretches without a call.
    name_of = np.append(calls.name_of, len(calls.names))[stretches.calls]
    return Spans(
        names=names,
        operators=names,
        queues=tuple((HOST_DEVICE, queue) for queue in calls.queues),
        name_of=name_of,
        operator_of=name_of,
        queue_of=stretches.threads,
        kinds=np.full(count, KINDS.index("host"), np.int8),
        starts=stretches.starts,
        ends=stretches.ends,
        launched=np.full(count, UNKNOWN),
    )


def _walk(begin: int, operations: Operations, calls: HostCalls, waits: HostWaits) -> _Pieces:
    """Walk backwards from the end of the last operation to the case's start."""
    pieces = array("q")

    def add(start: int, end: int, kind: int, place: int) -> None:
        if end > start:
            pieces.extend((start, end, kind, place))

    starts, ends = _numbers(operations.starts), _numbers(operations.ends)
    before, launched_by = _numbers(operations.before), _numbers(operations.calls)
    call_ends, call_threads = _numbers(calls.ends), _numbers(calls.queue_of)
    wait_times, awaited = _numbers(waits.times), _numbers(waits.operations)
    waiting_calls, onward = _numbers(waits.calls), _numbers(waits.onward)
    other_threads = _numbers(waits.others)
    # The waits of thread k are those from bounds[k] to bounds[k + 1].
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
        # On the host the path goes back from wait to wait, until one was for an operation.
        while operation == NONE:
            wait = bisect_right(wait_times, time, bounds[thread], bounds[thread + 1]) - 1
            if wait < bounds[thread] or wait_times[wait] <= begin:
                add(begin, time, HOST, thread)
                break
            add(wait_times[wait], time, HOST, thread)
            operation, time = awaited[wait], onward[wait]
            if operation == NONE:
                thread = other_threads[wait]
            else:
                add(time, wait_times[wait], WAIT, waiting_calls[wait])
    rows_backwards = np.frombuffer(pieces, np.int64).reshape(-1, 4)
    return _Pieces(*rows_backwards[::-1].T)


def _numbers(column: np.ndarray) -> "array[int]":
    """Return the numbers of a column in an array of Python's, from which one is taken quickly."""
    # Taking one number out of NumPy's arrays takes ten times the time, and lists of a million four
    # times the room.
    numbers = array("q")
    numbers.frombytes(column.astype(np.int64).tobytes())
    return numbers


def _stretches_on_host(calls: HostCalls, pieces: _Pieces) -> _Stretches:
    """Return the stretches of a path on the host, each with the innermost call that ran."""
    waits, host_work = pieces.only(WAIT), pieces.only(HOST)
    waiting_threads = calls.queue_of[waits.places]
    columns = [_Stretches(waits.starts, waits.ends, waits.places, waiting_threads)]
    calls_of_thread = {
        int(calls.queue_of[places[0]]): places for places in groups_of(calls.queue_of)
    }
    for same_thread in groups_of(host_work.places):
        thread = int(host_work.places[same_thread[0]])
        times, running = innermost(calls, calls_of_thread[thread])
        # From edge to edge one call is the innermost; before a thread's first call none is.
        edges = np.concatenate(([EARLIEST], times, [LATEST]))
        running = np.append(NONE, running)

        # The pieces, cut at the edges: a row for each piece and each interval that it reaches into.
        starts, ends = host_work.starts[same_thread], host_work.ends[same_thread]
        first_interval = np.searchsorted(times, starts, side="right")
        last_interval = np.searchsorted(times, ends)
        counts = last_interval + 1 - first_interval
        first_row = np.cumsum(counts) - counts
        piece = np.repeat(np.arange(len(starts)), counts)
        number_in_piece = np.arange(len(piece)) - first_row[piece]
        interval = first_interval[piece] + number_in_piece
        columns.append(
            _Stretches(
                starts=np.maximum(edges[interval], starts[piece]),
                ends=np.minimum(edges[interval + 1], ends[piece]),
                calls=running[interval],
                threads=np.full(len(interval), thread),
            )
        )
    return _Stretches(*map(np.concatenate, zip(*columns, strict=True)))
