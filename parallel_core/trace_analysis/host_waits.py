"""Where the host stood still: the calls that waited for operations, and for which one each of them
waited last.

Of a trace that has the host's nested calls, and links operations to them:

- A wait for a queue waits for what was launched there before it; one for a device, for all queues;
  one for an event, for what was launched before the event was recorded. Where the profiler does not
  record which queue it was, it is the one that the thread launched on last; if that one had nothing
  to wait for, that which had for longest.
- A copy that is over before its call has blocked the call: `cudaMemcpy`, and `cudaMemcpyAsync` with
  pageable memory.
- `backward` waits for the threads of autograd, and they wait for it: a thread that calls nothing
  while one of the other side is at work goes on where that one ended.

Of any other trace: the operation that ended last during the wait. The same holds for calls that
compute themselves, on a synchronous engine.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import ROLES, HostCalls
from parallel_core.trace_analysis.case_spans import CaseSpans, groups_of, union
from parallel_core.trace_analysis.waited_for import NONE, Operations, Queue, last_ended

CLOCKS_DIFFER = 10_000
"""Nanoseconds by which an operation may seem to end after the wait for it: two clocks are never
quite alike.
"""
AUTOGRAD = re.compile(r"autograd::engine::.*|(?:torch::autograd::)?\w+Backward\d*")
ANY_DEVICE = ""
"""Stands for the device of a wait of which nothing is known."""
SYNCHRONOUS = 0.9
"""If a larger share of the operations ends within the calls that launched them, calls compute
themselves.
"""
MAX_PASSES = 10
"""Calls that end after those that they began in are cut; so many in each other are."""
EARLIEST = np.iinfo(np.int64).min


class HostWaits(NamedTuple):
    """Times of threads from which the path goes on elsewhere, thread by thread in order, an entry
    in each array.
    """

    threads: np.ndarray
    times: np.ndarray
    operations: np.ndarray
    """What was waited for, or NONE where the path goes on with another thread."""
    calls: np.ndarray
    """The calls that waited, or NONE."""
    onward: np.ndarray
    """When the operation had ended, or when to go on with the other thread."""
    others: np.ndarray
    """The other threads, or NONE."""


def linked_waits(calls: HostCalls, operations: Operations) -> HostWaits:
    """Find all waits of the host for operations, and of its threads for each other. O(n log n)."""
    waits = _for_operations(calls, operations, *_waits(calls, operations))
    copies = _for_operations(calls, operations, *_blocking_copies(calls, operations))
    threads, times, others = _between_threads(calls)
    none = np.full(len(threads), NONE)
    return _in_order(waits, copies, HostWaits(threads, times, none, none, times, others))


def waits_by_time(
    case: CaseSpans, calls: HostCalls, host: np.ndarray, operations: Operations
) -> HostWaits:
    """Find the operation that ended last in each wait of the host's spans, which stand at some
    places. O(n log n).
    """
    waited = np.flatnonzero(case.waits[host])
    awaited = last_ended(operations.starts, operations.ends, calls.ends[waited])
    during = (awaited >= 0) & (operations.ends[awaited] > calls.starts[waited])
    waits = _for_operations(calls, operations, waited[during], awaited[during])

    # What begins and ends within the call that launched it was perhaps computed by that call.
    launched_by = operations.calls
    begins, ends = (np.append(times, 0)[launched_by] for times in (calls.starts, calls.ends))
    is_within = (launched_by >= 0) & (operations.starts >= begins) & (operations.ends <= ends)
    computed = np.array([], np.intp)
    if is_within.sum() > SYNCHRONOUS * len(is_within):
        computed = np.flatnonzero(is_within)
    by_calls = _for_operations(calls, operations, launched_by[computed], computed)
    return _in_order(waits, by_calls._replace(times=by_calls.onward))


def _for_operations(
    calls: HostCalls, operations: Operations, waited: np.ndarray, awaited: np.ndarray
) -> HostWaits:
    """Return the waits of some calls, each for an operation, until the calls' ends."""
    until = calls.ends[waited]
    ended = np.minimum(operations.ends[awaited], until)
    return HostWaits(
        calls.queue_of[waited], until, awaited, waited, ended, np.full(len(waited), NONE)
    )


def _in_order(*waits: HostWaits) -> HostWaits:
    """Put all waits into one, thread by thread, in the order of time."""
    joined = HostWaits(*(np.concatenate(column) for column in zip(*waits, strict=True)))
    order = np.lexsort((joined.times, joined.threads))
    return HostWaits(*(column[order] for column in joined))


