"""Packed timelines: every number comes back exactly, in few bytes."""

from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window
from parallel_core.report.timeline_page.packing import pack
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.critical_path import critical_path
from tests.parallel_core.report.timeline_page.made_up import NASTY, busy, plain, unpack
from tests.parallel_core.trace_analysis.frameworks import mxnet_async, torch_sync

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


@given(timelines())
def test_spans_come_back_as_they_were(timeline: Timeline) -> None:
    assert unpack(pack(timeline)).lanes == plain(timeline)


def test_the_critical_path_comes_back_with_its_lanes() -> None:
    timeline = mxnet_async()
    unpacked = unpack(pack(timeline))
    assert [name for name, *_ in unpacked.cases] == [case.name for case in timeline.cases]
    first = min(timeline.spans[0].start, timeline.cases[0].start)
    lanes = [(device, queue) for device, queue, _ in unpacked.lanes]
    found = [(start, end, lanes[lane] if lane >= 0 else None) for start, end, lane in unpacked.path]
    segments = [segment for case in cases_of(timeline) for segment in critical_path(case)]
    assert len(found) < len(segments)
    for start, end, span in segments:
        queue = span and (span.device, span.queue)
        assert any(a <= start - first and end - first <= b and queue == lane for a, b, lane in found)


def test_what_follows_on_a_lane_is_one_stretch_of_the_path() -> None:
    spans = tuple(Span("add", "compute", "cpu:1", "compute", at, at + 10) for at in range(0, 100, 10))
    assert unpack(pack(Timeline("made up", spans))).path == [[0, 100, 0]]


def test_an_empty_timeline_and_one_of_empty_cases_are_packed() -> None:
    assert unpack(pack(Timeline("made up", ()))) == ([], [], [])
    assert unpack(pack(Timeline("made up", (), (Window("run", 5, 9),)))) == ([], [["run", 0, 4]], [])


def test_long_names_lose_their_middle() -> None:
    (lane,) = unpack(pack(Timeline("made up", (Span("a" * 400 + "z", "compute", "gpu:0", "stream 7", 0, 1),)))).lanes
    assert lane[2][0][0] == "a" * 150 + "…" + "a" * 148 + "z"


def test_a_span_takes_about_ten_bytes() -> None:
    assert len(pack(busy(20_000))) < 11 * 20_000


def test_the_same_timeline_gives_the_same_bytes() -> None:
    assert pack(torch_sync()) == pack(torch_sync())
