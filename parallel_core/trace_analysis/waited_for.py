"""What an operation waited for: an operation before it, or the host's call that launched it.

Of a trace that has the host's nested calls, and links operations to them:

- The one before it on its queue, if that had not ended when the host launched it: the queue was
  busy.
- An operation of another queue, if the profiler recorded that its own queue waits for it. If it
  records no such waits but the host let some queue wait between the two launches, or one launch
  started work on several queues (a graph): what ended last before it began on its device, and later
  than the one before it.
- Else the call that launched it.

Of any other trace: what ended last before it began, an operation on any queue, or the call that
launched it; if the profiler does not record that call, the last one that was over. Among operations
that ended at the same time, within the profiler's resolution, the one on the same queue.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from backends.profiling.timeline import ROLES, UNKNOWN, HostCalls
from parallel_core.trace_analysis.case_spans import CaseSpans, groups_of

NONE = -1


@dataclass(frozen=True, eq=False)
class Queue:
    """The operations of one queue in the order of their launches, and which of those so far ends
    last.
    """

    name: tuple[str, str]
    launched: np.ndarray
    operations: np.ndarray
    last: np.ndarray

    def last_before(self, times: np.ndarray) -> np.ndarray:
        """Return the operation that ends last among those launched until each of some times, or
        NONE.
        """
        reached = np.searchsorted(self.launched, times, side="right") - 1
        return np.where(reached >= 0, self.last[reached], NONE)


@dataclass(frozen=True, eq=False)
class Operations:
    """The operations of a case that took any time, in the order of their start; an entry for each
    in all arrays.
    """

    places: np.ndarray
    """In the case's spans."""
    starts: np.ndarray
    ends: np.ndarray
    calls: np.ndarray
    """The places of the calls that launched them, or NONE."""
    before: np.ndarray
    """The operations that they waited for, or NONE."""
    launched: np.ndarray
    """When they began, if the launch is not known; with `queues`, of only linked operations."""
    queues: tuple[Queue, ...] = ()


def linked_operations(case: CaseSpans, calls: HostCalls) -> Operations:
    """Return a case's operations with what each waited for, by links to the host's calls.

    O(n log n).
    """
    places = np.flatnonzero(case.operations & (case.lengths > 0))
    spans = case.spans.select(places)
    starts, ends, queue_of = spans.starts, spans.ends, spans.queue_of
    launched = case.since[places]
    launched_by = np.where(case.linked[places], _launched_by(calls, launched), NONE)
    has_no_call = launched_by == NONE
    queues = tuple(
        _queue(spans.queues[queue_of[on_queue[0]]], on_queue, spans.launched, ends)
        for on_queue in groups_of(queue_of)
    )

    # First the operation before it on its queue, if the queue was busy when it was launched.
    previous = _previous(queue_of)
    # Of two that began together neither has waited for the other.
    previous[starts[previous] == starts] = NONE
    previous_end = np.where(previous != NONE, ends[previous], UNKNOWN)
    was_busy = previous_end > launched
    # What has no call to go on with goes on with what came before it.
    before = np.where(was_busy | has_no_call, previous, NONE)
    held_until = np.where(before != NONE, previous_end, launched)

    # Then an operation of another queue, where the profiler recorded that its queue waits for it.
    for operation, awaited in _recorded_waits(calls, queues):
        awaited_end = ends[awaited]
        took_time = awaited_end > starts[awaited]
        ended_later = held_until[operation] < awaited_end <= starts[operation]
        if took_time and ended_later:
            before[operation] = awaited
            held_until[operation] = awaited_end

    # Last what ended last on its device, where it may have waited without a record.
    may_wait = _one_launch_for_several_queues(launched, queue_of)
    if not calls.queue_waits:
        may_wait |= _let_wait_between(calls, launched, previous)
    may_wait |= (before == NONE) & has_no_call
    # A call holds an operation up until it ends: one that was launched in vain waits for none.
    call_end = np.minimum(np.append(calls.ends, UNKNOWN)[launched_by], starts)
    held_until = np.where(before != NONE, held_until, call_end)
    for on_device in groups_of(case.device_of[places]):
        waiting = on_device[may_wait[on_device]]
        latest = last_ended(starts[on_device], ends[on_device], starts[waiting])
        awaited = on_device[latest]
        has_waited = (
            (latest != NONE)
            & (awaited != waiting)
            & (ends[awaited] > held_until[waiting])
            & (launched[awaited] <= launched[waiting])
        )
        before[waiting[has_waited]] = awaited[has_waited]
    return Operations(places, starts, ends, launched_by, before, launched, queues)


def operations_by_time(case: CaseSpans, host: np.ndarray) -> Operations:
    """Return a case's operations with what may have delayed each, by times alone.

    `host` are the places of the host's spans. O(n log n).
    """
    places = np.flatnonzero(case.operations & (case.lengths > 0))
    spans = case.spans.select(places)
    starts, ends = spans.starts, spans.ends

    # What ended last before it began: an operation, or the call that launched it.
    before = last_ended(starts, ends, starts)
    operation_end = np.where(before != NONE, ends[before], UNKNOWN)
    call = _last_launch(case, places, host[~case.waits[host]])
    call_end = np.where(call != NONE, np.minimum(case.spans.ends[call], starts), UNKNOWN)
    before[call_end > operation_end] = NONE
    latest_end = np.maximum(operation_end, call_end)

    # Of those that ended at the same time, as far as the profiler tells, the one on its queue.
    previous = _previous(spans.queue_of)
    previous_end = ends[previous]
    ended_then = previous_end >= latest_end - case.resolution
    is_alike = (previous != NONE) & (previous_end <= starts) & ended_then
    before[is_alike] = previous[is_alike]
    launched_by = np.where(call != NONE, np.searchsorted(host, call), NONE)
    return Operations(places, starts, ends, launched_by, before, starts)