def _waits(calls: HostCalls, operations: Operations) -> tuple[np.ndarray, np.ndarray]:
    """Return the calls that waited for an operation, and the operations."""
    waits = np.flatnonzero(calls.roles >= ROLES.index("wait for a device"))
    until = calls.starts[waits].copy()
    numbers = {queue.name: number for number, queue in enumerate(operations.queues)}
    preferred = _launched_on_last(calls, operations, waits)
    others: dict[str, list[int]] = defaultdict(list)
    """By device, the waits that may be for any of its queues."""
    for wait, place in enumerate(waits.tolist()):
        known = calls.known_waits.get(place)
        if known is None:
            others[ANY_DEVICE].append(wait)
            continue
        if known.recorded is not None:
            until[wait] = known.recorded
        if known.queue is not None:
            preferred[wait] = numbers.get((known.device, known.queue), NONE)
            continue
        others[known.device].append(wait)
        if operations.queues[preferred[wait]].name[0] != known.device:
            preferred[wait] = NONE
    asked = _Waits(until, calls.starts[waits], calls.ends[waits])
    best = np.full(len(waits), NONE)
    # The queue that is known, or that the thread launched on last, outdoes all others.
    for alike in groups_of(preferred):
        number = preferred[alike[0]]
        if number != NONE:
            last = operations.queues[number].last_before(until[alike])
            waited = asked.of(alike).may_be_for(operations, last)
            best[alike[waited]] = last[waited]
    for device, undecided in others.items():
        still = np.array([wait for wait in undecided if best[wait] == NONE], np.intp)
        queues = [queue for queue in operations.queues if device in (ANY_DEVICE, queue.name[0])]
        best[still] = _ended_last(operations, queues, asked.of(still))
    return waits[best >= 0], best[best >= 0]


class _Waits(NamedTuple):
    """Calls that wait for what was launched until some time; times are in nanoseconds."""

    until: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def of(self, numbers: np.ndarray) -> "_Waits":
        """Return those of some numbers."""
        return _Waits(*(column[numbers] for column in self))

    def may_be_for(self, operations: Operations, awaited: np.ndarray) -> np.ndarray:
        """Return which waits may be for an operation each, or NONE: it ended during the wait."""
        ends = operations.ends[awaited]
        ended = (self.begins < ends) & (ends <= self.ends + CLOCKS_DIFFER)
        return (awaited >= 0) & ended & (operations.starts[awaited] < self.ends)


def _ended_last(operations: Operations, queues: Sequence[Queue], waits: _Waits) -> np.ndarray:
    """Return for each wait which of the queues' last operations ended last, or NONE.

    A queue's last operation is the one of those launched until then that ends last. Of ends at one
    time, the first queue's counts. O(n log n).
    """
    order = np.argsort(waits.until, kind="stable")
    found = np.full(len(order), NONE)
    starts, begins, ends = operations.starts, waits.begins.tolist(), waits.ends.tolist()
    # A queue's last operation by the time of its end, sorted; the first queue stands last.
    by_end: list[tuple[int, int, int]] = []
    entries: dict[int, tuple[int, int, int]] = {}
    changes = _last_operations(queues, waits.until[order])
    change = next(changes, None)
    for turn, wait in enumerate(order.tolist()):
        while change is not None and change[0] == turn:
            _, number, operation = change
            if number in entries:
                del by_end[bisect_left(by_end, entries[number])]
            entries[number] = (int(operations.ends[operation]), -number, operation)
            insort(by_end, entries[number])
            change = next(changes, None)
        place = bisect_right(by_end, (ends[wait] + CLOCKS_DIFFER, 1))
        while place > 0 and by_end[place - 1][0] > begins[wait]:
            place -= 1
            operation = by_end[place][2]
            if starts[operation] < ends[wait]:
                found[wait] = operation
                break
    return found


