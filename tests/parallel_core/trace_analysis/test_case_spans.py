"""The spans of cases as arrays of whole nanoseconds; arithmetic of intervals, held against sets of whole hours."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, Timeline, Window
from backends.profiling.timeline import UNKNOWN
from parallel_core.trace_analysis.case_spans import cases_of, clip, gaps, intersection, total_length, union
from tests.parallel_core.trace_analysis.synthetic import FIRST, made_case

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


@pytest.mark.parametrize(
    ("offset", "length", "resolution"),
    [(7, 4_000_000, 1000), (7, 4100, 100), (7, 4110, 10), (7, 4111, 1), (0, 0, 1000)],
)
def test_the_resolution_is_what_all_times_are_whole_in_wherever_they_begin(
    offset: int, length: int, resolution: int
) -> None:
    spans = (Span("x", "compute", FIRST, "compute", at, at + length) for at in (offset, offset + 5_000_000))
    assert made_case(*spans).resolution == resolution


def test_times_are_whole_numbers_also_in_traces_of_years() -> None:
    year = 31_536_000 * 10**9
    case = made_case(*(Span("x", "compute", FIRST, "compute", *at) for at in ((1, 2, 0), (year + 3, year + 4))))
    assert (case.start, case.end, case.nanoseconds) == (0, year + 4, year + 4)
    assert {times.dtype for times in (case.spans.starts, case.spans.ends, case.spans.launched)} == {np.dtype(np.int64)}
    assert case.spans.launched.tolist() == [0, UNKNOWN]
    assert case.since.tolist() == [0, year + 3]


def test_queues_are_in_the_order_of_a_case_s_first_spans() -> None:
    spans = tuple(Span(name, "compute", FIRST, name, 10 * n, 10 * n + 5) for n, name in enumerate("abcbca"))
    (case,) = cases_of(Timeline("made up", spans, (Window("the second half", 30, 60),)))
    assert [queue for _, queue in case.spans.queues] == ["b", "c", "a"]
    assert case.spans == spans[3:]


def test_a_step_without_spans_is_as_long_as_it_was_marked() -> None:
    (case,) = cases_of(Timeline("made up", (), annotations=(Window("ProfilerStep#7", 70, 80),)))
    assert (case.start, case.end) == (70, 80)
