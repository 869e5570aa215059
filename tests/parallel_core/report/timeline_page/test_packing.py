"""Packed timelines: every number comes back exactly, in few bytes."""

from itertools import chain, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window
from parallel_core.report.timeline_page import packing
from parallel_core.report.timeline_page.packing import first_time, pack
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.critical_path import critical_path
from tests.parallel_core.report.plots.frameworks import mxnet_async, torch_sync
from tests.parallel_core.report.timeline_page.made_up import NASTY, Unpacked, busy, plain, unpack

QUEUES = ((HOST_DEVICE, "Python"), ("gpu:0", "stream 7"), ("gpu:10", "stream 7"))
TIMES = st.integers(-(2**52), 2**52)
LENGTHS = st.one_of(st.integers(0, 300), st.integers(0, 2**52))


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Make spans at any times, which may even overlap, launched before or after they began."""
    kinds: st.SearchStrategy[SpanKind] = st.sampled_from(("compute", "copy", "exchange"))
    spans = []
    for device, queue in draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=30)):
        start = draw(TIMES)
        kind: SpanKind = "host" if device == HOST_DEVICE else draw(kinds)
        name, operator = draw(st.text(max_size=8)), draw(st.sampled_from(("", "aten::mm", NASTY)))
        launched = draw(st.none() | TIMES)
        spans.append(Span(name, kind, device, queue, start, start + draw(LENGTHS), launched, operator))
    return Timeline("made up", tuple(sorted(spans, key=lambda span: span.start)))


def packed(timeline: Timeline, origin: int | None = None) -> Unpacked:
    lanes, looks, data = pack(timeline, first_time(timeline) if origin is None else origin)
    unpacked = unpack(data)
    assert looks == {one for *_, spans in unpacked.lanes for _, _, one, *_ in spans}
    assert [tuple(queue) for *queue, _ in unpacked.lanes] == lanes
    return unpacked


@given(timelines())
def test_spans_come_back_as_they_were(timeline: Timeline) -> None:
    assert packed(timeline).own == plain(timeline)


def test_the_critical_path_comes_back_with_its_lanes() -> None:
    timeline = mxnet_async()
    unpacked = packed(timeline)
    assert [name for name, *_ in unpacked.cases] == [case.name for case in timeline.cases]
    first = first_time(timeline)
    assert first == timeline.cases[0].start
    wanted = [
        [[span.name, span.start - first, span.end - first, span.device, span.queue] for span in critical_path(case)]
        for case in cases_of(timeline)
    ]
    names = [name for path in wanted for name, _ in groupby(name for name, *_ in path)]
    assert [name for name, *_ in unpacked.path] == names
    for name, start, end, *queue in chain(*wanted):
        assert any(name == other and a <= start and end <= b and queue == lane for other, a, b, *lane in unpacked.path)


def test_what_follows_on_a_lane_under_one_name_is_one_stretch_of_the_path() -> None:
    names = ("add", "add", "add", "matmul", "matmul")
    spans = tuple(Span(name, "compute", "cpu:1", "compute", 10 * n, 10 * n + 10, n) for n, name in enumerate(names))
    assert packed(Timeline("made up", spans)).path == [
        ["add", 0, 30, "cpu:1", "compute"],
        ["matmul", 30, 50, "cpu:1", "compute"],
    ]


def test_a_path_over_a_thread_without_spans_has_a_lane_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Span("cudaDeviceSynchronize", "host", HOST_DEVICE, "a thread", 3, 9)
    # What goes on under the same name on another lane is another stretch.
    lanes = [(device, "a thread") for device in (HOST_DEVICE, "gpu:0", "gpu:1")]
    path = [call._replace(device=device, start=3 + n, end=4 + n) for n, (device, _) in enumerate(lanes)]
    monkeypatch.setattr(packing, "critical_path", lambda _: path)
    unpacked = packed(Timeline("made up", (Span("add", "compute", "cpu:1", "compute", 0, 10),)))
    assert unpacked.path == [["cudaDeviceSynchronize", 3 + n, 4 + n, *lane] for n, lane in enumerate(lanes)]
    assert [lane[:2] for lane in unpacked.own] == [list(lanes[0]), ["cpu:1", "compute"], *map(list, lanes[1:])]


def test_an_empty_timeline_and_one_of_empty_cases_are_packed() -> None:
    assert packed(Timeline("made up", ())) == ([], [], [])
    lanes, cases, path = packed(Timeline("made up", (), (Window("run", 5, 9),)))
    assert (lanes, cases, path) == ([["", "cases", [["run", "", "mark", 0, 4, None]]]], [["run", 0, 4]], [])


def test_annotations_in_each_other_get_lanes_below_each_other() -> None:
    names = (("forward", 10, 50), ("step", 10, 100), ("other thread", 40, 120), ("step", 100, 190))
    spans = (Span("add", "compute", "cpu:1", "compute", 0, 10),)
    timeline = Timeline("made up", spans, annotations=tuple(Window(*one) for one in names))
    found = [(queue, [(one[0], *one[3:5]) for one in spans]) for _, queue, spans in packed(timeline).own]
    assert found == [
        ("annotations", [("step", 10, 100), ("step", 100, 190)]),
        ("annotations 2", [("forward", 10, 50)]),
        ("annotations 3", [("other thread", 40, 120)]),
        ("compute", [("add", 0, 10)]),
    ]


def test_times_count_from_the_origin_and_long_names_lose_their_middle() -> None:
    name = "a" * 400 + "z"
    timeline = Timeline("made up", (Span(name, "compute", "cpu:1", "compute", 70, 90, 60),))
    short = "a" * 150 + "…" + "a" * 148 + "z"
    assert packed(timeline, 50).own == [["cpu:1", "compute", [[short, "", "compute", 20, 40, 10]]]]


def test_a_span_takes_about_ten_bytes_the_same_each_time() -> None:
    assert len(pack(busy(20_000), 0).data) < 11 * 20_000
    assert pack(torch_sync(), 0) == pack(torch_sync(), 0)
