"""Chrome traces are read whatever their form and their clock, compressed, cut anywhere, and in
little memory.
"""

import gzip
import json
import tracemalloc
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.profiling import trace_events
from backends.profiling.chrome_trace import MAX_NANOSECONDS, ends_of, read_trace, times_of
from backends.profiling.slices import Slice, Slices, Trace
from benchmarks.trace_reading import write_events
from tests.backends.profiling.events import EPOCH, HASH, Event, Read, complete, one, spans

A, B = json.dumps(complete("a")), json.dumps(complete("b", 9))
LIST = f"[{A}, {B}]"
ENDED = '\n], "displayTimeUnit": "ms"\n}\n'
FORMS: dict[str, str | bytes] = {
    "an object": f'{{"schemaVersion": 1, "traceEvents": {LIST}, "traceName": "mine"}}',
    "indented": json.dumps({"traceEvents": json.loads(LIST)}, indent=2),
    "compressed": gzip.compress(LIST.encode()),
    "compressed in two parts": gzip.compress(LIST[:50].encode())
    + gzip.compress(LIST[50:].encode()),
    "compressed, and cut off behind all events": gzip.compress(LIST.encode())[:-8],
    "compressed, and damaged behind them": gzip.compress(LIST.encode()) + b"garbage",
    # A second mx.profiler.dump() appends a comma, the events and the end of an object that has no
    # beginning.
    "added to": f'{{"traceEvents": [{A}{ENDED},\n{B}{ENDED}',
    "what was added": f",\n{A}, {B}{ENDED}",
    "two lists": f"[{A}]\n[{B}]",
    **{
        f"a list that ends in {end!r}": f"[{A}, {B}{end}"
        for end in ("", "]", ",", ",]", ", \n]\n\n")
    },
}


@pytest.mark.parametrize("content", FORMS.values(), ids=FORMS)
def test_a_trace_is_read_in_whatever_form(read: Read, content: str | bytes) -> None:
    found = read(content)
    assert (spans(found), found.problems) == ([("a", 0, 5), ("b", 9, 14)], ())
    if content is FORMS["an object"]:
        assert found.properties == {"schemaVersion": 1, "traceName": "mine"}


def test_begins_and_ends_are_matched_by_row_and_asynchronous_ones_by_category_identity_and_name(
    read: Read,
) -> None:
    keys: list[tuple[str, Event]] = [
        *(("BE", row) for row in ({"pid": 1}, {"pid": 2}, {"tid": 3})),
        *(("be", key) for key in ({"id": 1}, {"id": "0x2", "tid": 4}, {"id": 1, "cat": "other"})),
        *(("be", {"id2": {"local": number}}) for number in ("0x1", "0x2")),
    ]
    begins = [one(phases[0], "op", time, **key) for time, (phases, key) in enumerate(keys)]
    ends = [one(phases[1], "op", 10 + 2 * time, **key) for time, (phases, key) in enumerate(keys)]
    found = read([*begins, *ends])
    assert spans(found) == [("op", time, 10 + 2 * time) for time in range(len(keys))]
    assert found.slices[4].thread == 4


def test_rows_have_names_and_the_last_one_given_counts(read: Read) -> None:
    named: list[tuple[str, object, Event]] = [
        *(
            ("process_name", name, {"pid": pid})
            for pid, name in ((0, "cpu/0"), (1, "gpu/1"), (1, "cpu/1"))
        ),
        *(("thread_name", name, {"pid": 1, "tid": HASH}) for name in ("worker", 7)),
    ]
    names = [{"ph": "M", "name": what, **row, "args": {"name": name}} for what, name, row in named]
    found = read([*names, complete(pid="Spans", tid=2**64 + 5)])
    assert (found.slices[0].process, found.slices[0].thread) == ("Spans", 2**64 + 5)
    assert found.processes == {0: "cpu/0", 1: "cpu/1"}
    assert found.threads == {(1, HASH): "worker"}


def test_other_phases_are_no_slices(read: Read) -> None:
    others = [
        {"ph": phase, "name": "x", "ts": 1, "pid": 1, "tid": 1, "id": 1.5, "s": "g"}
        for phase in "CisftnNOD"
    ]
    found = read([*others, complete(), {"name": "no phase"}])
    assert spans(found) == [("op", 0, 5)]
    assert found.problems == ()


