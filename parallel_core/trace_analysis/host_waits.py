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
from itertools import pairwise
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
"""How often calls are cut that end after those that they began in."""
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
    waiting, awaited = _waits(calls, operations)
    copying, copies = _blocking_copies(calls, operations)
    return _in_order(
        _for_operations(calls, operations, waiting, awaited),
        _for_operations(calls, operations, copying, copies),
        _between_threads(calls),
    )


def waits_by_time(
    case: CaseSpans, calls: HostCalls, host: np.ndarray, operations: Operations
) -> HostWaits:
    """Find the operation that ended last in each wait of the host. O(n log n).

    `host` are the places of the host's spans in the case, and `calls` are the same spans.
    """
    waiting = np.flatnonzero(case.waits[host])
    awaited = last_ended(operations.starts, operations.ends, calls.ends[waiting])
    ended_meanwhile = (awaited != NONE) & (operations.ends[awaited] > calls.starts[waiting])
    waits = _for_operations(calls, operations, waiting[ended_meanwhile], awaited[ended_meanwhile])

    # What begins and ends within the call that launched it was perhaps computed by that call.
    launched_by = operations.calls
    # The last entry is for operations whose call is NONE.
    call_start = np.append(calls.starts, 0)[launched_by]
    call_end = np.append(calls.ends, 0)[launched_by]
    starts_within = (launched_by != NONE) & (operations.starts >= call_start)
    is_within = starts_within & (operations.ends <= call_end)
    computed = np.array([], np.intp)
    if is_within.sum() > SYNCHRONOUS * len(is_within):
        computed = np.flatnonzero(is_within)
    by_calls = _for_operations(calls, operations, launched_by[computed], computed)
    return _in_order(waits, by_calls._replace(times=by_calls.onward))


def _for_operations(
    calls: HostCalls, operations: Operations, waiting: np.ndarray, awaited: np.ndarray
) -> HostWaits:
    """Return the waits of some calls, each for an operation, until the calls' ends."""
    until = calls.ends[waiting]
    return HostWaits(
        threads=calls.queue_of[waiting],
        times=until,
        operations=awaited,
        calls=waiting,
        onward=np.minimum(operations.ends[awaited], until),
        others=np.full(len(waiting), NONE),
    )


def _in_order(*waits: HostWaits) -> HostWaits:
    """Put all waits into one, thread by thread, in the order of time."""
    joined = HostWaits(*map(np.concatenate, zip(*waits, strict=True)))
    order = np.lexsort((joined.times, joined.threads))
    return HostWaits(*(column[order] for column in joined))


def _waits(calls: HostCalls, operations: Operations) -> tuple[np.ndarray, np.ndarray]:
    """Return the calls that waited for an operation, and the operations."""
    places = np.flatnonzero(calls.roles >= ROLES.index("wait for a device"))
    until = calls.starts[places].copy()
    preferred_queue = _launched_on_last(calls, operations, places)
    queue_numbers = {queue.name: number for number, queue in enumerate(operations.queues)}
    for_any_queue: dict[str, list[int]] = defaultdict(list)
    """By device, the waits that may be for any of its queues."""
    for wait, place in enumerate(places.tolist()):
        known_wait = calls.known_waits.get(place)
        if known_wait is None:
            for_any_queue[ANY_DEVICE].append(wait)
            continue
        device, queue = known_wait.device, known_wait.queue
        if known_wait.recorded is not None:
            until[wait] = known_wait.recorded
        if queue is not None:
            preferred_queue[wait] = queue_numbers.get((device, queue), NONE)
            continue
        for_any_queue[device].append(wait)
        preferred_device, _ = operations.queues[preferred_queue[wait]].name
        if preferred_device != device:
            preferred_queue[wait] = NONE

    waits = _Waits(until, calls.starts[places], calls.ends[places])
    awaited = np.full(len(places), NONE)
    # The queue that is known, or that the thread launched on last, outdoes all others.
    for same_queue in groups_of(preferred_queue):
        number = preferred_queue[same_queue[0]]
        if number == NONE:
            continue
        last = operations.queues[number].last_before(until[same_queue])
        has_waited = waits.select(same_queue).may_be_for(operations, last)
        awaited[same_queue[has_waited]] = last[has_waited]
    for device, waits_on_device in for_any_queue.items():
        undecided = np.array([wait for wait in waits_on_device if awaited[wait] == NONE], np.intp)
        queues = [queue for queue in operations.queues if device in (ANY_DEVICE, queue.name[0])]
        awaited[undecided] = _ended_last(operations, queues, waits.select(undecided))
    has_waited = awaited != NONE
    return places[has_waited], awaited[has_waited]


