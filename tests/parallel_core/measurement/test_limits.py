"""Limits on figures: what people write is read, and an interval keeps to it, or not, or is open."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.limits import UnitName, parse_limit
from parallel_core.system.errors import RequestError

UNITS: dict[str, UnitName] = {"hidden exchange": "share", "step": "seconds", "collectives": "count"}


@pytest.mark.parametrize(
    ("text", "figure", "comparison", "value"),
    [
        ("hidden exchange >= 80 %", "hidden exchange", ">=", 0.8),
        (" hidden exchange>=80% ", "hidden exchange", ">=", 0.8),
        ("step < 1.5 ms", "step", "<", 0.0015),
        ("step <= 20us", "step", "<=", 20e-6),
        ("collectives > 3", "collectives", ">", 3),
    ],
)
def test_a_limit_is_read(text: str, figure: str, comparison: str, value: float) -> None:
    limit = parse_limit(text, UNITS)
    assert (limit.figure, limit.comparison) == (figure, comparison)
    assert limit.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("hidden exchange", "'hidden exchange >= 80 %'"),
        ("hidden exchange == 80 %", "'hidden exchange >= 80 %'"),
        ("hiden exchange >= 80 %", "hidden exchange?"),
        ("hidden exchange >= 80", "80 %"),
        ("step >= 80 %", "80 ms"),
        ("collectives >= 3 s", "write 3"),
        ("step >= 1.2.3 ms", "1.2.3"),
    ],
)
def test_what_is_no_limit_is_refused_in_a_line_that_says_how_to_write_it(
    text: str, names: str
) -> None:
    with pytest.raises(RequestError) as refused:
        parse_limit(text, UNITS)
    assert names in str(refused.value)
    assert "\n" not in str(refused.value)


FINITE = st.floats(-10, 10)


@given(FINITE, FINITE, FINITE)
def test_a_limit_holds_if_all_of_the_interval_keeps_to_it(a: float, b: float, value: float) -> None:
    low, high = sorted((a, b))
    number = f"{abs(value):.6f}"
    at_least = parse_limit(f"collectives >= {number}", UNITS)
    below = parse_limit(f"collectives < {number}", UNITS)
    interval = Interval(low, low, high)
    verdict = at_least.judge(interval)
    assert (verdict == "holds") == (low >= at_least.value)
    assert (verdict == "broken") == (high < at_least.value)
    # The opposite limit has the opposite verdict.
    opposite = {"holds": "broken", "broken": "holds", "open": "open"}
    assert below.judge(interval) == opposite[verdict]


@pytest.mark.parametrize("low", [-math.inf, math.nan])
def test_a_figure_without_bounds_is_open(low: float) -> None:
    limit = parse_limit("step <= 1 s", UNITS)
    assert limit.judge(Interval(2.0, low, math.inf)) == "open"