def test_slices_are_in_the_order_of_their_start_and_of_the_file_with_their_arguments(
    read: Read,
) -> None:
    given = {
        "External id": 5,
        "stream": 7,
        "name": "é",
        "Input Dims": [[1, 2], []],
        "inner": {"x": None},
    }
    given_ones = (9, {"args": given}), (1, {}), (1, {"args": {"a": 1}}), (2, {"args": "none"})
    events = [
        complete(str(place), start, cat="kernel", **more)
        for place, (start, more) in enumerate(given_ones)
    ]
    found = read([*events, one("i", "mark", 0)])
    assert spans(found) == [("1", 0, 5), ("2", 0, 5), ("3", 1, 6), ("0", 8, 13)]
    assert [dict(one.args) for one in found.slices] == [{}, {"a": 1}, {}, given]


rows = st.sampled_from([1, 2, HASH, "Spans"])
names = st.sampled_from(["op", "copy", 'a "name"', "}, {", "é\\", ""])
arguments = st.dictionaries(
    names, st.integers() | st.lists(st.fixed_dictionaries({"a": names}), max_size=3), max_size=2
)


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    base = draw(st.sampled_from([0, EPOCH, EPOCH / 1000]))
    events = []
    for place in range(draw(st.integers(1, 10))):
        phase = draw(st.sampled_from(["X", "X", "B", "E", "b", "e", "C", "M"]))
        time = base + place * 10 + draw(st.integers(0, 5))
        event = one(
            phase,
            draw(names),
            time,
            pid=draw(rows),
            tid=draw(rows),
            id=draw(rows),
            args=draw(arguments),
        )
        events.append({**event, "dur": draw(st.floats(0, 100))} if phase == "X" else event)
    return [complete("the earliest", base), *events]


def in_an_object(events: list[Event]) -> Event:
    return {"number": 1234567, "devices": [{"a": 1}], "traceEvents": events, "last": {"b": "}, {"}}


documents = st.builds(
    lambda events, form, indent: json.dumps(
        form(events), indent=indent, ensure_ascii=False
    ).encode(),
    event_lists(),
    st.sampled_from([list, in_an_object]),
    st.sampled_from([None, 1]),
)


def comparable(trace: Trace) -> list[tuple[object, ...]]:
    return [(*found[:-1], dict(found.args)) for found in trace.slices]


@given(documents, st.booleans(), st.data())
def test_a_file_that_was_cut_anywhere_gives_some_of_its_slices(
    tmp_path: Path, document: bytes, compressed: bool, data: st.DataObject
) -> None:
    path = tmp_path / "trace.json"
    content = gzip.compress(document) if compressed else document
    path.write_bytes(content)
    whole = comparable(read_trace(path))
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    try:
        found = comparable(read_trace(path))
    except ValueError:
        return
    left = iter(whole)
    assert all(any(one == other for other in left) for one in found)


@given(
    document=documents,
    block=st.integers(1, 300),
    largest=st.integers(1, 500),
    compressed=st.booleans(),
)
def test_blocks_do_not_matter(
    tmp_path: Path, document: bytes, block: int, largest: int, compressed: bool
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(document) if compressed else document)
    expected = read_trace(path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace_events, "BLOCK_BYTES", block)
        patched.setattr(trace_events, "MAX_EVENT_CHARACTERS", 10_000 + largest)
        found = read_trace(path)
    assert comparable(found) == comparable(expected)
    assert (found.problems, found.properties) == (expected.problems, expected.properties)


