"""Chrome traces are read as far as they go: whatever their form and their clock, cut off, damaged or compressed."""

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import trace_events, trace_text
from backends.profiling.slices import Trace, read_trace
from benchmarks.trace_reading import write_events

EPOCH = 1_795_279_713_356_264
HASH = 2**64 - 1

Event = dict[str, Any]
Read = Callable[..., Trace]


def complete(name: str = "op", start: float = 0, duration: float = 5, **more: Any) -> Event:
    return {"ph": "X", "name": name, "cat": "cpu_op", "pid": 1, "tid": 2, "ts": start, "dur": duration, **more}


def one(phase: str, name: str, time: float, **more: Any) -> Event:
    return {"ph": phase, "name": name, "cat": "operator", "pid": 1, "tid": HASH, "ts": time, **more}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a text, bytes, or a document made of events."""

    def read_that(content: str | bytes | Iterable[Event]) -> Trace:
        path = tmp_path / "trace.json"
        if not isinstance(content, str | bytes):
            content = json.dumps({"traceEvents": list(content)})
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_trace(path)

    return read_that


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make files of some events as long as files of a million."""
    monkeypatch.setattr(trace_text, "BLOCK", 150)
    monkeypatch.setattr(trace_text, "COMPRESSED_BLOCK", 20)
    monkeypatch.setattr(trace_events, "LARGEST_EVENT", 400)


def spans(trace: Trace) -> list[tuple[str, float, float]]:
    return [(found.name, round(found.start * 1e6, 6), round(found.end * 1e6, 6)) for found in trace.slices]


# Forms


def test_object_and_array_give_the_same_slices_and_the_object_its_properties(read: Read) -> None:
    events = [complete("a"), complete("b", 7)]
    found = read(json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "mine"}, indent=2))
    assert found.slices == read(json.dumps(events)).slices
    assert spans(found) == [("a", 0, 5), ("b", 7, 12)]
    assert found.properties == {"schemaVersion": 1, "traceName": "mine"}
    assert found.problems == ()


@pytest.mark.parametrize("start", [0, EPOCH])
def test_begins_and_ends_of_a_row_nest(read: Read, start: int) -> None:
    found = read(
        [
            one("B", "outer", start),
            one("B", "inner", start),
            one("E", "inner", start + 2),
            one("B", "inner", start + 3),
            one("E", "", start + 4),
            one("E", "outer", start + 9),
        ]
    )
    assert spans(found) == [("outer", 0, 9), ("inner", 0, 2), ("inner", 3, 4)]
    assert {(each.process, each.thread) for each in found.slices} == {(1, HASH)}
    assert found.problems == ()


def test_rows_are_apart(read: Read) -> None:
    found = read(
        [
            one("B", "op", 0, pid=1),
            one("B", "op", 1, pid=2),
            one("B", "op", 2, tid=3),
            one("E", "op", 3, pid=1),
            one("E", "op", 5, pid=2),
            one("E", "op", 7, tid=3),
        ]
    )
    assert spans(found) == [("op", 0, 3), ("op", 1, 5), ("op", 2, 7)]


def test_asynchronous_events_are_matched_by_category_identity_and_name(read: Read) -> None:
    found = read(
        [
            one("b", "op", 0, id=1),
            one("b", "op", 1, id="0x2", tid=4),
            one("b", "op", 2, id=1, cat="other"),
            one("b", "op", 3, id2={"local": "0x1"}),
            one("b", "op", 3, id2={"local": "0x2"}),
            one("e", "op", 4, id=1),
            one("e", "op", 5, id="0x2"),
            one("e", "op", 6, id=1, cat="other"),
            one("e", "op", 7, id2={"local": "0x1"}),
            one("e", "op", 8, id2={"local": "0x2"}),
        ]
    )
    assert spans(found) == [("op", 0, 4), ("op", 1, 5), ("op", 2, 6), ("op", 3, 7), ("op", 3, 8)]
    assert found.slices[1].thread == 4


def test_rows_have_names_and_the_last_one_given_counts(read: Read) -> None:
    def name(what: str, name: object, **row: int) -> Event:
        return {"ph": "M", "name": what, **row, "args": {"name": name}}

    found = read(
        [
            name("process_name", "cpu/0", pid=0),
            name("process_name", "cpu/1", pid=1),
            name("process_name", "cpu/1", pid=1),
            name("thread_name", "worker", pid=1, tid=HASH),
            name("thread_name", 7, pid=1, tid=HASH),
            complete(),
        ]
    )
    assert found.processes == {0: "cpu/0", 1: "cpu/1"}
    assert found.threads == {(1, HASH): "worker"}


def test_rows_may_be_texts_and_large_numbers(read: Read) -> None:
    (found,) = read([complete(pid="Spans", tid=2**64 + 5)]).slices
    assert (found.process, found.thread) == ("Spans", 2**64 + 5)


