"""Times are the digits of the file: read many at once or one by one, they are rounded to nanoseconds once."""

from decimal import Decimal
from fractions import Fraction

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from backends.profiling.chrome_trace import MAX_NANOSECONDS, ends_of, times_of

plain = st.builds(
    lambda whole, decimals, digits: (
        f"{whole}.{decimals:0{digits}}"[: len(str(whole)) + 1 + digits] if digits else str(whole)
    ),
    st.integers(0, 10**16),
    st.integers(0, 10**6 - 1),
    st.integers(0, 6),
)
numbers = (
    plain
    | st.integers(-(10**20), 10**20).map(str)
    | st.floats(-1e20, 1e20, allow_nan=False).map(lambda number: msgspec.json.encode(number).decode())
    | st.sampled_from(
        ["0", "-0.0", "1e3", "2.5E-4", "9223372036854775.807", "9000000000000000.000", "4611686018427387.903"]
    )
)
no_numbers = st.sampled_from(["null", '"soon"', "[1, 2]", "{}", "true", ""])


def raw(texts: list[str]) -> list[msgspec.Raw]:
    return [msgspec.Raw(text.encode()) for text in texts]


def exact(text: str) -> Fraction | None:
    """Return a time in nanoseconds, unrounded; None if it is no possible one."""
    try:
        number = Fraction(Decimal(text)) * 1000
    except ArithmeticError:
        return None
    return number if -MAX_NANOSECONDS < number < MAX_NANOSECONDS else None


@given(st.lists(plain, max_size=8) | st.lists(plain | numbers | no_numbers, max_size=8))
def test_every_time_is_its_number_rounded_once(texts: list[str]) -> None:
    found = times_of(raw(texts))
    for text, nanoseconds, possible, whole in zip(texts, *(column.tolist() for column in found), strict=True):
        expected = exact(text)
        assert possible == (expected is not None)
        if expected is not None:
            assert nanoseconds == round(expected)
            assert whole == (expected.denominator == 1)


@example([("0.0006", "0.0006")])
@given(st.lists(st.tuples(plain, plain), max_size=6) | st.lists(st.tuples(numbers, numbers | no_numbers), max_size=6))
def test_every_end_is_the_sum_rounded_once(events: list[tuple[str, str]]) -> None:
    begins, durations = (raw([event[place] for event in events]) for place in (0, 1))
    found = ends_of(times_of(begins), begins, durations)
    for (begin, duration), end, possible in zip(
        events, found.nanoseconds.tolist(), found.is_possible.tolist(), strict=True
    ):
        start, length = exact(begin), exact(duration)
        if start is None or length is None or length <= -1 or start + length >= MAX_NANOSECONDS - 1:
            assert not possible or start + length < MAX_NANOSECONDS
        elif length >= 0:
            assert possible
            assert end == round(start + length)


def test_a_number_that_no_calculation_can_hold_is_impossible() -> None:
    assert times_of(raw(["1e9999999", "-1e9999999"])).is_possible.tolist() == [False, False]