def last_ended(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return which of some operations ended last until each of some times, or NONE."""
    by_end = np.lexsort((starts, ends))
    # If none had ended, this is -1, and finds the entry that is appended.
    latest = np.searchsorted(ends[by_end], times, side="right") - 1
    return np.append(by_end, NONE)[latest]


def _queue(
    name: tuple[str, str], on_queue: np.ndarray, launched: np.ndarray, ends: np.ndarray
) -> Queue:
    """Return a queue with its operations in the order of their launches, of which some are not
    known.
    """
    launches = launched[on_queue]
    # A queue keeps the order: an unknown launch is taken to come right behind those before it.
    launches = np.where(launches == UNKNOWN, np.maximum.accumulate(launches), launches)
    order = np.argsort(launches, kind="stable")
    operations = on_queue[order]

    # The operations that end last of all up to them, and for each operation the nearest of these.
    latest_end = np.maximum.accumulate(ends[operations])
    end_last_so_far = np.flatnonzero(ends[operations] == latest_end)
    numbers = np.arange(len(operations))
    nearest = np.searchsorted(end_last_so_far, numbers, side="right") - 1
    last = operations[end_last_so_far[nearest]]
    return Queue(name, launches[order], operations, last)


def _launched_by(calls: HostCalls, launched: np.ndarray) -> np.ndarray:
    """Return the place of the runtime's call that began at each time of a launch, or NONE."""
    runtime = np.flatnonzero(calls.roles >= ROLES.index("call"))
    if len(runtime) == 0:
        return np.full(len(launched), NONE)
    # Of calls that begin together the shortest is the innermost.
    runtime = runtime[np.lexsort((-calls.ends[runtime], calls.starts[runtime]))]
    begun = np.searchsorted(calls.starts[runtime], launched, side="right")
    latest = runtime[begun - 1]
    return np.where(calls.starts[latest] == launched, latest, NONE)


def _last_launch(case: CaseSpans, places: np.ndarray, launches: np.ndarray) -> np.ndarray:
    """Return the place of the call that launched each operation, or of the last that was over, or
    NONE.
    """
    if len(launches) == 0:
        return np.full(len(places), NONE)
    spans = case.spans
    starts, ends = spans.starts[places], spans.ends[places]
    since = np.minimum(case.since[places], starts)
    # If none began before, this is -1: as a place it finds the entry that is appended.
    latest = np.searchsorted(spans.starts[launches], since, side="right") - 1
    call_end = spans.ends[launches[latest]]
    # A call that was under way and ended before the operation need not have launched it.
    was_under_way = (call_end > starts) & (call_end < ends)
    goes_one_back = was_under_way & ~case.linked[places] & (latest >= 0)
    latest[goes_one_back] -= 1
    return np.append(launches, NONE)[latest]


def _previous(queue_of: np.ndarray) -> np.ndarray:
    """Return the operation before each one on its queue, or NONE."""
    by_queue = np.argsort(queue_of, kind="stable")
    earlier, later = by_queue[:-1], by_queue[1:]
    same_queue = queue_of[earlier] == queue_of[later]
    previous = np.full(len(queue_of), NONE)
    previous[later[same_queue]] = earlier[same_queue]
    return previous


def _recorded_waits(calls: HostCalls, queues: tuple[Queue, ...]) -> Iterator[tuple[int, int]]:
    """Give the first operation that each recorded wait holds up, and the last that it waits for."""
    queue_by_name = {queue.name: queue for queue in queues}
    for since, waiting_name, awaited_name, recorded in calls.queue_waits:
        waiting_queue = queue_by_name.get(waiting_name)
        awaited_queue = queue_by_name.get(awaited_name)
        if waiting_queue is None or awaited_queue is None:
            continue
        first_held_up = int(np.searchsorted(waiting_queue.launched, since))
        (last_awaited,) = awaited_queue.last_before(np.array([recorded])).tolist()
        if first_held_up < len(waiting_queue.operations) and last_awaited != NONE:
            yield int(waiting_queue.operations[first_held_up]), last_awaited


def _let_wait_between(calls: HostCalls, launched: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """Return whether the host let some queue wait between the launches of an operation and of the
    previous one on its queue.
    """
    lets_wait = calls.roles == ROLES.index("let a queue wait")
    times = np.sort(calls.starts[lets_wait])
    previous_launch = np.where(previous != NONE, launched[previous], UNKNOWN)
    calls_before = np.searchsorted(times, launched)
    calls_before_previous = np.searchsorted(times, previous_launch)
    return calls_before > calls_before_previous


def _one_launch_for_several_queues(launched: np.ndarray, queue_of: np.ndarray) -> np.ndarray:
    """Return whether an operation was launched at the same time as one of another queue."""
    order = np.lexsort((queue_of, launched))
    same_launch = np.diff(launched[order]) == 0
    other_queue = np.diff(queue_of[order]) != 0
    shared = launched[order[:-1][same_launch & other_queue]]
    return np.isin(launched, shared)