class _Waits(NamedTuple):
    """Calls that wait for what was launched until some time; times are in nanoseconds."""

    until: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def select(self, numbers: np.ndarray) -> "_Waits":
        """Return those of some numbers."""
        return _Waits(*(column[numbers] for column in self))

    def may_be_for(self, operations: Operations, awaited: np.ndarray) -> np.ndarray:
        """Return whether each wait may be for its operation, which is one or NONE.

        It may if the operation ended during the wait.
        """
        ends = operations.ends[awaited]
        ended_meanwhile = (self.begins < ends) & (ends <= self.ends + CLOCKS_DIFFER)
        had_begun = operations.starts[awaited] < self.ends
        return (awaited != NONE) & ended_meanwhile & had_begun


def _ended_last(operations: Operations, queues: Sequence[Queue], waits: _Waits) -> np.ndarray:
    """Return for each wait which of the queues' last operations ended last, or NONE.

    A queue's last operation is the one of those launched until then that ends last. Of ends at one
    time, the first queue's counts. O(n log n).
    """
    by_time = np.argsort(waits.until, kind="stable")
    awaited = np.full(len(by_time), NONE)
    starts, begins, ends = operations.starts, waits.begins.tolist(), waits.ends.tolist()
    changes = _last_operations(queues, waits.until[by_time])
    changed_queues, changed_to = changes.queues.tolist(), changes.operations.tolist()
    bounds = np.searchsorted(changes.times, np.arange(len(by_time) + 1)).tolist()

    # The queues' last operations: (end, minus the queue's number, operation), sorted.
    by_end: list[tuple[int, int, int]] = []
    entry_of_queue: dict[int, tuple[int, int, int]] = {}
    for turn, wait in enumerate(by_time.tolist()):
        for change in range(bounds[turn], bounds[turn + 1]):
            queue, operation = changed_queues[change], changed_to[change]
            if queue in entry_of_queue:
                del by_end[bisect_left(by_end, entry_of_queue[queue])]
            entry = (int(operations.ends[operation]), -queue, operation)
            insort(by_end, entry)
            entry_of_queue[queue] = entry

        # Of those that ended during the wait, the last one that had begun before the wait ended.
        behind_all_at_that_time = (ends[wait] + CLOCKS_DIFFER, 1)
        position = bisect_right(by_end, behind_all_at_that_time) - 1
        while position >= 0:
            end, _, operation = by_end[position]
            if end <= begins[wait]:
                break
            if starts[operation] < ends[wait]:
                awaited[wait] = operation
                break
            position -= 1
    return awaited


class _Changes(NamedTuple):
    """From when on queues have another last operation, in the order of time; an entry for each in
    all arrays.
    """

    times: np.ndarray
    """By the places of the times that were asked for."""
    queues: np.ndarray
    """The numbers of the queues."""
    operations: np.ndarray
    """Their last operations from then on."""


def _last_operations(queues: Sequence[Queue], times: np.ndarray) -> _Changes:
    """Return at which of some times, in order, queues have another last operation."""
    changes_by_queue = [_Changes(*np.zeros((3, 0), np.int64))]
    for number, queue in enumerate(queues):
        first_time = np.searchsorted(times, queue.launched)
        # Of several launches between two times, the latest counts.
        is_latest = np.append(first_time[1:] > first_time[:-1], True)
        counts = (first_time < len(times)) & is_latest
        numbers = np.full(int(counts.sum()), number)
        changes_by_queue.append(_Changes(first_time[counts], numbers, queue.last[counts]))
    changes = _Changes(*map(np.concatenate, zip(*changes_by_queue, strict=True)))
    order = np.argsort(changes.times, kind="stable")
    return _Changes(*(column[order] for column in changes))


def _launched_on_last(calls: HostCalls, operations: Operations, waits: np.ndarray) -> np.ndarray:
    """Return the number of the queue that the thread of each wait for a queue or an event launched
    on last, or NONE.
    """
    queue_of = np.empty(len(operations.places), np.intp)
    for number, queue in enumerate(operations.queues):
        queue_of[queue.operations] = number

    # The operations that each thread launched, in the order of their launches.
    launched = np.flatnonzero(operations.calls != NONE)
    threads = calls.queue_of[operations.calls[launched]]
    order = np.lexsort((operations.launched[launched], threads))
    launched, threads = launched[order], threads[order]
    launched_by_thread = {
        int(threads[same_thread[0]]): launched[same_thread] for same_thread in groups_of(threads)
    }

    last_queue = np.full(len(waits), NONE)
    not_for_device = np.flatnonzero(calls.roles[waits] != ROLES.index("wait for a device"))
    waiting_threads = calls.queue_of[waits]
    for same_thread in groups_of(waiting_threads[not_for_device]):
        numbers = not_for_device[same_thread]
        by_thread = launched_by_thread.get(int(waiting_threads[numbers[0]]))
        if by_thread is None:
            continue
        wait_starts = calls.starts[waits[numbers]]
        latest = np.searchsorted(operations.launched[by_thread], wait_starts) - 1
        last_queue[numbers] = np.where(latest >= 0, queue_of[by_thread[latest]], NONE)
    return last_queue


