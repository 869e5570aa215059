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
    """The places of the calls that launched them, or NONE; `before` likewise, of operations."""
    before: np.ndarray
    launched: np.ndarray
    """When they began, if the launch is not known; with `queues`, of only linked operations."""
    queues: tuple[Queue, ...] = ()


def linked_operations(case: CaseSpans, calls: HostCalls) -> Operations:
    """Find what each operation of a case waited for. O(n log n)."""
    places = np.flatnonzero(case.operations & (case.lengths > 0))
    spans, launched = case.spans.select(places), case.since[places]
    starts, ends, queue_of = spans.starts, spans.ends, spans.queue_of
    queues = tuple(
        _queue(spans.queues[queue_of[own[0]]], own, spans.launched, ends)
        for own in groups_of(queue_of)
    )
    launched_by = np.where(case.linked[places], _launched_by(calls, launched), NONE)
    previous = _previous(queue_of)
    previous[starts[previous] == starts] = NONE
    earlier = np.where(previous >= 0, ends[previous], UNKNOWN)
    # What has no call to go on with goes on with what came before it.
    before = np.where((earlier > launched) | (launched_by == NONE), previous, NONE)
    since = np.where(before >= 0, earlier, launched)
    for operation, awaited in _recorded_waits(calls, queues):
        if max(since[operation], starts[awaited]) < ends[awaited] <= starts[operation]:
            before[operation], since[operation] = awaited, ends[awaited]
    may_wait = _one_launch_for_several_queues(launched, queue_of)
    if not calls.queue_waits:
        may_wait |= _let_wait_between(calls, launched, previous)
    # An operation that was launched in vain does not wait for a call either, so that counts from
    # its end.
    called = np.minimum(np.append(calls.ends, UNKNOWN)[launched_by], starts)
    held = np.where(before >= 0, since, called)
    may_wait |= (before == NONE) & (launched_by == NONE)
    for own in groups_of(case.device_of[places]):
        waiting = own[may_wait[own]]
        last = last_ended(starts[own], ends[own], starts[waiting])
        awaited = own[last]
        waits = (
            (last >= 0) & (ends[awaited] > held[waiting]) & (launched[awaited] <= launched[waiting])
        )
        waits &= awaited != waiting
        before[waiting[waits]] = awaited[waits]
    return Operations(places, starts, ends, launched_by, before, launched, queues)


def operations_by_time(case: CaseSpans, host: np.ndarray) -> Operations:
    """Find what may have delayed each operation of a case whose host's spans are at some places.
    O(n log n).
    """
    places = np.flatnonzero(case.operations & (case.lengths > 0))
    spans = case.spans.select(places)
    starts, ends = spans.starts, spans.ends
    calls = _last_launch(case, places, host[~case.waits[host]])
    before = last_ended(starts, ends, starts)
    ended = np.where(before >= 0, ends[before], UNKNOWN)
    called = np.where(calls >= 0, np.minimum(case.spans.ends[calls], starts), UNKNOWN)
    before[called > ended] = NONE
    ended = np.maximum(ended, called)
    previous = _previous(spans.queue_of)
    alike = (
        (previous >= 0) & (ends[previous] <= starts) & (ends[previous] >= ended - case.resolution)
    )
    before[alike] = previous[alike]
    launched_by = np.where(calls >= 0, np.searchsorted(host, calls), NONE)
    return Operations(places, starts, ends, launched_by, before, starts)


def last_ended(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return which of some operations ended last until each of some times, or NONE."""
    by_end = np.lexsort((starts, ends))
    reached = np.searchsorted(ends[by_end], times, side="right") - 1
    return np.append(by_end, NONE)[reached]


def _queue(name: tuple[str, str], own: np.ndarray, launched: np.ndarray, ends: np.ndarray) -> Queue:
    # A queue keeps the order: what has no known launch was launched after what came before it, at
    # the earliest.
    launched = np.where(
        launched[own] == UNKNOWN, np.maximum.accumulate(launched[own]), launched[own]
    )
    order = np.argsort(launched, kind="stable")
    own, launched = own[order], launched[order]
    latest = np.maximum.accumulate(ends[own])
    leads = np.flatnonzero(ends[own] == latest)
    last = own[leads[np.searchsorted(leads, np.arange(len(own)), side="right") - 1]]
    return Queue(name, launched, own, last)


def _launched_by(calls: HostCalls, launched: np.ndarray) -> np.ndarray:
    runtime = np.flatnonzero(calls.roles >= ROLES.index("call"))
    if len(runtime) == 0:
        return np.full(len(launched), NONE)
    # Of calls that begin together the shortest is the innermost.
    runtime = runtime[np.lexsort((-calls.ends[runtime], calls.starts[runtime]))]
    found = runtime[np.searchsorted(calls.starts[runtime], launched, side="right") - 1]
    return np.where(calls.starts[found] == launched, found, NONE)


def _last_launch(case: CaseSpans, places: np.ndarray, launches: np.ndarray) -> np.ndarray:
    """Return the place of the call that launched each operation, or of the last that was over, or
    NONE.
    """
    starts, ends = case.spans.starts, case.spans.ends
    begins = starts[places]
    nearest = (
        np.searchsorted(starts[launches], np.minimum(case.since[places], begins), side="right") - 1
    )
    if len(launches):
        called = ends[launches[nearest]]
        # A call that was under way and ended before the operation need not have launched it.
        under_way = ~case.linked[places] & (called > begins) & (called < ends[places])
        nearest = np.maximum(nearest - under_way, NONE)
    return np.append(launches, NONE)[nearest]


def _previous(queue_of: np.ndarray) -> np.ndarray:
    """Return the operation before each one on its queue, or NONE."""
    order = np.argsort(queue_of, kind="stable")
    previous = np.full(len(queue_of), NONE)
    follows = queue_of[order[1:]] == queue_of[order[:-1]]
    previous[order[1:][follows]] = order[:-1][follows]
    return previous


def _recorded_waits(calls: HostCalls, queues: tuple[Queue, ...]) -> Iterator[tuple[int, int]]:
    """Give the first operation that each recorded wait holds up, and the last that it waits for."""
    named = {queue.name: queue for queue in queues}
    for since, waiting, awaited, recorded in calls.queue_waits:
        if waiting in named and awaited in named:
            first = int(np.searchsorted(named[waiting].launched, since))
            last = int(named[awaited].last_before(np.array([recorded]))[0])
            if first < len(named[waiting].operations) and last != NONE:
                yield int(named[waiting].operations[first]), last


def _let_wait_between(calls: HostCalls, launched: np.ndarray, previous: np.ndarray) -> np.ndarray:
    let_wait = np.sort(calls.starts[calls.roles == ROLES.index("let a queue wait")])
    before = np.where(previous >= 0, launched[previous], UNKNOWN)
    return np.searchsorted(let_wait, launched) > np.searchsorted(let_wait, before)


def _one_launch_for_several_queues(launched: np.ndarray, queue_of: np.ndarray) -> np.ndarray:
    order = np.lexsort((queue_of, launched))
    several = np.flatnonzero((np.diff(launched[order]) == 0) & (np.diff(queue_of[order]) != 0))
    return np.isin(launched, launched[order[several]])
