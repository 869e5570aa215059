"""Where the host stood still: the calls that waited for operations, and for which one each of them waited last.

Of a trace that has the host's nested calls, and links operations to them:

- A wait for a queue waits for what was launched there before it; one for a device, for all queues; one for an event,
  for what was launched before the event was recorded. Where the profiler does not record which queue it was, it is the
  one that the thread launched on last; if that one had nothing to wait for, that which had for longest.
- A copy that is over before its call has blocked the call: `cudaMemcpy`, and `cudaMemcpyAsync` with pageable memory.
- `backward` waits for the threads of autograd, and they wait for it: a thread that calls nothing while one of the other
  side is at work goes on where that one ended.

Of any other trace: the operation that ended last during the wait. The same holds for calls that compute themselves, on
a synchronous engine.
"""

import re
from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import ROLES, HostCalls
from parallel_core.trace_analysis.case_spans import CaseSpans, union
from parallel_core.trace_analysis.waited_for import NONE, Operations, last_ended

CLOCKS_DIFFER = 10_000
"""Nanoseconds by which an operation may seem to end after the wait for it: two clocks are never quite alike."""
AUTOGRAD = re.compile(r"autograd::engine::.*|(?:torch::autograd::)?\w+Backward\d*")
SYNCHRONOUS = 0.9
"""If a larger share of the operations ends within the calls that launched them, calls compute themselves."""
MAX_PASSES = 10
"""Calls that end after those that they began in are cut; so many in each other are."""


class HostWaits(NamedTuple):
    """Times of threads from which the path goes on elsewhere, thread by thread in order, an entry in each array."""

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
    found = (_waits(calls, operations), _blocking_copies(calls, operations))
    here, times, there = _between_threads(calls)
    none = np.full(len(here), NONE)
    of_threads = HostWaits(here, times, none, none, times, there)
    return _in_order(*(_for_operations(calls, operations, *one) for one in found), of_threads)


def waits_by_time(case: CaseSpans, calls: HostCalls, host: np.ndarray, operations: Operations) -> HostWaits:
    """Find the operation that ended last in each wait of the host's spans, which stand at some places. O(n log n)."""
    waited = np.flatnonzero(case.waits[host])
    awaited = last_ended(operations.starts, operations.ends, calls.ends[waited])
    during = (awaited >= 0) & (operations.ends[awaited] > calls.starts[waited])
    waited, awaited = waited[during], awaited[during]
    call = operations.calls
    begins, ends = np.append(calls.starts, 0)[call], np.append(calls.ends, 0)[call]
    within = (call >= 0) & (operations.starts >= begins) & (operations.ends <= ends)
    computed = np.flatnonzero(within) if within.sum() > SYNCHRONOUS * len(within) else np.array([], np.intp)
    own = _for_operations(calls, operations, call[computed], computed)
    return _in_order(_for_operations(calls, operations, waited, awaited), own._replace(times=own.onward))


def _for_operations(calls: HostCalls, operations: Operations, waited: np.ndarray, awaited: np.ndarray) -> HostWaits:
    until = calls.ends[waited]
    ended = np.minimum(operations.ends[awaited], until)
    return HostWaits(calls.queue_of[waited], until, awaited, waited, ended, np.full(len(waited), NONE))


def _in_order(*found: HostWaits) -> HostWaits:
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    order = np.lexsort((columns[1], columns[0]))
    return HostWaits(*(column[order] for column in columns))


def _waits(calls: HostCalls, operations: Operations) -> tuple[np.ndarray, np.ndarray]:
    waits = np.flatnonzero(calls.roles >= ROLES.index("wait for a device"))
    begins, ends = calls.starts[waits], calls.ends[waits]
    known = [calls.known_waits.get(place) for place in waits.tolist()]
    until = begins.copy()
    for number, one in enumerate(known):
        if one is not None and one.recorded is not None:
            until[number] = one.recorded
    best, best_end, preferred = np.full(len(waits), NONE), begins.copy(), _launched_on_last(calls, operations, waits)
    for number, queue in enumerate(operations.queues):
        possible = np.array(
            [one is None or (one.device == queue.name[0] and one.queue in (None, queue.name[1])) for one in known], bool
        )
        last = queue.last_before(until)
        end = np.where(last >= 0, operations.ends[last], begins)
        waited = possible & (last >= 0) & (begins < end) & (end <= ends + CLOCKS_DIFFER)
        waited &= operations.starts[last] < ends
        # Its own thread's queue outdoes all other queues.
        better = waited & ((preferred == number) | (end > best_end))
        best[better], best_end[better] = last[better], end[better]
        best_end[better & (preferred == number)] = np.iinfo(np.int64).max
    return waits[best >= 0], best[best >= 0]