def test_other_phases_are_no_slices(read: Read) -> None:
    others = [{"ph": phase, "name": "x", "ts": 1, "pid": 1, "tid": 1, "id": 1.5, "s": "g"} for phase in "CisftnNOD"]
    found = read([*others, complete(), {"name": "no phase"}])
    assert spans(found) == [("op", 0, 5)]
    assert found.problems == ()


def test_arguments_are_a_mapping(read: Read) -> None:
    given = {"External id": 5, "stream": 7, "name": "é", "Input Dims": [[1, 2], []], "inner": {"x": None}}
    with_arguments, without, no_mapping = read(
        [complete(args=given), complete(start=1), complete(start=2, args="none")]
    ).slices
    assert dict(with_arguments.args) == given
    assert with_arguments.args.get("device") is None
    assert dict(without.args) == dict(no_mapping.args) == {}


def test_a_document_that_was_added_to_is_read_to_its_end(read: Read) -> None:
    # A second mx.profiler.dump() appends a comma, the events and the end of an object that has no beginning.
    first, second = json.dumps(complete("a")), json.dumps(complete("b", 9))
    end = '\n], "displayTimeUnit": "ms"\n}\n'
    found = read(f'{{"traceEvents": [{first}{end},\n{second}{end}')
    assert spans(found) == [("a", 0, 5), ("b", 9, 14)]
    assert found.problems == ()
    assert spans(read(f",\n{second}{end}")) == [("b", 0, 5)]
    assert [name for name, _, _ in spans(read(f"[{first}]\n[{second}]"))] == ["a", "b"]


@pytest.mark.parametrize(
    "compress", [lambda text: gzip.compress(text), lambda text: gzip.compress(text[:50]) + gzip.compress(text[50:])]
)
def test_compressed_files_are_known_by_their_beginning(read: Read, compress: Callable[[bytes], bytes]) -> None:
    assert spans(read(compress(json.dumps([complete("a"), complete("b", 7)]).encode()))) == [("a", 0, 5), ("b", 7, 12)]


# Times


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), min_size=1, max_size=8), st.integers(0, 10))
def test_times_since_1970_keep_their_nanoseconds(
    tmp_path: Path, nanoseconds: list[tuple[int, int]], offset: int
) -> None:
    epoch = EPOCH * 1000 + offset
    # Written digit by digit: a float would not hold them.
    events = ", ".join(
        f'{{"ph": "X", "name": "{place}", "ts": {(epoch + start) // 1000}.{(epoch + start) % 1000:03}, '
        f'"dur": {length // 1000}.{length % 1000:03}}}'
        for place, (start, length) in enumerate(nanoseconds)
    )
    path = tmp_path / "trace.json"
    path.write_text(f"[{events}]")
    earliest = min(start for start, _ in nanoseconds)
    for found in read_trace(path).slices:
        start, length = nanoseconds[int(found.name)]
        assert found.start == pytest.approx((start - earliest) / 1e9, abs=1e-14)
        assert found.end == pytest.approx((start - earliest + length) / 1e9, abs=1e-14)


def test_what_touches_does_not_overlap(read: Read) -> None:
    text = ", ".join(
        f'{{"ph": "X", "name": "{number}", "ts": {EPOCH + number * 3 // 10}.{number * 3 % 10}, "dur": 0.3}}'
        for number in range(200)
    )
    slices = read(f"[{text}]").slices
    assert all(before.end == after.start for before, after in pairwise(slices))


def test_slices_are_in_the_order_of_their_start_and_of_the_file(read: Read) -> None:
    found = read([complete("late", 9), complete("first", 1), complete("second", 1), one("i", "mark", 0)])
    assert [found.name for found in found.slices] == ["first", "second", "late"]
    assert found.slices[0].start == 0


# Damage

BROKEN: list[tuple[str, Event | list[Event], str]] = [
    ("a duration below zero", complete(duration=-1), "times that cannot be"),
    ("no duration", {"ph": "X", "name": "bad", "ts": 3}, "times that cannot be"),
    ("no time", {"ph": "X", "name": "bad", "dur": 3}, "times that cannot be"),
    ("a time that is no number", complete(start=math.nan), "times that cannot be"),
    ("an endless duration", complete(duration=math.inf), "times that cannot be"),
    ("an absurd time", complete(start=1e300), "times that cannot be"),
    ("a text for a time", complete(start="soon"), "could not be read"),  # type: ignore[arg-type]
    ("null for a time", complete(start=None), "times that cannot be"),  # type: ignore[arg-type]
    ("a list for a name", complete(name=["x"]), "could not be read"),  # type: ignore[arg-type]
    ("an object for a phase", {"ph": {}, "ts": 1, "dur": 1}, "could not be read"),
    ("no object", 7, "could not be read"),  # type: ignore[list-item]
    ("a begin", one("B", "bad", 1), "began and never ended"),
    ("an end", one("E", "bad", 1), "ended without a beginning"),
    ("an asynchronous begin", one("b", "bad", 1, id=1), "began and never ended"),
    ("an asynchronous end", one("e", "bad", 1, id=1), "ended without a beginning"),
    ("an end before its begin", [one("B", "bad", 5), one("E", "bad", 3)], "times that cannot be"),
    ("an end of another name", [one("B", "bad", 5), one("E", "other", 9)], "began and never ended"),
]


