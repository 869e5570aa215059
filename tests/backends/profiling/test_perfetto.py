"""Timelines as files for Perfetto: what is written is read back, and stands where a reader looks
for it.
"""

import json
from io import BytesIO
from operator import attrgetter, itemgetter
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
    "mxnet 1.9.1, async engine",
    (CALL, PRODUCT, COPY),
    (Window("run", ns(0.5), ns(2.5)),),
    ("Copies have no launch.",),
)

times = st.integers(0, 10**10)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
spans = st.builds(
    lambda start, length, *names: Span(*names[:4], start, start + length, *names[4:]),
    times,
    times,
    names,
    st.sampled_from(get_args(SpanKind)),
    st.sampled_from(("host", "cpu:1", "cpu:2", "cpu:10", "cases")),
    st.sampled_from(("compute", "copy 2")),
    st.none() | times,
    names,
)
windows = st.builds(
    lambda name, start, length: Window(name, start, start + length), names, times, times
)


def in_order(strategy: st.SearchStrategy[Any], least: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=least, max_size=9).map(
        lambda some: tuple(sorted(some, key=attrgetter("start")))
    )


timelines = st.builds(
    Timeline,
    names,
    in_order(spans, least=1),
    in_order(windows, least=0),
    st.lists(names, max_size=2).map(tuple),
    experiment=names,
)


def written(timeline: Timeline) -> dict[str, Any]:
    write_timeline(timeline, stream := BytesIO())
    found: dict[str, Any] = json.loads(stream.getvalue())
    return found


def events(document: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == phase]


@given(timelines, st.data())
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
    assert document["displayTimeUnit"] == "ms"
    said = {
        (one["name"], one["pid"], one["tid"]): next(iter(one["args"].values()))
        for one in events(document, "M")
    }
    devices = {pid: device for (what, pid, _), device in said.items() if what == "process_name"}
    order = {
        index: devices[pid]
        for (what, pid, _), index in said.items()
        if what == "process_sort_index"
    }
    assert [order[index] for index in sorted(order)] == ["cases", "host", "cpu:1", "cpu:2"]
    threads = {
        tid: (devices[pid], queue)
        for (what, pid, tid), queue in said.items()
        if what == "thread_name"
    }
    assert {event["name"]: threads[event["tid"]] for event in events(document, "X")} == {
        "run": ("cases", "cases"),
        "launch matmul": ("host", "Python"),
        "matmul": ("cpu:1", "compute"),
        "copy": ("cpu:2", "copy"),
    }
    assert all(threads[event["tid"]][0] == devices[event["pid"]] for event in events(document, "X"))


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
    phases = "".join(event["ph"] for event in document["traceEvents"])
    assert phases.rindex("X") < phases.index("s")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"schema":1', '"schema":7', "schema 7"),
        ('"first_event_us"', '"x"', "damaged"),
        ('"notes":[', '"notes":null,"x":[', "damaged"),
        ('"kind":"copy"', '"kind":"magic"', "unknown kind 'magic'"),
    ],
)
def test_a_file_that_was_changed_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    path = tmp_path / "trace.json"
    write_trace_file(TIMELINE, path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RequestError, match=told):
        read_timeline(path)


def test_what_is_counted_in_a_timeline_is_written_with_it() -> None:
    # NumPy 2 counts in integers of its own.
    counted = count_unlinked(TIMELINE, {"cpu:1", "cpu:2"})
    assert (counted.unlinked, type(counted.unlinked)) == (1, int)
    assert written(counted)[OWN_KEY]["unlinked"] == 1
