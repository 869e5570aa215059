"""Columns hold what was put into them: texts, which are compressed, slices with
arguments, and times that are rounded once.
"""

import json
from decimal import Decimal
from fractions import Fraction

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from backends.profiling.chrome_trace import MAX_NANOSECONDS, ends_of, times_of
from backends.profiling.slices import Slice, Slices
from backends.profiling.texts import BLOCK, Texts
from tests.backends.profiling.test_slices import names, process_and_thread_ids


@given(st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=4), st.data())
def test_columns_of_texts_are_the_texts(parts: list[list[bytes]], data: st.DataObject) -> None:
    texts = [text for part in parts for text in part]
    column = Texts.joined(Texts.of(part) for part in parts)
    assert len(column) == len(texts)
    assert column.tolist() == texts
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1))) if texts else []
    selected = column[np.array(rows, np.intp)]
    assert selected.tolist() == [texts[row] for row in rows]
    assert column[1:3].tolist() == texts[1:3]


def test_many_texts_are_compressed_some_at_a_time() -> None:
    texts = [b'{"run_id": "%d"}' % number for number in range(2 * BLOCK + 5)]
    column = Texts.of(texts)
    assert column.tolist() == texts
    lengths = [len(texts_of_block) for _, texts_of_block in column.by_block()]
    assert lengths == [BLOCK, BLOCK, 5]


arguments_of_slices = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("stream", "device", "External id"), st.integers() | st.text(max_size=3) | st.none()
    ),
)
slices = st.builds(
    Slice,
    names,
    st.sampled_from(["kernel", "cpu_op"]),
    process_and_thread_ids,
    process_and_thread_ids,
    st.integers(0, 10**18),
    st.integers(0, 10**18),
    arguments_of_slices.map(lambda args: json.dumps(args).encode())
    | st.sampled_from([b"", b'"none"', b'{"stream": NaN}', b"[1]"]),
)


@given(st.lists(slices, max_size=8), st.data())
def test_columns_hold_the_slices(drawn: list[Slice], data: st.DataObject) -> None:
    columns = Slices.of(drawn)
    assert list(columns) == drawn
    assert [columns[row] for row in range(len(columns))] == drawn
    assert list(columns[1:3]) == drawn[1:3]
    assert columns == drawn
    assert Slices.of(columns) == drawn
    assert sum(columns.counts().values()) == len(drawn)

    rows = data.draw(st.permutations(range(len(drawn))))
    rows = rows[: data.draw(st.integers(0, len(drawn)))]
    selected = columns.select(np.array(rows, np.intp))
    assert list(selected) == [drawn[row] for row in rows]

    kernels = columns.select(columns.has_category("kernel"))
    assert list(kernels) == [span for span in drawn if span.category == "kernel"]


@given(st.lists(slices, max_size=8))
def test_arguments_coded_or_not_are_those_of_the_slices(drawn: list[Slice]) -> None:
    columns = Slices.of(drawn)
    names = ("stream", "External id")
    expected = [tuple(map(span.args.get, names)) for span in drawn]
    # What is no JSON holds a number that equals nothing: NaN.
    assert repr(columns.arguments(*names)) == repr(expected)
    decoded = []
    for values, places in columns.coded_arguments(*names):
        decoded.append([values[place] for place in places.tolist()])
    assert repr(list(zip(*decoded, strict=True))) == repr(expected)


plain_numbers = st.from_regex(r"(0|[1-9][0-9]{0,15})(\.[0-9]{1,6})?", fullmatch=True)
numbers = (
    plain_numbers
    | st.integers(-(10**20), 10**20).map(str)
    | st.floats(-1e20, 1e20, allow_nan=False).map(
        lambda number: msgspec.json.encode(number).decode()
    )
    | st.sampled_from(
        [
            "0",
            "-0.0",
            "1e3",
            "2.5E-4",
            "9223372036854775.807",
            "9000000000000000.000",
            "4611686018427387.903",
        ]
    )
)
no_numbers = st.sampled_from(["null", '"soon"', "[1, 2]", "{}", "true", ""])
"""JSON, as numbers are: what may stand for a time or a duration in a trace."""


def raw(texts: list[str]) -> list[msgspec.Raw]:
    """Return JSON values as they stand in a file, not decoded."""
    return [msgspec.Raw(text.encode()) for text in texts]


def exact(text: str) -> Fraction | None:
    """Return a number of microseconds in nanoseconds, unrounded; None if it is no possible time."""
    try:
        nanoseconds = Fraction(Decimal(text)) * 1000
    except ArithmeticError:
        return None
    return nanoseconds if -MAX_NANOSECONDS < nanoseconds < MAX_NANOSECONDS else None


@given(
    st.lists(plain_numbers, max_size=8) | st.lists(plain_numbers | numbers | no_numbers, max_size=8)
)
def test_every_time_is_its_number_rounded_once(texts: list[str]) -> None:
    times = times_of(raw(texts))
    for column in times:
        assert len(column) == len(texts)
    for row, text in enumerate(texts):
        expected = exact(text)
        assert times.is_possible[row] == (expected is not None)
        if expected is not None:
            assert times.nanoseconds[row] == round(expected)
            assert times.is_whole[row] == (expected.denominator == 1)


@example([("0.0006", "0.0006")])
@given(
    st.lists(st.tuples(plain_numbers, plain_numbers), max_size=6)
    | st.lists(st.tuples(numbers, numbers | no_numbers), max_size=6)
)
def test_every_end_is_the_sum_rounded_once(begins_and_durations: list[tuple[str, str]]) -> None:
    begins = raw([begin for begin, _ in begins_and_durations])
    durations = raw([duration for _, duration in begins_and_durations])
    ends = ends_of(times_of(begins), begins, durations)
    assert len(ends.nanoseconds) == len(begins_and_durations)
    for row, (begin, duration) in enumerate(begins_and_durations):
        start, length = exact(begin), exact(duration)
        is_possible = ends.is_possible[row]
        if start is None or length is None:
            assert not is_possible
            continue
        end = start + length
        # In the last nanosecond before a limit either is right: rounding decides.
        if length <= -1 or end >= MAX_NANOSECONDS:
            assert not is_possible
        elif length >= 0 and end < MAX_NANOSECONDS - 1:
            assert is_possible
            assert ends.nanoseconds[row] == round(end)


def test_a_number_that_no_calculation_can_hold_is_impossible() -> None:
    times = times_of(raw(["1e9999999", "-1e9999999"]))
    assert times.is_possible.tolist() == [False, False]