@given(
    st.binary(max_size=200),
    st.sampled_from(
        [b"", b"{", b"[", b'{"traceEvents":[', b'[{"ph":"X","ts":1,"dur":1},', b"\x1f\x8b"]
    ),
)
def test_no_bytes_are_more_than_refused(tmp_path: Path, garbage: bytes, beginning: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(beginning + garbage)
    with suppress(ValueError):
        read_trace(path)


@given(st.data())
def test_nested_begins_and_ends_are_complete_events_in_other_words(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "trace.json"
    expected: list[tuple[str, int, int]] = []
    open_since: list[int] = []
    events: list[Event] = []
    begin = data.draw(st.sampled_from([0, EPOCH]))
    for time in range(begin, begin + data.draw(st.integers(2, 20))):
        if open_since and data.draw(st.booleans()):
            start = open_since.pop()
            events.append(one("E", data.draw(st.sampled_from([str(start), ""])), time))
            expected.append((str(start), start, time))
        else:
            open_since.append(time)
            events.append(one("B", str(time), time))
    path.write_text(json.dumps(events))
    try:
        found = read_trace(path)
    except ValueError:
        assert not expected
        return
    first = min(start for _, start, _ in expected)
    assert sorted(spans(found)) == sorted(
        (name, start - first, end - first) for name, start, end in expected
    )
    assert len(found.problems) == bool(open_since)


@pytest.mark.parametrize(
    ("form", "slices", "last", "start"),
    [
        ("torch", 50_000, "aten::operator_49", 7 * 49_999),
        ("mxnet", 25_000, "operator_49", 7 * 49_998),
        ("gpu", 30_000, "ncclDevKernel_AllReduce_Sum_f32", 30 * 9_999 + 12),
    ],
)
def test_a_long_file_is_read_in_little_memory(
    tmp_path: Path, form: str, slices: int, last: str, start: int
) -> None:
    path = tmp_path / "trace.json"
    with path.open("wb") as stream:
        write_events(stream, 50_000, form)
    tracemalloc.start()
    try:
        trace = read_trace(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    found = trace.slices[-1]
    assert (len(trace.slices), found.name, found.start // 1000, trace.problems) == (
        slices,
        last,
        start,
        (),
    )
    # In objects, the events would take as much again.
    assert peak < 15e6


plain = st.from_regex(r"(0|[1-9][0-9]{0,15})(\.[0-9]{1,6})?", fullmatch=True)
numbers = (
    plain
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
    for text, nanoseconds, possible, whole in zip(
        texts, *(column.tolist() for column in found), strict=True
    ):
        expected = exact(text)
        assert possible == (expected is not None)
        if expected is not None:
            assert nanoseconds == round(expected)
            assert whole == (expected.denominator == 1)


@example([("0.0006", "0.0006")])
@given(
    st.lists(st.tuples(plain, plain), max_size=6)
    | st.lists(st.tuples(numbers, numbers | no_numbers), max_size=6)
)
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
    rows,
    rows,
    st.integers(0, 10**18),
    st.integers(0, 10**18),
    arguments_of_slices.map(lambda args: json.dumps(args).encode())
    | st.sampled_from([b"", b'"none"', b'{"stream": NaN}', b"[1]"]),
)


@given(st.lists(slices, max_size=8), st.data())
def test_columns_hold_the_slices(given_ones: list[Slice], data: st.DataObject) -> None:
    columns = Slices.of(given_ones)
    assert list(columns) == given_ones
    assert [columns[place] for place in range(len(columns))] == given_ones
    assert columns == given_ones == Slices.of(columns)
    places = (
        data.draw(st.lists(st.integers(0, len(given_ones) - 1), unique=True)) if given_ones else []
    )
    assert list(columns.select(np.array(places, np.intp))) == [
        given_ones[place] for place in places
    ]
    assert list(columns[1:3]) == given_ones[1:3]
    kernels = [one for one in given_ones if one.category == "kernel"]
    assert list(columns.select(columns.has_category("kernel"))) == kernels
    assert sum(columns.counts().values()) == len(given_ones)
    found = columns.arguments("stream", "External id")
    # The one that is no JSON holds a number that equals nothing.
    assert repr(found) == repr(
        [(one.args.get("stream"), one.args.get("External id")) for one in given_ones]
    )


@given(st.lists(slices, max_size=8))
def test_coded_arguments_are_the_arguments(given_ones: list[Slice]) -> None:
    columns = Slices.of(given_ones)
    coded = columns.coded_arguments("stream", "External id")
    decoded = [[values[place] for place in places.tolist()] for values, places in coded]
    expected = columns.arguments("stream", "External id")
    assert repr(list(zip(*decoded, strict=True))) == repr(expected)