@pytest.mark.parametrize(("broken", "told"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
@pytest.mark.parametrize("blocks", ["in one block", "in many"])
def test_what_cannot_be_used_is_left_out_and_told(
    read: Read, broken: Event | list[Event], told: str, blocks: str, request: pytest.FixtureRequest
) -> None:
    if blocks == "in many":
        request.getfixturevalue("small_blocks")
    good = [complete(str(number), 10 + number) for number in range(20)]
    bad = broken if isinstance(broken, list) else [broken]
    for events in ([*bad, *good], [*good[:10], *bad, *good[10:]], [*good, *bad]):
        found = read(events)
        assert [found.name for found in found.slices] == [str(number) for number in range(20)]
        assert any(told in problem for problem in found.problems), found.problems


def test_an_end_too_many_closes_nothing_else(read: Read) -> None:
    found = read([one("B", "outer", 0), one("B", "op", 1), one("E", "op", 2), one("E", "op", 3), one("E", "outer", 5)])
    assert spans(found) == [("outer", 0, 5), ("op", 1, 2)]
    assert found.problems == ("1 event ended without a beginning, left out: the first is 'op'.",)


def test_an_end_closes_what_was_left_open_inside(read: Read) -> None:
    found = read(
        [one("B", "outer", 0), one("B", "lost", 1), one("E", "outer", 5), one("B", "op", 6), one("E", "op", 7)]
    )
    assert spans(found) == [("outer", 0, 5), ("op", 6, 7)]
    assert found.problems == ("1 event began and never ended, left out: the first is 'lost'.",)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "damaged",
    [
        '{"ph": "X", "name": "a "quoted" name", "ts": 1, "dur": 1}',
        '{"ph": "X", "name": "open, "ts": 1, "dur": 1}',
        '{"ph": "X", "name": "x" "ts": 1}',
        '{"ph": "X", "name": "x", "args": [}',
        '{"ph": "X", "ts": 0123, "dur": 4}',
        '{"ph": "X", "name": "\\ud800", "ts": 1, "dur": 1}',
        "[" * 3000 + "{}",
    ],
)
def test_an_event_that_is_no_json_costs_none_but_itself(read: Read, damaged: str) -> None:
    good = [json.dumps(complete(str(number), number)) for number in range(30)]
    found = read(f'{{"traceEvents": [{", ".join([*good[:15], damaged, *good[15:]])}], "last": 1}}')
    names = [found.name for found in found.slices]
    assert names == [str(number) for number in range(30)]
    assert any("could not be read" in problem for problem in found.problems)
    assert found.properties == {"last": 1}


def test_arguments_may_hold_what_json_does_not_know(read: Read) -> None:
    text = '[{"ph":"X","name":"op","ts":1,"dur":2,"args":{"rate":NaN,"limit":Infinity,"stream":7}}]'
    (found,) = read(text).slices
    assert found.args["stream"] == 7


def test_bytes_that_are_no_text_do_not_matter(read: Read) -> None:
    (found,) = read(b'\xef\xbb\xbf[{"ph":"X","name":"\xff\xfe","ts":1,"dur":2}]').slices
    assert found.name == "\N{REPLACEMENT CHARACTER}" * 2


@pytest.mark.parametrize("end", ["", "]", ",", ",]", ", \n]\n\n"])
def test_a_list_may_lack_its_bracket_and_have_a_comma_too_many(read: Read, end: str) -> None:
    found = read(f"[{json.dumps(complete())}{end}")
    assert spans(found) == [("op", 0, 5)]
    assert found.problems == ()


@pytest.mark.parametrize("beginning", ['{"traceEvents": [{}', '{"traceEvents": [{}, {"ph": "X', '[{}, {"ph": "X"'])
def test_what_ends_too_early_was_cut_off(read: Read, beginning: str) -> None:
    found = read(beginning.replace("{}", json.dumps(complete())))
    assert spans(found) == [("op", 0, 5)]
    assert found.problems == ("The file ends before its events do: it was cut off.",)


NO_TRACES = {
    "empty": (b"", "it is empty"),
    "white space": (b" \n\n ", "no list of events"),
    "no events": (b'{"traceEvents": []}', "no events"),
    "an empty list": (b"[]", "no events"),
    "events without slices": (b'[{"ph": "C", "name": "memory", "ts": 1}]', "no events"),
    "one begin": (b'[{"ph": "B", "name": "op", "ts": 1}]', "never ended"),
    "another object": (b'{"schema": 1, "experiment": "overlap"}', "no list of events"),
    "no list": (b'{"traceEvents": {"a": 1}}', "no list of events"),
    "numbers": (b"[1, 2, 3]", "no events"),
    "a number": (b"42", "no JSON"),
    "a text": (b'"traceEvents"', "no JSON"),
    "prose": (b"Traceback (most recent call last):", "no JSON"),
    "garbage": (bytes(range(256)) * 100, "no JSON"),
    "garbage in braces": (b"{" + bytes(range(256)) * 100, "no list of events"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), "no JSON"),
    "compressed garbage": (b"\x1f\x8b" + bytes(range(256)), "compressed data are damaged"),
    "depth": (b"[" * 100_000, "no events"),
    "depth of objects": (b'{"a":' * 100_000, "no list of events"),
}