def _launched_on_last(calls: HostCalls, operations: Operations, waits: np.ndarray) -> np.ndarray:
    """Return the number of the queue that the thread of each wait for a queue or an event launched on last, or NONE."""
    queue_of = np.empty(len(operations.places), np.intp)
    for number, queue in enumerate(operations.queues):
        queue_of[queue.operations] = number
    launches = np.flatnonzero(operations.calls >= 0)
    threads = calls.queue_of[operations.calls[launches]]
    order = np.lexsort((operations.launched[launches], threads))
    launches, threads = launches[order], threads[order]
    found = np.full(len(waits), NONE)
    of_queue = calls.roles[waits] != ROLES.index("wait for a device")
    for thread in np.unique(threads):
        own = launches[threads == thread]
        asking = np.flatnonzero(of_queue & (calls.queue_of[waits] == thread))
        reached = np.searchsorted(operations.launched[own], calls.starts[waits[asking]]) - 1
        found[asking] = np.where(reached >= 0, queue_of[own[reached]], NONE)
    return found


def _blocking_copies(calls: HostCalls, operations: Operations) -> tuple[np.ndarray, np.ndarray]:
    own = np.flatnonzero(operations.calls >= 0)
    own = own[calls.roles[operations.calls[own]] == ROLES.index("copy")]
    call = operations.calls[own]
    blocked = (operations.ends[own] > calls.starts[call]) & (operations.ends[own] <= calls.ends[call])
    return call[blocked], own[blocked]


def _between_threads(calls: HostCalls) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the threads and times where one without calls goes on with another, and the other."""
    of_autograd = np.array([AUTOGRAD.fullmatch(name) is not None for name in calls.names], bool)
    operators = calls.roles == ROLES.index("operator")
    autograd = set(np.unique(calls.queue_of[operators & of_autograd[calls.name_of]]).tolist())
    others = set(np.unique(calls.queue_of[operators]).tolist()) - autograd
    found = [np.zeros((0, 3), np.int64)]
    busy = {thread: _busy(calls, thread) for thread in autograd | others} if autograd and others else {}
    for side, opposite in ((autograd, others), (others, autograd)) if busy else ():
        thread_of = np.concatenate([np.full(len(busy[one]), one) for one in opposite])
        ended = np.concatenate([busy[one][:, 1] for one in opposite])
        order = np.argsort(ended, kind="stable")
        thread_of, ended = thread_of[order], ended[order]
        for thread in side:
            idle_from = np.concatenate(([np.iinfo(np.int64).min], busy[thread][:-1, 1]))
            idle_until = busy[thread][:, 0]
            last = np.searchsorted(ended, idle_until, side="right") - 1
            last = last[(last >= 0) & (ended[last] > idle_from)]
            found.append(np.stack((np.full(len(last), thread), ended[last], thread_of[last]), axis=1))
    here, times, there = np.concatenate(found).T
    return here, times, there


def _busy(calls: HostCalls, thread: int) -> np.ndarray:
    own = (calls.queue_of == thread) & (calls.roles != ROLES.index("annotation"))
    return union(np.stack((calls.starts[own], calls.ends[own]), axis=1))


def innermost(calls: HostCalls, thread: int) -> tuple[np.ndarray, np.ndarray]:
    """Return from when on which call of a thread is the innermost one: its place, or NONE. O(n log n)."""
    places = np.flatnonzero((calls.queue_of == thread) & (calls.ends > calls.starts))
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
    # At one time, ends come before begins, inner ends before outer ones, and outer begins before inner ones.
    order = np.lexsort((np.concatenate((numbers, -1 - depths)), times))
    times, running = times[order], running[order]
    lasting = np.append(times[1:] > times[:-1], True)[: len(times)]
    times, running = times[lasting], running[lasting]
    return times, np.append(places, NONE)[running]


def _nesting(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many calls each one lies in, and the place of the innermost of them, or -1."""
    depths = np.arange(len(begins)) - np.searchsorted(np.sort(ends), begins, side="right")
    outer = np.full(len(begins), -1)
    above = np.flatnonzero(depths == 0)
    for depth in range(1, int(depths.max(initial=0)) + 1):
        level = np.flatnonzero(depths == depth)
        before = np.searchsorted(above, level) - 1
        holds = (before >= 0) & (ends[above[before]] > begins[level])
        outer[level[holds]] = above[before[holds]]
        above = level
    return depths, outer
