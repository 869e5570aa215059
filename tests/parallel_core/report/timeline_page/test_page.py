"""The page of timelines: one small file, nothing from outside, the figures in tables.

Every name is text, and every number comes back exactly from what was packed.
"""

import re
from base64 import b64decode
from dataclasses import replace
from itertools import chain, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window
from parallel_core.report.timeline_page import packing, render
from parallel_core.report.timeline_page.packing import first_time, pack
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.critical_path import critical_path
from parallel_core.trace_analysis.trace_files import read_timeline
from tests.parallel_core.report.pages import Parsed
from tests.parallel_core.report.plots.frameworks import mxnet_async, torch_async, torch_sync
from tests.parallel_core.report.timeline_page.made_up import NASTY, Unpacked, busy, page, plain, unpack
from tests.parallel_core.trace_analysis.synthetic import overlap_timeline
from tests.parallel_core.trace_analysis.test_ranks import GPUS

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


def test_an_empty_timeline_and_one_of_empty_cases_are_packed_and_shown() -> None:
    assert packed(Timeline("made up", ())) == ([], [], [])
    assert "0 spans" in page({"": Timeline("made up", ())})
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


def test_names_are_text_wherever_they_stand_and_nothing_comes_from_outside() -> None:
    spans = (
        Span(NASTY, "compute", f"gpu:0 {NASTY}", f"stream {NASTY}", 0, 10, 0, NASTY + "2"),
        Span("copy", "copy", f"gpu:0 {NASTY}", f"stream {NASTY}", 10, 20, 1),
    )
    timeline = Timeline(NASTY, spans, (), (NASTY,))
    text = page({NASTY: timeline})
    parsed = Parsed(text)
    assert NASTY not in text
    assert "b" not in parsed.tags
    assert parsed.texts.count(NASTY) >= 3
    assert {NASTY[:-14], f"gpu:0 {NASTY} stream {NASTY}"} <= set(parsed.texts)
    assert plain(timeline) == unpack(b64decode(parsed.packed[0])).own
    assert parsed.addresses == ["data:,"]
    assert re.findall(r"https?:|@import|url\(|fetch\(|XMLHttp", text) == []


def test_each_timeline_has_its_lanes_and_its_figures() -> None:
    texts = Parsed(page({"rank 0": mxnet_async(), "rank 1": torch_async()})).texts
    assert texts.count("rank 0") == texts.count("rank 1") == 2
    assert "run and copy together: 65.0 ms; one after the other its operations take 110 ms" in texts
    for lane in ("cpu:2 compute", "cpu:1 copy"):
        assert lane in texts
    phrase = "“run and copy together”: 65.0 ms, 1.7 queues at once, 90 % of communication under computation"
    assert texts.count(phrase) == 2
    for heading in ("Queues", "Kinds", "Operations that took the most time", "Critical path"):
        assert texts.count(heading) == 6


@pytest.mark.parametrize(
    ("experiment", "together", "key"),
    [
        ("overlap", False, "overlap: run and copy together: "),
        # An experiment of another version has no case that is known.
        ("nonsense", True, "nonsense: run and copy together: "),
        ("nonsense", False, "nonsense: run: "),
        ("", True, "run and copy together: "),
    ],
)
def test_the_page_is_titled_by_the_experiment_and_opens_its_case(experiment: str, together: bool, key: str) -> None:
    made = replace(overlap_timeline(together=together), experiment=experiment)
    assert any(text.startswith(key) for text in Parsed(page({"": made})).texts)


def test_the_operations_that_took_the_most_time_come_first() -> None:
    spans = [Span(f"kernel {n}", "compute", "gpu:0", "stream 7", 100 * n, 100 * n + n) for n in range(1, 21)]
    text = page({"": Timeline("made up", tuple(spans))})
    _, _, table = text.partition("<h4>Operations that took the most time</h4>")
    rows = re.findall(r'class="cut"[^>]*><span>(.*?)</span><span>(.*?)</span>', table.partition("</table>")[0])
    assert list(map("".join, rows)) == [f"kernel {n}" for n in range(20, 5, -1)]
    assert "5 more names took less." in text


def test_steps_and_those_unlike_the_others_are_told() -> None:
    spans = tuple(Span("gemm", "compute", "gpu:0", "stream 7", at, at + 10_000, at) for at in range(0, 10**6, 10**5))
    starts = range(0, 10**6, 10**5)
    steps = [Window(f"ProfilerStep#{n}", at, at + 10**5 if n < 9 else 3 * 10**6) for n, at in enumerate(starts)]
    texts = Parsed(page({"": Timeline("made up", spans, annotations=tuple(steps))})).texts
    assert texts.count("ProfilerStep#9"[-14:]) == 1
    assert {"Unlike the other steps: ProfilerStep#9, time 21 × the median.", "annotations"} <= set(texts)


def test_several_timelines_count_from_the_same_time() -> None:
    ranks = {
        f"rank {rank}": Timeline("made up", (Span("gemm", "compute", "gpu:0", "stream 7", 10 * rank, 30),))
        for rank in (1, 2)
    }
    first, second = (unpack(b64decode(packed)).own for packed in Parsed(page(ranks)).packed)
    assert (first, second) == (plain(ranks["rank 1"], 10), plain(ranks["rank 2"], 10))
    text = render(ranks, dict.fromkeys(ranks, ()), {"rank 1": 100})
    first, second = (unpack(b64decode(packed)).own for packed in Parsed(text).packed)
    assert (first, second) == (plain(ranks["rank 1"], -80), plain(ranks["rank 2"], 20))


def test_what_bounds_the_path_of_a_real_trace_is_told() -> None:
    timeline = read_timeline(GPUS / "rank-0.json.gz")
    texts = Parsed(page({"": timeline})).texts
    causes = texts[texts.index("What bounds the critical path") :]
    assert "the host works" in causes
    for heading in ("Steps", "What idle queues waited for", "Launched and not begun"):
        assert heading in texts
    for name in ("ProfilerStep#551", "annotations", "critical path"):
        assert any(name[-14:] in one for one in texts)
