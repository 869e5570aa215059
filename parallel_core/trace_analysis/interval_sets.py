"""Arithmetic of time intervals: the times that spans cover together, both, or not at all.

An interval set is an array (n, 2) of int64, starts and ends in nanoseconds: sorted, disjoint, not touching, none of
them empty. Every function returns one; `union` makes one of any intervals.
"""

import numpy as np

__all__ = ["clip", "gaps", "intersection", "total_length", "union"]


def union(*intervals: np.ndarray) -> np.ndarray:
    """Return the times that any of some intervals covers; they may overlap, touch, be empty and come in any order."""
    joined = np.concatenate([some.reshape(-1, 2) for some in intervals])
    joined = joined[joined[:, 1] > joined[:, 0]]
    if len(joined) == 0:
        return joined
    joined = joined[np.argsort(joined[:, 0], kind="stable")]
    covered_until = np.maximum.accumulate(joined[:, 1])
    begins = np.concatenate(([True], joined[1:, 0] > covered_until[:-1]))
    ends = np.concatenate((begins[1:], [True]))
    return np.stack((joined[begins, 0], covered_until[ends]), axis=1)


def intersection(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the times that two interval sets both cover."""
    times = np.concatenate((one.ravel(), other.ravel()))
    steps = np.tile(np.array([1, -1], dtype=np.int8), len(times) // 2)
    # Of equal times, ends come first: what only touches is not covered by both.
    order = np.lexsort((steps, times))
    both = np.flatnonzero(np.cumsum(steps[order]) == 2)
    times = times[order]
    return np.stack((times[both], times[both + 1]), axis=1)


def clip(intervals: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the part of an interval set that lies from `start` to `end`."""
    first, last = np.searchsorted(intervals[:, 1], start, "right"), np.searchsorted(intervals[:, 0], end)
    cut = np.clip(intervals[first:last], start, end)
    return cut[cut[:, 1] > cut[:, 0]]


def gaps(intervals: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return the times from `start` to `end` that an interval set leaves free."""
    inside = clip(intervals, start, end)
    bounds = np.concatenate(([start], inside.ravel(), [end])).reshape(-1, 2)
    return bounds[bounds[:, 1] > bounds[:, 0]]


def total_length(intervals: np.ndarray) -> int:
    """Return the sum of the lengths of an interval set, in nanoseconds."""
    return int(np.sum(intervals[:, 1] - intervals[:, 0]))
