"""Where the time went: parts in a row that end where the repetition does."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.comparison.analysis import analyse
from parallel_core.report.division_chart import DivisionRow, division_chart
from parallel_core.trace_analysis.division import Division
from tests.parallel_core.comparison.made_up import comparison, measured, parallel
from tests.parallel_core.report.pages import with_bare_times

BOTH = comparison(*(with_bare_times(measured(parallel(name), (1.0, 1.01, 0.99))) for name in ("mxnet", "torch")))
EXPERIMENT = analyse(BOTH).experiments[0]
SECONDS = st.floats(0, 10)


def row_of(division: Division) -> DivisionRow:
    first, second = EXPERIMENT.cells
    cells = (replace(first, division=division), replace(second, undivided="its trace is empty"))
    chart = division_chart(replace(EXPERIMENT, cells=cells))
    assert chart is not None
    assert chart.undivided == {"torch async": "its trace is empty"}
    (row,) = chart.rows
    assert {part.kind for part in row.parts} == {kind for kind, _ in chart.legend}
    return row


@given(st.floats(0.1, 10), st.floats(0.1, 10), SECONDS, SECONDS, SECONDS)
def test_the_parts_are_a_row_without_gaps_over_the_whole_time(
    bare: float, longest: float, turns: float, exposed: float, idle: float
) -> None:
    whole = longest + turns + exposed + idle
    parts = row_of(Division(whole, bare, longest, turns, exposed, idle, 0.05)).parts
    assert parts[0].start == 0
    for earlier, later in pairwise(parts):
        assert later.start == pytest.approx(earlier.start + earlier.length)
    assert parts[-1].start + parts[-1].length == pytest.approx(100)


def test_parts_are_named_unless_they_are_nearly_nothing() -> None:
    row = row_of(Division(1.0, 0.6, 0.7, 0.2, 0.0, 0.1 - 1e-3, 0.05))
    assert (row.name, row.seconds) == ("mxnet async", "1.00 s")
    assert list(row.words) == [
        "600 ms bare operations",
        "100 ms more in them than as one unit",
        "200 ms others’ turns to compute",
        "99.0 ms no device at work",
    ]
    quick = row_of(Division(1.0, 1.2, 0.995, 0.0, 0.0, 0.005, 0.05))
    assert quick.words == ("995 ms bare operations",)
    assert [part.kind for part in quick.parts] == ["bare", "idle"]


def test_without_a_division_there_is_no_chart() -> None:
    assert division_chart(EXPERIMENT) is None
