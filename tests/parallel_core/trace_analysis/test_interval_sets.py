"""Interval arithmetic, held against sets of whole hours: what holds for all sets, and what an oracle counts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.trace_analysis.case_spans import clip, gaps, intersection, total_length, union

HOURS = 10
HOUR = st.integers(0, HOURS)
RAW = st.lists(st.tuples(HOUR, HOUR), max_size=12)
"""Starts and ends as they come: overlapping, touching, empty, some before they begin."""


def array(raw: list[tuple[int, int]]) -> np.ndarray:
    return np.array(raw, dtype=np.int64).reshape(-1, 2)


def hours(intervals: np.ndarray) -> set[int]:
    """List the hours that some intervals cover, by counting."""
    return {hour for start, end in intervals for hour in range(int(start), int(end))}


def is_set(intervals: np.ndarray) -> bool:
    """Tell whether these are sorted, not empty, and neither overlap nor touch."""
    bounds = intervals.ravel()
    return (
        intervals.shape == (len(bounds) // 2, 2) and intervals.dtype == np.int64 and bool(np.all(np.diff(bounds) > 0))
    )


@given(RAW)
def test_a_union_covers_what_any_covers_and_is_a_set(raw: list[tuple[int, int]]) -> None:
    found = union(array(raw))
    assert is_set(found)
    assert hours(found) == hours(array(raw))
    assert total_length(found) == len(hours(found))
    assert np.array_equal(union(found[::-1], found), found)


@given(RAW, RAW)
def test_an_intersection_covers_what_both_cover(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = union(array(one)), union(array(other))
    found = intersection(a, b)
    assert is_set(found)
    assert hours(found) == hours(a) & hours(b)


@given(RAW, HOUR, HOUR)
def test_gaps_are_the_rest_of_a_window(raw: list[tuple[int, int]], start: int, end: int) -> None:
    covered = union(array(raw))
    inside, free = clip(covered, start, end), gaps(covered, start, end)
    window = set(range(start, end))
    assert is_set(inside)
    assert is_set(free)
    assert hours(inside) == hours(covered) & window
    assert hours(free) == window - hours(covered)
    assert np.array_equal(union(inside, free), union(array([(start, end)])))
    assert total_length(intersection(inside, free)) == 0
