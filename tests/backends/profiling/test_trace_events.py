"""Of a damaged trace what is whole is read, and what was left out is told; what is no trace is
refused.
"""

import json
import math

import pytest

from backends.profiling import Trace, trace_events
from tests.backends.profiling.events import Event, Read, complete, event_of, spans

BROKEN: dict[str, tuple[Event | list[Event], str]] = {
    "a duration below zero": (complete(duration=-1), "impossible-times"),
    "no duration": ({"ph": "X", "name": "bad", "ts": 3}, "impossible-times"),
    "a time that is no number": (complete(start=math.nan), "impossible-times"),
    "an endless duration": (complete(duration=math.inf), "impossible-times"),
    "an absurd time": (complete(start=1e300), "impossible-times"),
    "a text for a time": (complete(start="soon"), "impossible-times"),  # type: ignore[arg-type]
    "null for a time": (complete(start=None), "impossible-times"),  # type: ignore[arg-type]
    "a list for a name": (complete(name=["x"]), "damaged"),  # type: ignore[arg-type]
    "an object for a phase": ({"ph": {}, "ts": 1, "dur": 1}, "damaged"),
    "no object": (7, "damaged"),  # type: ignore[list-item]
    "a begin": (event_of("B", "bad", 1), "no-end"),
    "an end": (event_of("E", "bad", 1), "no-beginning"),
    "an asynchronous begin": (event_of("b", "bad", 1, id=1), "no-end"),
    "an asynchronous end": (event_of("e", "bad", 1, id=1), "no-beginning"),
    "an end before its begin": (
        [event_of("B", "bad", 5), event_of("E", "bad", 3)],
        "impossible-times",
    ),
    "an end of another name": (
        [event_of("B", "bad", 5), event_of("E", "other", 9)],
        "no-end",
    ),
}
"""Events that cannot be used, and the code of the trace's problem."""


@pytest.fixture(params=["in one block", "in many"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make files of some events as long as files of a million."""
    if request.param == "in many":
        monkeypatch.setattr(trace_events, "BLOCK_BYTES", 150)
        monkeypatch.setattr(trace_events, "MAX_EVENT_CHARACTERS", 400)


def codes_of(trace: Trace) -> list[str]:
    """Return the codes of a trace's problems."""
    return [problem.code for problem in trace.problems]


@pytest.mark.parametrize(("broken", "told"), BROKEN.values(), ids=BROKEN)
@pytest.mark.usefixtures("blocks")
def test_what_cannot_be_used_is_left_out_and_told(
    read: Read, broken: Event | list[Event], told: str
) -> None:
    good_names = [str(number) for number in range(20)]
    good = [complete(name, 10 + number) for number, name in enumerate(good_names)]
    bad = broken if isinstance(broken, list) else [broken]
    at_the_beginning = [*bad, *good]
    in_the_middle = [*good[:10], *bad, *good[10:]]
    at_the_end = [*good, *bad]
    for events in (at_the_beginning, in_the_middle, at_the_end):
        trace = read(events)
        assert [span.name for span in trace.slices] == good_names
        assert told in codes_of(trace)


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ("B outer, B op, E op, E lost, E outer", "no-beginning"),
        ("B outer, B op, E op, B lost, E outer", "no-end"),
    ],
    ids=["an end too many closes nothing else", "an end closes what was left open inside"],
)
def test_a_single_begin_or_end_leaves_what_is_around_it(
    read: Read, events: str, problem: str
) -> None:
    written = []
    for time, event in enumerate(events.split(", ")):
        phase, name = event.split()
        written.append(event_of(phase, name, time))
    trace = read(written)
    assert spans(trace) == [("outer", 0, 4), ("op", 1, 2)]
    assert codes_of(trace) == [problem]
    assert "'lost'" in trace.problems[0].sentence


@pytest.mark.usefixtures("blocks")
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
@pytest.mark.parametrize("place", [15, 30], ids=["within", "last"])
def test_an_event_that_is_no_json_costs_none_but_itself(
    read: Read, damaged: str, place: int
) -> None:
    good_names = [str(number) for number in range(30)]
    good = [json.dumps(complete(name, number)) for number, name in enumerate(good_names)]
    events = ", ".join([*good[:place], damaged, *good[place:]])
    trace = read(f'{{"traceEvents": [{events}], "last": 1}}')
    assert [span.name for span in trace.slices] == good_names
    assert "damaged" in codes_of(trace)
    assert trace.properties == {"last": 1}


def test_arguments_may_hold_what_json_does_not_know(read: Read) -> None:
    text = '[{"ph":"X","name":"op","ts":1,"dur":2,"args":{"rate":NaN,"limit":Infinity,"stream":7}}]'
    (span,) = read(text).slices
    assert span.args["stream"] == 7


def test_bytes_that_are_no_text_do_not_matter(read: Read) -> None:
    with_byte_order_mark = b'\xef\xbb\xbf[{"ph":"X","name":"\xff\xfe","ts":1,"dur":2}]'
    (span,) = read(with_byte_order_mark).slices
    assert span.name == "\N{REPLACEMENT CHARACTER}" * 2


@pytest.mark.parametrize(
    "cut_off", ['{"traceEvents": [{}', '{"traceEvents": [{}, {"ph": "X', '[{}, {"ph": "X"']
)
def test_what_ends_too_early_was_cut_off(read: Read, cut_off: str) -> None:
    whole_event = json.dumps(complete())
    trace = read(cut_off.replace("{}", whole_event))
    assert spans(trace) == [("op", 0, 5)]
    assert codes_of(trace) == ["cut-off"]


NO_TRACES = {
    "empty": (b"", "no events"),
    "no events": (b'{"traceEvents": []}', "no events"),
    "events without slices": (b'[{"ph": "C", "name": "memory", "ts": 1}]', "no events"),
    "another object": (b'{"schema": 1, "experiment": "overlap"}', "no events"),
    "no list": (b'{"traceEvents": {"a": 1}}', "no events"),
    "a number": (b"42", "no JSON"),
    "garbage": (bytes(range(256)) * 100, "no JSON"),
    "garbage in braces": (b"{" + bytes(range(256)) * 100, "no events"),
    "compressed garbage": (b"\x1f\x8b" + bytes(range(256)), "compressed data are damaged"),
    "depth": (b"[" * 100_000, "no events"),
    "depth of objects": (b'{"a":' * 100_000, "no events"),
}


@pytest.mark.parametrize(("content", "told"), NO_TRACES.values(), ids=NO_TRACES)
def test_what_is_no_trace_is_refused_in_one_line(read: Read, content: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        read(content)
    assert "\n" not in str(raised.value)
    assert "trace.json" in str(raised.value)