def _blocking_copies(calls: HostCalls, operations: Operations) -> tuple[np.ndarray, np.ndarray]:
    """Return the calls that copied until the copy was over, and the copies."""
    launched = np.flatnonzero(operations.calls != NONE)
    roles = calls.roles[operations.calls[launched]]
    copies = launched[roles == ROLES.index("copy")]
    copying, ends = operations.calls[copies], operations.ends[copies]
    blocked = (calls.starts[copying] < ends) & (ends <= calls.ends[copying])
    return copying[blocked], copies[blocked]


def _between_threads(calls: HostCalls) -> HostWaits:
    """Return where a thread without calls goes on with another one."""
    names_autograd = np.array([AUTOGRAD.fullmatch(name) is not None for name in calls.names], bool)
    is_operator = calls.roles == ROLES.index("operator")
    is_of_autograd = is_operator & names_autograd[calls.name_of]
    autograd_threads = set(np.unique(calls.queue_of[is_of_autograd]).tolist())
    other_threads = set(np.unique(calls.queue_of[is_operator]).tolist()) - autograd_threads
    handovers = [np.zeros((0, 3), np.int64)]
    if autograd_threads and other_threads:
        busy = _busy(calls)
        handovers += _handovers(busy, autograd_threads, other_threads)
        handovers += _handovers(busy, other_threads, autograd_threads)
    threads, times, others = np.concatenate(handovers).T
    none = np.full(len(threads), NONE)
    return HostWaits(threads, times, operations=none, calls=none, onward=times, others=others)


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
        latest = np.searchsorted(ended, idle_until, side="right") - 1
        ended_meanwhile = (latest >= 0) & (ended[latest] > idle_from)
        latest = latest[ended_meanwhile]
        yield np.stack((np.full(len(latest), thread), ended[latest], worker_of[latest]), axis=1)


def _busy(calls: HostCalls) -> Mapping[int, np.ndarray]:
    """Return by threads when they were in a call, as interval sets."""
    places = np.flatnonzero(calls.roles != ROLES.index("annotation"))
    busy = {}
    for same_thread in groups_of(calls.queue_of[places]):
        on_thread = places[same_thread]
        times = np.stack((calls.starts[on_thread], calls.ends[on_thread]), axis=1)
        busy[int(calls.queue_of[on_thread[0]])] = union(times)
    return busy


def innermost(calls: HostCalls, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times in order, and the place of a thread's innermost call from each on, or NONE.

    `places` are those of all calls of the thread. O(n log n).
    """
    places = places[calls.ends[places] > calls.starts[places]]
    # By their start; of those that begin together, outer ones come before inner ones.
    places = places[np.lexsort((-calls.ends[places], calls.starts[places]))]
    begins, ends = calls.starts[places], calls.ends[places]
    # A call that ends after the one around it is cut at that one's end, which may change what is
    # around others.
    for _ in range(MAX_PASSES):
        depths, outer = _nesting(begins, ends)
        cut_ends = np.where(outer != NONE, np.minimum(ends, ends[outer]), ends)
        if np.array_equal(cut_ends, ends):
            break
        ends = cut_ends

    # Where a call begins, it is the innermost one; where it ends, the one around it is.
    numbers = np.arange(len(places))
    times, running = np.concatenate((begins, ends)), np.concatenate((numbers, outer))
    # At one time, ends come before begins, inner ends before outer ones, and outer begins before
    # inner ones.
    rank = np.concatenate((numbers, -1 - depths))
    order = np.lexsort((rank, times))
    times, running = times[order], running[order]
    # Of several changes at one time the last one counts.
    is_last = np.append(times[1:] > times[:-1], True)[: len(times)]
    times, running = times[is_last], running[is_last]
    return times, np.append(places, NONE)[running]


def _nesting(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many calls each one lies in, and the place of the innermost of them, or NONE."""
    # In those that began before it and have not ended.
    ended = np.searchsorted(np.sort(ends), begins, side="right")
    depths = np.arange(len(begins)) - ended
    outer = np.full(len(begins), NONE)
    for above, level in pairwise(groups_of(depths)):
        before = np.searchsorted(above, level) - 1
        is_inside = (before >= 0) & (ends[above[before]] > begins[level])
        outer[level[is_inside]] = above[before[is_inside]]
    return depths, outer