@pytest.mark.parametrize(("content", "told"), NO_TRACES.values(), ids=NO_TRACES)
def test_what_is_no_trace_is_refused_in_one_line(read: Read, content: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        read(content)
    assert "\n" not in str(raised.value)
    assert "trace.json" in str(raised.value)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.json")


@pytest.mark.parametrize("block", range(1, 20))
def test_a_number_on_the_edge_of_a_block_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(trace_text, "BLOCK", block)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"number": 1234567, "traceEvents": [complete()]}))
    assert read_trace(path).properties == {"number": 1234567}


# Properties

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
        event = one(phase, draw(names), time, pid=draw(rows), tid=draw(rows), id=draw(rows), args=draw(arguments))
        events.append({**event, "dur": draw(st.floats(0, 100))} if phase == "X" else event)
    return [complete("the earliest", base), *events]


def in_an_object(events: list[Event]) -> Event:
    return {"number": 1234567, "devices": [{"a": 1}], "traceEvents": events, "last": {"b": "}, {"}}


documents = st.builds(
    lambda events, form, indent: json.dumps(form(events), indent=indent, ensure_ascii=False).encode(),
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


@given(document=documents, block=st.integers(1, 300), largest=st.integers(1, 500), compressed=st.booleans())
def test_blocks_do_not_matter(tmp_path: Path, document: bytes, block: int, largest: int, compressed: bool) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(document) if compressed else document)
    expected = read_trace(path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace_text, "BLOCK", block)
        patched.setattr(trace_text, "COMPRESSED_BLOCK", block)
        patched.setattr(trace_events, "LARGEST_EVENT", 10_000 + largest)
        found = read_trace(path)
    assert comparable(found) == comparable(expected)
    assert (found.problems, found.properties) == (expected.problems, expected.properties)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"{", b"[", b'{"traceEvents":[', b'[{"ph":"X","ts":1,"dur":1},', b"\x1f\x8b"]),
)
def test_no_bytes_are_more_than_refused(tmp_path: Path, garbage: bytes, beginning: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(beginning + garbage)
    with suppress(ValueError):
        read_trace(path)


@given(st.data())
def test_nested_begins_and_ends_are_complete_events_in_other_words(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "trace.json"
    expected: list[tuple[str, int, int]] = []
    open_since: list[int] = []
    events: list[Event] = []
    for time in range(data.draw(st.integers(2, 20))):
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
    assert sorted(spans(found)) == sorted((name, start - first, end - first) for name, start, end in expected)
    assert len(found.problems) == bool(open_since)


# Size


@pytest.mark.parametrize("form", ["torch", "mxnet"])
def test_a_long_file_is_read_in_little_memory(tmp_path: Path, form: str) -> None:
    path = tmp_path / "trace.json"
    count = 100_000
    with path.open("wb") as stream:
        write_events(stream, count, form)
    code = (
        "import resource, sys; from pathlib import Path; from backends.profiling.slices import read_trace; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; trace = read_trace(Path(sys.argv[1])); "
        "last = trace.slices[-1]; after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "print(len(trace.slices), after - before, last.name, round(last.start * 1e6), len(trace.problems))"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    slices, kibibytes, name, start, problems = done.stdout.split()
    expected = count if form == "torch" else count // 2
    assert (int(slices), name, int(problems)) == (
        expected,
        "operator_49" if form == "mxnet" else "aten::operator_49",
        0,
    )
    assert int(start) == 7 * (count - 1 if form == "torch" else count - 2)
    # 2 GiB for a million events leave 215 MB for these, and half of it to what is computed from them.
    assert int(kibibytes) * 1024 < 100e6