def _last_operations(queues: Sequence[Queue], times: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Give at which of some times, in order, which queue has another last operation, and which."""
    turns, numbers, lasts = [], [], []
    for number, queue in enumerate(queues):
        turn = np.searchsorted(times, queue.launched)
        counts = (turn < len(times)) & np.append(turn[1:] > turn[:-1], True)
        turns.append(turn[counts])
        numbers.append(np.full(int(counts.sum()), number))
        lasts.append(queue.last[counts])
    if queues:
        order = np.argsort(np.concatenate(turns), kind="stable")
        columns = (np.concatenate(column)[order] for column in (turns, numbers, lasts))
        yield from zip(*(column.tolist() for column in columns), strict=True)


def _launched_on_last(calls: HostCalls, operations: Operations, waits: np.ndarray) -> np.ndarray:
    """Return the number of the queue that the thread of each wait for a queue or an event launched
    on last, or NONE.
    """
    queue_of = np.empty(len(operations.places), np.intp)
    for number, queue in enumerate(operations.queues):
        queue_of[queue.operations] = number
    launches = np.flatnonzero(operations.calls >= 0)
    threads = calls.queue_of[operations.calls[launches]]
    order = np.lexsort((operations.launched[launches], threads))
    launches, threads = launches[order], threads[order]
    launches_of = {int(threads[group[0]]): launches[group] for group in groups_of(threads)}
    last_queue = np.full(len(waits), NONE)
    of_queue = np.flatnonzero(calls.roles[waits] != ROLES.index("wait for a device"))
    for group in groups_of(calls.queue_of[waits[of_queue]]):
        asking = of_queue[group]
        of_thread = launches_of.get(int(calls.queue_of[waits[asking[0]]]))
        if of_thread is not None:
            launched = operations.launched[of_thread]
            reached = np.searchsorted(launched, calls.starts[waits[asking]]) - 1
            last_queue[asking] = np.where(reached >= 0, queue_of[of_thread[reached]], NONE)
    return last_queue


def _blocking_copies(calls: HostCalls, operations: Operations) -> tuple[np.ndarray, np.ndarray]:
    """Return the calls that copied until the copy was over, and the copies."""
    launched = np.flatnonzero(operations.calls >= 0)
    copies = launched[calls.roles[operations.calls[launched]] == ROLES.index("copy")]
    call, ends = operations.calls[copies], operations.ends[copies]
    blocked = (calls.starts[call] < ends) & (ends <= calls.ends[call])
    return call[blocked], copies[blocked]


def _between_threads(calls: HostCalls) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the threads and times where one without calls goes on with another, and the other."""
    of_autograd = np.array([AUTOGRAD.fullmatch(name) is not None for name in calls.names], bool)
    operators = calls.roles == ROLES.index("operator")
    autograd = set(np.unique(calls.queue_of[operators & of_autograd[calls.name_of]]).tolist())
    others = set(np.unique(calls.queue_of[operators]).tolist()) - autograd
    columns = [np.zeros((0, 3), np.int64)]
    if autograd and others:
        busy = _busy(calls)
        columns += _handovers(busy, autograd, others)
        columns += _handovers(busy, others, autograd)
    threads, times, continued = np.concatenate(columns).T
    return threads, times, continued


def _handovers(
    busy: Mapping[int, np.ndarray], waiting: Set[int], working: Set[int]
) -> Iterator[np.ndarray]:
    """Yield for each waiting thread where it goes on with a working one: (n, 3).

    A row has the waiting thread, the time at which the other one ended a call, and the other one.
    """
    worker_of = np.concatenate([np.full(len(busy[thread]), thread) for thread in working])
    ended = np.concatenate([busy[thread][:, 1] for thread in working])
    order = np.argsort(ended, kind="stable")
    worker_of, ended = worker_of[order], ended[order]
    for thread in waiting:
        idle_from = np.concatenate(([EARLIEST], busy[thread][:-1, 1]))
        idle_until = busy[thread][:, 0]
        last = np.searchsorted(ended, idle_until, side="right") - 1
        last = last[(last >= 0) & (ended[last] > idle_from)]
        yield np.stack((np.full(len(last), thread), ended[last], worker_of[last]), axis=1)


def _busy(calls: HostCalls) -> Mapping[int, np.ndarray]:
    """Return by threads when they were in a call, as interval sets."""
    places = np.flatnonzero(calls.roles != ROLES.index("annotation"))
    busy = {}
    for group in groups_of(calls.queue_of[places]):
        of_thread = places[group]
        times = np.stack((calls.starts[of_thread], calls.ends[of_thread]), axis=1)
        busy[int(calls.queue_of[of_thread[0]])] = union(times)
    return busy


def innermost(calls: HostCalls, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return from when on which call of a thread is the innermost one: its place, or NONE.

    `places` are those of all calls of the thread. O(n log n).
    """
    places = places[calls.ends[places] > calls.starts[places]]
    places = places[np.lexsort((-calls.ends[places], calls.starts[places]))]
    begins, ends = calls.starts[places], calls.ends[places]
    for _ in range(MAX_PASSES):
        depths, outer = _nesting(begins, ends)
        cut = np.where(outer >= 0, np.minimum(ends, ends[outer]), ends)
        if np.array_equal(cut, ends):
            break
        ends = cut
    numbers = np.arange(len(places))
    times, running = np.concatenate((begins, ends)), np.concatenate((numbers, outer))
    # At one time, ends come before begins, inner ends before outer ones, and outer begins before
    # inner ones.
    order = np.lexsort((np.concatenate((numbers, -1 - depths)), times))
    times, running = times[order], running[order]
    lasting = np.append(times[1:] > times[:-1], True)[: len(times)]
    times, running = times[lasting], running[lasting]
    return times, np.append(places, NONE)[running]


def _nesting(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many calls each one lies in, and the place of the innermost of them, or -1."""
    depths = np.arange(len(begins)) - np.searchsorted(np.sort(ends), begins, side="right")
    outer = np.full(len(begins), -1)
    above, *levels = groups_of(depths) or [np.zeros(0, np.intp)]
    for level in levels:
        before = np.searchsorted(above, level) - 1
        holds = (before >= 0) & (ends[above[before]] > begins[level])
        outer[level[holds]] = above[before[holds]]
        above = level
    return depths, outer
