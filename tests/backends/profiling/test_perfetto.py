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

from backends.profiling import HOST_DEVICE, Doubt, Span, SpanKind, Timeline, Window
from backends.profiling.chrome_trace import read_trace
from backends.profiling.perfetto import OWN_KEY, parse_timeline, write_timeline
from backends.profiling.threads_of_trace import count_unlinked
from parallel_core.system.errors import RequestError
from parallel_core.traces.trace_files import read_timeline, write_trace_file
from tests.backends.profiling.events import ns

CALL = Span("launch matmul", "host", HOST_DEVICE, "Python", ns(1), ns(1.1))
PRODUCT = Span("matmul", "compute", "cpu:1", "compute", ns(1.5), ns(2), ns(1), "dot")
COPY = Span("copy", "copy", "cpu:2", "copy", ns(2), ns(2.25))
TIMELINE = Timeline(
    "mxnet 1.9.1, async engine",
    (CALL, PRODUCT, COPY),
    (Window("run", ns(0.5), ns(2.5)),),
    (Doubt("unlinked", "Copies have no launch."),),
)

times = st.integers(0, 10**10)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


kinds = st.sampled_from(get_args(SpanKind))
devices = st.sampled_from(("host", "cpu:1", "cpu:2", "cpu:10", "cases"))
queues = st.sampled_from(("compute", "copy 2"))
# Their ends are drawn as lengths.
spans = st.builds(Span, names, kinds, devices, queues, times, times, st.none() | times, names)
windows = st.builds(Window, names, times, times)


def in_order(strategy: st.SearchStrategy[Any], least: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw tuples of spans or windows, in the order of their start."""

    def sort(drawn: list[Any]) -> tuple[Any, ...]:
        ended = [span._replace(end=span.start + span.end) for span in drawn]
        return tuple(sorted(ended, key=attrgetter("start")))

    return st.lists(strategy, min_size=least, max_size=9).map(sort)


timelines = st.builds(
    Timeline,
    names,
    in_order(spans, least=1),
    in_order(windows, least=0),
    st.lists(st.builds(Doubt, names, names), max_size=2).map(tuple),
    experiment=names,
)


def written(timeline: Timeline) -> dict[str, Any]:
    """Write a timeline, and return the JSON document."""
    stream = BytesIO()
    write_timeline(timeline, stream)
    document: dict[str, Any] = json.loads(stream.getvalue())
    return document


def events(document: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    """List a document's events of one phase: "X" is a slice, "M" a name, "s" and "f" an arrow."""
    return [event for event in document["traceEvents"] if event["ph"] == phase]


@given(timelines, st.data())
def test_what_is_written_is_read_back_and_of_a_file_that_was_cut_off_some_of_it(
    tmp_path: Path, timeline: Timeline, data: st.DataObject
) -> None:
    path = tmp_path / "trace.json"
    write_trace_file(timeline, path)
    assert parse_timeline(read_trace(path)) == timeline

    content = path.read_bytes()
    length = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:length])
    try:
        beginning = parse_timeline(read_trace(path))
    except ValueError:
        # Too little is left.
        return
    assert beginning.spans == timeline.spans[: len(beginning.spans)]
    assert beginning.cases == timeline.cases[: len(beginning.cases)]


def test_a_device_is_a_process_and_a_queue_a_thread_with_the_host_first() -> None:
    document = written(TIMELINE)
    assert document["displayTimeUnit"] == "ms"
    devices: dict[int, str] = {}
    sort_indices: dict[int, int] = {}
    process_and_queue_by_thread: dict[int, tuple[int, str]] = {}
    for event in events(document, "M"):
        match event["name"]:
            case "process_name":
                devices[event["pid"]] = event["args"]["name"]
            case "process_sort_index":
                sort_indices[event["pid"]] = event["args"]["sort_index"]
            case "thread_name":
                queue = event["args"]["name"]
                process_and_queue_by_thread[event["tid"]] = (event["pid"], queue)

    processes_in_order = sorted(sort_indices, key=sort_indices.__getitem__)
    devices_in_order = [devices[process] for process in processes_in_order]
    assert devices_in_order == ["cases", "host", "cpu:1", "cpu:2"]
    rows = {}
    for event in events(document, "X"):
        process, queue = process_and_queue_by_thread[event["tid"]]
        assert process == event["pid"]
        rows[event["name"]] = (devices[process], queue)
    assert rows == {
        "run": ("cases", "cases"),
        "launch matmul": ("host", "Python"),
        "matmul": ("cpu:1", "compute"),
        "copy": ("cpu:2", "copy"),
    }


def test_a_span_says_how_long_it_waited_and_an_arrow_leads_to_it_from_its_launch() -> None:
    document = written(TIMELINE)
    slices = {event["name"]: event for event in events(document, "X")}
    call, product = slices["launch matmul"], slices["matmul"]
    assert product["args"] == {"operator": "dot", "kind": "compute", "waited_us": 5e5}
    assert product["ts"] == 1.5e6
    assert product["dur"] == 5e5

    (arrow_start,) = events(document, "s")
    (arrow_end,) = events(document, "f")
    row_and_time = itemgetter("pid", "tid", "ts")
    assert row_and_time(arrow_start) == row_and_time(call)
    assert row_and_time(arrow_end) == row_and_time(product)
    assert arrow_start["id"] == arrow_end["id"]
    # It ends at the slice that encloses its end.
    assert arrow_end["bp"] == "e"


def test_without_its_launch_a_span_has_no_arrow() -> None:
    assert events(written(Timeline("ours", (PRODUCT,))), "s") == []


def test_arrows_stand_behind_all_slices() -> None:
    phases = "".join(event["ph"] for event in written(TIMELINE)["traceEvents"])
    assert phases.rindex("X") < phases.index("s")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"schema":1', '"schema":7', "schema 7"),
        ('"first_event_us"', '"x"', "damaged"),
        ('"notes":[', '"notes":null,"x":[', "damaged"),
        ('"code":', '"x":', "damaged"),
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


def test_notes_of_older_files_have_a_code(tmp_path: Path) -> None:
    document = written(TIMELINE)
    document[OWN_KEY]["notes"] = ["A sentence."]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert read_timeline(path).notes == (Doubt("by-the-reader", "A sentence."),)


def test_what_is_counted_in_a_timeline_is_written_with_it() -> None:
    counted = count_unlinked(TIMELINE, {"cpu:1", "cpu:2"})
    assert counted.unlinked == 1
    # NumPy 2 counts in integers of its own.
    assert type(counted.unlinked) is int
    assert written(counted)[OWN_KEY]["unlinked"] == 1
