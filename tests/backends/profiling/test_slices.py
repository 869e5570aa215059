"""Chrome traces are read whatever their form and their clock, compressed, cut anywhere, and in
little memory.
"""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import trace_events
from backends.profiling.chrome_trace import read_trace
from backends.profiling.slices import Trace
from tests.backends.profiling.events import (
    EPOCH,
    HASH,
    Event,
    Read,
    complete,
    event_of,
    gpu_events,
    mxnet_events,
    spans,
)

A, B = json.dumps(complete("a")), json.dumps(complete("b", 9))
LIST = f"[{A}, {B}]"
LIST_COMPRESSED = gzip.compress(LIST.encode())
ENDED = '\n], "displayTimeUnit": "ms"\n}\n'
FORMS: dict[str, str | bytes] = {
    "an object": f'{{"schemaVersion": 1, "traceEvents": {LIST}, "traceName": "mine"}}',
    "indented": json.dumps({"traceEvents": json.loads(LIST)}, indent=2),
    "compressed": LIST_COMPRESSED,
    "compressed in two parts": gzip.compress(LIST[:50].encode())
    + gzip.compress(LIST[50:].encode()),
    "compressed, and cut off behind all events": LIST_COMPRESSED[:-8],
    "compressed, and damaged behind them": LIST_COMPRESSED + b"garbage",
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
"""Files of the same two events, a and b."""


@pytest.mark.parametrize("form", FORMS)
def test_a_trace_is_read_in_whatever_form(read: Read, form: str) -> None:
    trace = read(FORMS[form])
    assert spans(trace) == [("a", 0, 5), ("b", 9, 14)]
    assert trace.problems == ()
    if form == "an object":
        assert trace.properties == {"schemaVersion": 1, "traceName": "mine"}


SYNCHRONOUS, ASYNCHRONOUS = ("B", "E"), ("b", "e")


def test_begins_and_ends_are_matched_by_row_and_asynchronous_ones_by_category_identity_and_name(
    read: Read,
) -> None:
    # Pairs of events, all of one name: the phases of begin and end, and what tells a pair from the
    # others.
    pairs: list[tuple[tuple[str, str], Event]] = [
        (SYNCHRONOUS, {"pid": 1}),
        (SYNCHRONOUS, {"pid": 2}),
        (SYNCHRONOUS, {"tid": 3}),
        (ASYNCHRONOUS, {"id": 1}),
        (ASYNCHRONOUS, {"id": "0x2", "tid": 4}),
        (ASYNCHRONOUS, {"id": 1, "cat": "other"}),
        (ASYNCHRONOUS, {"id2": {"local": "0x1"}}),
        (ASYNCHRONOUS, {"id2": {"local": "0x2"}}),
    ]
    begins, ends, expected = [], [], []
    for number, ((begin_phase, end_phase), key) in enumerate(pairs):
        begin_time, end_time = number, 10 + 2 * number
        begins.append(event_of(begin_phase, "op", begin_time, **key))
        ends.append(event_of(end_phase, "op", end_time, **key))
        expected.append(("op", begin_time, end_time))
    trace = read([*begins, *ends])
    assert spans(trace) == expected
    assert trace.slices[4].thread == 4


def test_rows_have_names_and_the_last_one_given_counts(read: Read) -> None:
    def name_of_process(pid: int, name: str) -> Event:
        return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}

    def name_of_thread(name: object) -> Event:
        return {"ph": "M", "name": "thread_name", "pid": 1, "tid": HASH, "args": {"name": name}}

    trace = read(
        [
            name_of_process(0, "cpu/0"),
            name_of_process(1, "gpu/1"),
            name_of_process(1, "cpu/1"),
            name_of_thread("worker"),
            # No text, so no name.
            name_of_thread(7),
            complete(pid="Spans", tid=2**64 + 5),
        ]
    )
    assert trace.processes == {0: "cpu/0", 1: "cpu/1"}
    assert trace.threads == {(1, HASH): "worker"}
    (span,) = trace.slices
    assert span.process == "Spans"
    assert span.thread == 2**64 + 5


def test_other_phases_are_no_slices(read: Read) -> None:
    others = [
        {"ph": phase, "name": "x", "ts": 1, "pid": 1, "tid": 1, "id": 1.5, "s": "g"}
        for phase in "CisftnNOD"
    ]
    trace = read([*others, complete(), {"name": "no phase"}])
    assert spans(trace) == [("op", 0, 5)]
    assert trace.problems == ()


def test_slices_are_in_the_order_of_their_start_and_of_the_file_with_their_arguments(
    read: Read,
) -> None:
    many_arguments = {
        "External id": 5,
        "stream": 7,
        "name": "é",
        "Input Dims": [[1, 2], []],
        "inner": {"x": None},
    }
    trace = read(
        [
            complete("the last", 9, cat="kernel", args=many_arguments),
            complete("the first", 1, cat="kernel"),
            complete("as early", 1, cat="kernel", args={"a": 1}),
            complete("the third", 2, cat="kernel", args="none"),
            event_of("i", "mark", 0),
        ]
    )
    # Times begin with the earliest slice.
    assert spans(trace) == [
        ("the first", 0, 5),
        ("as early", 0, 5),
        ("the third", 1, 6),
        ("the last", 8, 13),
    ]
    arguments_of_slices = [dict(span.args) for span in trace.slices]
    assert arguments_of_slices == [{}, {"a": 1}, {}, many_arguments]


