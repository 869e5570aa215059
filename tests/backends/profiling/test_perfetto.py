"""Timelines as files for Perfetto: what is written is read back, and stands where a reader looks for it."""

import json
from collections.abc import Callable
from io import BytesIO
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window
from backends.profiling.chrome_trace import read_trace
from backends.profiling.perfetto import OWN_KEY, parse_timeline, write_timeline
from backends.profiling.threads_of_trace import count_unlinked
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.trace_files import read_timeline, write_trace_file
from tests.backends.profiling.events import ns

CALL = Span("launch matmul", "host", HOST_DEVICE, "Python", ns(1), ns(1.1))
PRODUCT = Span("matmul", "compute", "cpu:1", "compute", ns(1.5), ns(2), ns(1), "dot")
COPY = Span("copy", "copy", "cpu:2", "copy", ns(2), ns(2.25))
TIMELINE = Timeline(
    "mxnet 1.9.1, async engine", (CALL, PRODUCT, COPY), (Window("run", ns(0.5), ns(2.5)),), ("Copies have no launch.",)
)

queues = st.tuples(
    st.sampled_from(("host", "cpu:1", "cpu:2", "cpu:10", "cases")), st.sampled_from(("compute", "copy 2"))
)
lengths = st.integers(0, 10**10)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@st.composite
def touching_spans(draw: st.DrawFn) -> list[Span]:
    """Spans of one queue, each beginning where the one before it ends."""
    device, queue = draw(queues)
    ends = list(accumulate(draw(st.lists(lengths, min_size=1, max_size=5))))
    starts = [0, *ends][:-1]
    kinds, launches = st.sampled_from(get_args(SpanKind)), st.none() | lengths
    return [
        Span(draw(names), draw(kinds), device, queue, start, end, draw(launches), draw(names))
        for start, end in zip(starts, ends, strict=True)
    ]


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    by_queue = {spans[0][2:4]: spans for spans in draw(st.lists(touching_spans(), min_size=1, max_size=3))}
    offset = draw(lengths)
    spans = [
        one._replace(start=one.start + offset, end=one.end + offset) for spans in by_queue.values() for one in spans
    ]
    cases = sorted(
        draw(st.lists(st.builds(Window, names, lengths, st.integers(10**10, 2 * 10**10)), max_size=3)),
        key=lambda c: c.start,
    )
    notes = tuple(draw(st.lists(names, max_size=2)))
    in_order = tuple(sorted(spans, key=lambda one: one.start))
    return Timeline(draw(names), in_order, tuple(cases), notes, experiment=draw(names))


def written(timeline: Timeline) -> dict[str, Any]:
    write_timeline(timeline, stream := BytesIO())
    found: dict[str, Any] = json.loads(stream.getvalue())
    return found


def events(document: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == phase]


@given(timelines(), st.data())
def test_what_is_written_is_read_back_and_of_a_file_that_was_cut_off_some_of_it(
    tmp_path: Path, timeline: Timeline, data: st.DataObject
) -> None:
    path = tmp_path / "trace.json"
    write_trace_file(timeline, path)
    assert parse_timeline(read_trace(path)) == timeline
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        cut = parse_timeline(read_trace(path))
    except ValueError:
        return
    assert cut.spans == timeline.spans[: len(cut.spans)]
    assert cut.cases == timeline.cases[: len(cut.cases)]


def test_a_device_is_a_process_and_a_queue_a_thread_with_the_host_first() -> None:
    document = written(TIMELINE)
    named = {
        (event["name"], event["pid"], event["tid"]): next(iter(event["args"].values()))
        for event in events(document, "M")
    }
    order = {pid: index for (name, pid, _), index in named.items() if name == "process_sort_index"}
    devices = {pid: device for (name, pid, _), device in named.items() if name == "process_name"}
    assert [devices[pid] for pid in sorted(order, key=order.__getitem__)] == ["cases", "host", "cpu:1", "cpu:2"]
    places = {
        event["name"]: (devices[event["pid"]], named["thread_name", event["pid"], event["tid"]])
        for event in events(document, "X")
    }
    assert places == {
        "run": ("cases", "cases"),
        "launch matmul": ("host", "Python"),
        "matmul": ("cpu:1", "compute"),
        "copy": ("cpu:2", "copy"),
    }
    assert document["displayTimeUnit"] == "ms"
    threads = [tid for name, _, tid in named if name == "thread_name"]
    assert len(set(threads)) == len(threads)


def test_a_span_says_how_long_it_waited_and_an_arrow_leads_to_it_from_its_launch() -> None:
    document = written(TIMELINE)
    by_name = {event["name"]: event for event in events(document, "X")}
    product, place = by_name["matmul"], itemgetter("pid", "tid", "ts")
    assert product["args"] == {"operator": "dot", "kind": "compute", "waited_us": 5e5}
    assert (product["ts"], product["dur"]) == (1.5e6, 5e5)
    (start,), (end,) = events(document, "s"), events(document, "f")
    assert (start["id"], end["bp"]) == (end["id"], "e")
    assert (place(start), place(end)) == (place(by_name["launch matmul"]), place(product))
    assert not events(written(Timeline("ours", (PRODUCT,))), "s")
    phases = [event["ph"] for event in document["traceEvents"]]
    assert phases.index("s") > max(place for place, phase in enumerate(phases) if phase == "X")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace('"schema":1', '"schema":7'), "schema 7"),
        (lambda text: text.replace('"first_event_us"', '"x"'), "damaged"),
        (lambda text: text.replace('"notes":[', '"notes":null,"x":['), "damaged"),
        (lambda text: text.replace('"kind":"copy"', '"kind":"magic"'), "unknown kind 'magic'"),
    ],
)
def test_a_file_that_was_changed_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[str], str], told: str
) -> None:
    path = tmp_path / "trace.json"
    write_trace_file(TIMELINE, path)
    path.write_text(change(path.read_text()))
    with pytest.raises(RequestError, match=told):
        read_timeline(path)


def test_what_is_counted_in_a_timeline_is_written_with_it() -> None:
    # NumPy 2 counts in integers of its own.
    counted = count_unlinked(TIMELINE, {"cpu:1", "cpu:2"})
    assert (counted.unlinked, type(counted.unlinked)) == (1, int)
    assert written(counted)[OWN_KEY]["unlinked"] == 1
