"""Lanes: few blocks for many spans, and none that looks busier than its spans were."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window, in_seconds
from parallel_core.trace_analysis.case_spans import CaseSpans, cases_of
from parallel_core.trace_analysis.lanes import (
    Block,
    block_text,
    drawn_ends,
    few_lanes,
    lanes,
    look,
    shortened,
)
from tests.backends.profiling.events import ns
from tests.parallel_core.report.plots.frameworks import many_small, mxnet_async
from tests.parallel_core.trace_analysis.synthetic import made_case

PARTS = 50
QUEUES: tuple[tuple[str, str], ...] = (
    (HOST_DEVICE, "Python"),
    ("cpu:1", "compute"),
    ("cpu:2", "compute"),
)
# From far below what can be seen to far above it.
LENGTHS = st.sampled_from((0, 1000, 10**4, 10**5, 10**6, 10**7))


@st.composite
def cases(draw: st.DrawFn) -> CaseSpans:
    """Make spans that do not overlap in their queue, of any lengths and with any gaps."""
    ends = dict.fromkeys(QUEUES, 0)
    spans = []
    kinds: st.SearchStrategy[SpanKind] = st.sampled_from(("compute", "copy", "exchange"))
    for device, queue in draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=120)):
        start = ends[device, queue] + draw(LENGTHS)
        end = ends[device, queue] = start + draw(LENGTHS)
        kind: SpanKind = "host" if device == HOST_DEVICE else draw(kinds)
        name = draw(st.sampled_from(("matmul", "add", "launch matmul", "wait")))
        spans.append(Span(name, kind, device, queue, start, end))
    return made_case(*spans)


@given(cases())
def test_blocks_follow_each_other_in_their_lane_and_no_span_and_no_busy_second_is_lost(
    case: CaseSpans,
) -> None:
    spans, shown = case.spans, lanes(case, PARTS)
    for lane in shown.lanes:
        assert all(block.start <= block.end for block in lane.blocks)
        assert all(one.end <= other.start + 1e-12 for one, other in pairwise(lane.blocks))
        assert lane.blocks[0].start >= 0
        assert lane.blocks[-1].end <= shown.seconds + 1e-12
        # A lane looks as busy as it was.
        seen = sum((block.end - block.start) * block.busy_share for block in lane.blocks)
        assert seen == pytest.approx(sum(block.busy for block in lane.blocks), abs=1e-12)
        own = [span for span in spans if f"{span.device} {span.queue}" == lane.name]
        for one in {look(span) for span in own} | {block.look for block in lane.blocks}:
            seconds = sum(span.end - span.start for span in own if look(span) == one) / 1e9
            alike = [block for block in lane.blocks if block.look == one]
            assert sum(block.busy for block in alike) == pytest.approx(seconds)
            assert sum(block.spans for block in alike) == sum(look(span) == one for span in own)
    assert sum(block.spans for lane in shown.lanes for block in lane.blocks) == len(spans)


@given(cases())
def test_what_can_be_seen_stays_as_it_is(case: CaseSpans) -> None:
    spans, shown = case.spans, lanes(case, PARTS)
    resolution = shown.seconds * 1e9 / PARTS * (1 + 1e-9)
    origin = min(span.start for span in spans)
    for lane in shown.lanes:
        own = [span for span in spans if f"{span.device} {span.queue}" == lane.name]
        found = {(block.start, block.end) for block in lane.blocks}
        long = [a for a in own if a.end - a.start > resolution]
        assert {(in_seconds(a.start - origin), in_seconds(a.end - origin)) for a in long} <= found
        free = [
            (a.end - origin, b.start - origin)
            for a, b in pairwise(own)
            if b.start - a.end > resolution
        ]
        gaps = [(in_seconds(begin), in_seconds(end)) for begin, end in free]
        for begin, end in gaps:
            assert not any(
                block.start < end - 1e-12 and block.end > begin + 1e-12 for block in lane.blocks
            )


@given(cases(), LENGTHS.map(in_seconds))
def test_a_drawing_covers_little_of_a_gap(case: CaseSpans, least: float) -> None:
    for lane in lanes(case, PARTS).lanes:
        ends = drawn_ends(lane.blocks, least)
        for block, end, following in zip(lane.blocks, ends, lane.blocks[1:], strict=False):
            assert block.end <= end <= max(block.end, block.start + least)
            assert end - block.end <= max(0.0, following.start - block.end) / 4 + 1e-12


def test_many_spans_become_few_blocks_of_honest_colour() -> None:
    (case,) = cases_of(many_small(100_000))
    shown = lanes(case)
    assert shown.count < 2000
    dense, sparse = shown.lanes
    assert all(block.busy_share == pytest.approx(0.8, abs=0.01) for block in dense.blocks)
    assert all(block.busy_share == pytest.approx(0.08, abs=0.01) for block in sparse.blocks)
    assert dense.blocks[0].label == f"{dense.blocks[0].spans} × add"


def test_kinds_that_alternate_fast_keep_their_shares() -> None:
    kinds: tuple[tuple[SpanKind, int, int], ...] = (("compute", 0, 3000), ("copy", 3000, 4000))
    spans = (
        Span(kind, kind, "cpu:1", "compute", turn + start, turn + end)
        for turn in range(0, 40_000_000, 4000)
        for kind, start, end in kinds
    )
    (lane,) = lanes(made_case(*spans)).lanes
    assert 2000 < len(lane.blocks) < 4000
    computing, copying = (
        sum(b.end - b.start for b in lane.blocks if b.look == kind) for kind in ("compute", "copy")
    )
    assert computing == pytest.approx(3 * copying)


def test_there_are_as_few_blocks_as_asked_for() -> None:
    (case,) = cases_of(many_small(2000))
    few = few_lanes(case, 600)
    assert (lanes(case).count, few.count <= 600) == (2000, True)
    assert sum(block.spans for lane in few.lanes for block in lane.blocks) == 2000


RANKS = [
    (f"rank {rank} {device}", "queue")
    for rank in (0, 2, 10)
    for device in (HOST_DEVICE, "gpu:2", "gpu:10")
]
DEVICES = [
    *(
        (HOST_DEVICE, "Python"),
        (HOST_DEVICE, "waits"),
        ("cpu", "calling thread"),
        ("cpu:2", "compute"),
    ),
    *(("cpu:2", "compute 2"), ("cpu:2", "copy"), ("cpu:10", "compute")),
]


# The launches of several ranks come from as many hosts.
@pytest.mark.parametrize(
    ("places", "linked"), [(DEVICES, True), (RANKS, False)], ids=["devices", "ranks"]
)
def test_the_host_comes_first_devices_by_number_and_the_lanes_of_a_rank_together(
    places: list[tuple[str, str]], linked: bool
) -> None:
    spans = (
        Span("x", "host" if place[0].endswith("host") else "copy", *place, 1, 2, 0)
        for place in places[::-1]
    )
    shown = lanes(made_case(*spans))
    assert [lane.name for lane in shown.lanes] == [" ".join(place) for place in places]
    assert bool(shown.launches) == linked


def test_time_begins_at_the_first_launch() -> None:
    spans = (
        Span("waitall", "host", HOST_DEVICE, "Python", ns(7.0), ns(7.5)),
        Span("a", "copy", "cpu:1", "copy", ns(9), ns(10), ns(8)),
    )
    (case,) = cases_of(Timeline("made up", spans, (Window("case", ns(6), ns(11)),)))
    shown = lanes(case)
    (lane,) = shown.lanes
    assert (shown.seconds, lane.blocks[0].start, lane.blocks[0].waited) == (2.0, 1.0, 1.0)
    assert shown.launches == ((0.0, 1.0, "cpu:1 copy"),)


def test_launches_are_told_where_they_are_few() -> None:
    few, many = (lanes(cases_of(mxnet_async(products))[2]) for products in (20, 21))
    assert (len(few.launches), many.launches) == (40, ())


def test_a_block_says_what_ran_when_and_how_long_it_waited_and_long_names_keep_both_ends() -> None:
    names = ["add"] * 4 + ["multiply"] * 2 + ["relu"]
    short = [
        Span(name, "compute", "cpu:1", "compute", n * 1000, (n + 1) * 1000)
        for n, name in enumerate(names)
    ]
    long = Span("matmul", "compute", "cpu:1", "compute", ns(1), ns(2), None, "aten::mm")
    longest = Span("kernel<" * 40, "compute", "cpu:1", "compute", ns(3), ns(4))
    *labels, last = (
        block.label for block in lanes(made_case(*short, long, longest)).lanes[0].blocks
    )
    assert labels == ["7 × add, multiply, …", "matmul (aten::mm)"]
    assert len(last) == 120
    assert shortened("kernel<kernel<float>", 20) == "kernel<kernel<float>"
    assert shortened("kernel<kernel<float>", 11) == "kerne…loat>"
    one = Block(0.001, 0.003, "compute", "matmul", 1, 0.002, 0.0005)
    assert block_text(one) == "matmul\n2.00 ms from 1 ms\n500 μs from launch to start"
    many = one._replace(label="5 × matmul", spans=5, busy=0.001)
    assert (
        block_text(many)
        == "5 × matmul\n2.00 ms from 1 ms, 50 % of it busy\nat most 500 μs from launch to start"
    )
    assert block_text(one._replace(waited=None)) == "matmul\n2.00 ms from 1 ms"
