"""The spans of cases as arrays of whole nanoseconds, and how fine a trace's clock is."""

import numpy as np
import pytest

from backends.profiling import Span, Timeline
from backends.profiling.timeline import UNKNOWN
from parallel_core.trace_analysis.case_spans import cases_of
from tests.parallel_core.trace_analysis.synthetic import FIRST


@pytest.mark.parametrize(
    ("offset", "length", "resolution"),
    [(7, 4_000_000, 1000), (7, 4100, 100), (7, 4110, 10), (7, 4111, 1), (0, 0, 1000)],
)
def test_the_resolution_is_what_all_times_are_whole_in_wherever_they_begin(
    offset: int, length: int, resolution: int
) -> None:
    spans = tuple(Span("x", "compute", FIRST, "compute", at, at + length) for at in (offset, offset + 5_000_000))
    (case,) = cases_of(Timeline("made up", spans))
    assert case.resolution == resolution


def test_times_are_whole_numbers_also_in_traces_of_years() -> None:
    year = 31_536_000 * 10**9
    first, last = (Span("x", "compute", FIRST, "compute", *times) for times in ((1, 2, 0), (year + 3, year + 4)))
    (case,) = cases_of(Timeline("made up", (first, last)))
    assert (case.start, case.end, case.nanoseconds) == (0, year + 4, year + 4)
    assert {case.starts.dtype, case.ends.dtype, case.launched.dtype} == {np.dtype(np.int64)}
    assert case.launched.tolist() == [0, UNKNOWN]
    assert case.since.tolist() == [0, year + 3]
