"""Where the host stood still: the calls that waited for operations, and for which one each of them waited last.

- A wait for a queue waits for what was launched there before it; one for a device, for all queues; one for an event,
  for what was launched before the event was recorded. Where the profiler does not record which queue it was, it is the
  one that the thread launched on last; if that one had nothing to wait for, that which had for longest.
- A copy that is over before its call has blocked the call: `cudaMemcpy`, and `cudaMemcpyAsync` with pageable memory.
- `backward` waits for the threads of autograd, and they wait for it: a thread that calls nothing while one of the other
  side is at work goes on where that one ended.
"""

import re
from dataclasses import dataclass

import numpy as np

from backends.profiling.timeline import ROLES, HostCalls
from parallel_core.trace_analysis.interval_sets import union
from parallel_core.trace_analysis.linked_path.host_threads import HostThreads
from parallel_core.trace_analysis.linked_path.operations import NONE, Operations

__all__ = ["HostWaits", "host_waits"]

CLOCKS_DIFFER = 10_000
"""Nanoseconds by which an operation may seem to end after the wait for it: two clocks are never quite alike."""
AUTOGRAD = re.compile(r"autograd::engine::.*|(?:torch::autograd::)?\w+Backward\d*")


@dataclass(frozen=True, eq=False)
class HostWaits:
    """Places on the axis of threads from which the path goes on elsewhere, in order; the arrays have an entry each."""

    places: np.ndarray
    operations: np.ndarray
    """What was waited for, or NONE where the path goes on with another thread."""
    calls: np.ndarray
    """The calls that waited, or NONE."""
    onward: np.ndarray
    """When the operation had ended; for another thread, the place on the axis."""


def host_waits(calls: HostCalls, operations: Operations, threads: HostThreads) -> HostWaits:
    """Find all waits of the host for operations, and of its threads for each other. O(n log n)."""
    found = [_waits(calls, operations), _blocking_copies(calls, operations)]
    waited = np.concatenate([places for places, _ in found])
    awaited = np.concatenate([operation for _, operation in found])
    ended = np.minimum(operations.ends[awaited], calls.ends[waited])
    here, there = _between_threads(calls, threads)
    nothing = np.full(len(here), NONE)
    places = np.concatenate((threads.on_axis(calls.queue_of[waited], calls.ends[waited]), here))
    order = np.argsort(places, kind="stable")
    return HostWaits(
        places[order],
        np.concatenate((awaited, nothing))[order],
        np.concatenate((waited, nothing))[order],
        np.concatenate((ended, there))[order],
    )


def _waits(calls: HostCalls, operations: Operations) -> tuple[np.ndarray, np.ndarray]:
    waits = np.flatnonzero(calls.roles >= ROLES.index("wait for a device"))
    begins, ends = calls.starts[waits], calls.ends[waits]
    known = [calls.known_waits.get(place) for place in waits.tolist()]
    until = np.array(
        [
            begin if one is None or one.recorded is None else one.recorded
            for one, begin in zip(known, begins, strict=True)
        ],
        dtype=np.int64,
    )
    best, best_end, preferred = np.full(len(waits), NONE), begins.copy(), _launched_on_last(calls, operations, waits)
    for number, queue in enumerate(operations.queues):
        possible = np.array(
            [one is None or (one.device == queue.name[0] and one.queue in (None, queue.name[1])) for one in known], bool
        )
        last = queue.last_before(until)
        end = np.where(last >= 0, operations.ends[last], begins)
        waited = possible & (last >= 0) & (begins < end) & (end <= ends + CLOCKS_DIFFER)
        waited &= operations.starts[last] < ends
        # Its own thread's queue outdoes all others.
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


def _between_threads(calls: HostCalls, threads: HostThreads) -> tuple[np.ndarray, np.ndarray]:
    """Return the places on the axis where a thread without calls goes on with another, and the places there."""
    of_autograd = np.array([AUTOGRAD.fullmatch(name) is not None for name in calls.names], bool)
    operators = calls.roles == ROLES.index("operator")
    autograd = set(np.unique(calls.queue_of[operators & of_autograd[calls.name_of]]).tolist())
    others = set(np.unique(calls.queue_of[operators]).tolist()) - autograd
    here: list[np.ndarray] = []
    there: list[np.ndarray] = []
    busy = {thread: _busy(calls, thread) for thread in autograd | others} if autograd and others else {}
    for side, opposite in ((autograd, others), (others, autograd)):
        ends = [(np.full(len(busy[one]), one), busy[one][:, 1]) for one in opposite if busy]
        if not ends:
            continue
        thread_of, ended = (np.concatenate(arrays) for arrays in zip(*ends, strict=True))
        order = np.argsort(ended, kind="stable")
        thread_of, ended = thread_of[order], ended[order]
        for thread in side:
            idle_from = np.concatenate(([np.iinfo(np.int64).min], busy[thread][:-1, 1]))
            idle_until = busy[thread][:, 0]
            last = np.searchsorted(ended, idle_until, side="right") - 1
            waits = (last >= 0) & (ended[last] > idle_from)
            times = ended[last[waits]]
            here.append(threads.on_axis(thread, times))
            there.append(threads.on_axis(thread_of[last[waits]], times))
    empty = np.array([], np.int64)
    return np.concatenate([empty, *here]), np.concatenate([empty, *there])


def _busy(calls: HostCalls, thread: int) -> np.ndarray:
    own = (calls.queue_of == thread) & (calls.roles != ROLES.index("annotation"))
    return union(np.stack((calls.starts[own], calls.ends[own]), axis=1))