process_and_thread_ids = st.sampled_from([1, 2, HASH, "Spans"])
names = st.sampled_from(["op", "copy", 'a "name"', "}, {", "é\\", ""])
arguments = st.dictionaries(
    names, st.integers() | st.lists(st.fixed_dictionaries({"a": names}), max_size=3), max_size=2
)


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    """Draw up to ten events of all kinds behind a slice that is the earliest one."""
    earliest = draw(st.sampled_from([0, EPOCH, EPOCH / 1000]))
    events = [complete("the earliest", earliest)]
    for number in range(draw(st.integers(1, 10))):
        phase = draw(st.sampled_from(["X", "X", "B", "E", "b", "e", "C", "M"]))
        event = event_of(
            phase,
            draw(names),
            earliest + number * 10 + draw(st.integers(0, 5)),
            pid=draw(process_and_thread_ids),
            tid=draw(process_and_thread_ids),
            id=draw(process_and_thread_ids),
            args=draw(arguments),
        )
        if phase == "X":
            event["dur"] = draw(st.floats(0, 100))
        events.append(event)
    return events


def in_an_object(events: list[Event]) -> Event:
    """Return a trace's document with other properties before and behind its events."""
    return {"number": 1234567, "devices": [{"a": 1}], "traceEvents": events, "last": {"b": "}, {"}}


@st.composite
def drawn_documents(draw: st.DrawFn) -> bytes:
    """Draw a trace: a list of events or an object with one, in one line or in many."""
    events = draw(event_lists())
    document = draw(st.sampled_from([events, in_an_object(events)]))
    indent = draw(st.sampled_from([None, 1]))
    return json.dumps(document, indent=indent, ensure_ascii=False).encode()


documents = drawn_documents()


def comparable(trace: Trace) -> list[tuple[object, ...]]:
    """Return the slices as tuples, with their arguments decoded."""
    return [(*span[:-1], dict(span.args)) for span in trace.slices]


@given(documents, st.booleans(), st.data())
def test_a_file_that_was_cut_anywhere_gives_some_of_its_slices(
    tmp_path: Path, document: bytes, compressed: bool, data: st.DataObject
) -> None:
    path = tmp_path / "trace.json"
    content = gzip.compress(document) if compressed else document
    path.write_bytes(content)
    slices_of_whole = comparable(read_trace(path))

    length = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:length])
    try:
        slices_of_beginning = comparable(read_trace(path))
    except ValueError:
        return
    # They are a part of all slices, in the same order.
    position = 0
    for span in slices_of_beginning:
        assert span in slices_of_whole[position:]
        position = slices_of_whole.index(span, position) + 1


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
    in_one_block = read_trace(path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace_events, "BLOCK_BYTES", block)
        patched.setattr(trace_events, "MAX_EVENT_CHARACTERS", 10_000 + largest)
        in_blocks = read_trace(path)
    assert comparable(in_blocks) == comparable(in_one_block)
    assert in_blocks.problems == in_one_block.problems
    assert in_blocks.properties == in_one_block.properties


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
    # At each time a slice begins, or the innermost open one ends. A slice's name is its start; an
    # end says the name or none.
    events: list[Event] = []
    starts_of_open: list[int] = []
    start_and_end: list[tuple[int, int]] = []
    first_time = data.draw(st.sampled_from([0, EPOCH]))
    for time in range(first_time, first_time + data.draw(st.integers(2, 20))):
        ends_one = bool(starts_of_open) and data.draw(st.booleans())
        if ends_one:
            start = starts_of_open.pop()
            name_of_end = data.draw(st.sampled_from([str(start), ""]))
            events.append(event_of("E", name_of_end, time))
            start_and_end.append((start, time))
        else:
            starts_of_open.append(time)
            events.append(event_of("B", str(time), time))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))

    try:
        trace = read_trace(path)
    except ValueError:
        assert start_and_end == []
        return

    # Times begin with the earliest slice.
    earliest = min(start for start, _ in start_and_end)
    expected = [(str(start), start - earliest, end - earliest) for start, end in start_and_end]
    assert sorted(spans(trace)) == sorted(expected)
    assert len(trace.problems) == (1 if starts_of_open else 0)


@pytest.mark.parametrize(
    ("make", "count", "name_of_last", "start_of_last_us"),
    [
        (mxnet_events, 25_000, "operator_49", 7 * 49_998),
        (gpu_events, 30_000, "ncclDevKernel_AllReduce_Sum_f32", 30 * 9_999 + 12),
    ],
    ids=["mxnet", "gpu"],
)
def test_a_long_file_is_read_in_little_memory(
    tmp_path: Path,
    make: Callable[[int], Iterator[Event]],
    count: int,
    name_of_last: str,
    start_of_last_us: int,
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": list(make(50_000))}, indent=1))
    tracemalloc.start()
    try:
        trace = read_trace(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace.slices) == count
    last = trace.slices[-1]
    assert last.name == name_of_last
    assert last.start // 1000 == start_of_last_us
    assert trace.problems == ()
    # In objects, the events would take as much again.
    assert peak_bytes < 15e6
