"""Which of the host's nested calls runs at a time: the innermost one of each thread, as stretches of time.

All threads lie on one axis, one behind the other, so that one search serves them all.
"""

from dataclasses import dataclass

import numpy as np

from backends.profiling.timeline import HostCalls

__all__ = ["NO_CALL", "HostThreads", "host_threads"]

NO_CALL = -1
"""Stands for a call where a thread does what the profiler does not record, in Python mostly."""
MAX_PASSES = 10
"""Calls that end after those that they began in are cut; so many in each other are."""


@dataclass(frozen=True, eq=False)
class HostThreads:
    """Stretches of all threads in the order of the axis; a stretch lasts until the next one begins."""

    begins: np.ndarray
    calls: np.ndarray
    """Places of calls, or NO_CALL."""
    first: int
    length: int
    """Of a thread's part of the axis; its own times begin at `first`."""

    def on_axis(self, thread: np.ndarray | int, times: np.ndarray | int) -> np.ndarray:
        """Return the places on the axis of times of a thread, or of one each; those beyond its part are cut."""
        return np.asarray(thread, dtype=np.int64) * self.length + np.clip(
            np.asarray(times) - self.first, 0, self.length - 1
        )

    def off_axis(self, place: int) -> tuple[int, int]:
        """Return the thread, and the time on it, of a place on the axis."""
        thread, time = divmod(place, self.length)
        return thread, time + self.first


def host_threads(calls: HostCalls, start: int, end: int) -> HostThreads:
    """Find the innermost calls at all times from `start` to `end`, which all calls are cut to. O(n log n)."""
    first, length = start, end - start + 2
    axis = HostThreads(np.array([], np.int64), np.array([], np.int64), first, length)
    begins, ends = axis.on_axis(calls.queue_of, calls.starts), axis.on_axis(calls.queue_of, calls.ends)
    places = np.flatnonzero(ends > begins)
    places = places[np.lexsort((-ends[places], begins[places]))]
    begins, ends = begins[places], ends[places]
    for _ in range(MAX_PASSES):
        depths, outer = _nesting(begins, ends)
        cut = np.where(outer >= 0, np.minimum(ends, ends[outer]), ends)
        if np.array_equal(cut, ends):
            break
        ends = cut
    numbers = np.arange(len(places))
    times = np.concatenate((begins, ends))
    running = np.concatenate((numbers, outer))
    # At one time, ends come before begins, inner ends before outer ones, and outer begins before inner ones.
    order = np.lexsort((np.concatenate((numbers, -1 - depths)), times))
    times, running = times[order], running[order]
    lasting = np.append(times[1:] > times[:-1], True) if len(times) else np.array([], bool)
    times, running = times[lasting], running[lasting]
    innermost = np.where(running >= 0, places[running] if len(places) else NO_CALL, NO_CALL)
    return HostThreads(times, innermost, first, length)


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
