"""Lanes: few blocks for many spans, and none that looks busier than its spans were."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window, in_seconds
from backends.profiling.kernel_names import shortened
from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.lanes import (
    Block,
    Lane,
    block_text,
    drawn_ends,
    few_lanes,
    lanes,
    look,
)
from tests.backends.profiling.events import ns
from tests.parallel_core.report.plots.frameworks import many_small, mxnet_async
from tests.parallel_core.traces.synthetic import made_case, queue_of

PARTS = 50
ROUNDING = 1e-12
"""What a sum of seconds may be wrong by."""
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


def spans_of_lane(case: CaseSpans, lane: Lane) -> list[Span]:
    """Return the spans of the queue that a lane shows, in their order."""
    return [span for span in case.spans if f"{span.device} {span.queue}" == lane.name]


@given(cases())
def test_blocks_follow_each_other_in_their_lane(case: CaseSpans) -> None:
    shown = lanes(case, PARTS)
    for lane in shown.lanes:
        for block in lane.blocks:
            assert block.start <= block.end
        for block, following in pairwise(lane.blocks):
            assert block.end <= following.start + ROUNDING
        assert lane.blocks[0].start >= 0
        assert lane.blocks[-1].end <= shown.seconds + ROUNDING


@given(cases())
def test_no_span_and_no_busy_second_is_lost(case: CaseSpans) -> None:
    span_count = 0
    for lane in lanes(case, PARTS).lanes:
        # A lane looks as busy as it was.
        drawn_busy = sum((block.end - block.start) * block.busy_share for block in lane.blocks)
        busy = sum(block.busy for block in lane.blocks)
        assert drawn_busy == pytest.approx(busy, abs=ROUNDING)

        spans = spans_of_lane(case, lane)
        looks = {look(span) for span in spans} | {block.look for block in lane.blocks}
        for shown_look in looks:
            spans_of_look = [span for span in spans if look(span) == shown_look]
            blocks_of_look = [block for block in lane.blocks if block.look == shown_look]
            nanoseconds = sum(span.end - span.start for span in spans_of_look)
            busy_of_look = sum(block.busy for block in blocks_of_look)
            assert busy_of_look == pytest.approx(nanoseconds / 1e9)
            assert sum(block.spans for block in blocks_of_look) == len(spans_of_look)
        span_count += sum(block.spans for block in lane.blocks)
    assert span_count == len(case.spans)


@given(cases())
def test_what_can_be_seen_stays_as_it_is(case: CaseSpans) -> None:
    shown = lanes(case, PARTS)
    resolution = shown.seconds * 1e9 / PARTS * (1 + 1e-9)
    origin = min(span.start for span in case.spans)

    for lane in shown.lanes:
        spans = spans_of_lane(case, lane)
        drawn = {(block.start, block.end) for block in lane.blocks}
        for span in spans:
            if span.end - span.start > resolution:
                assert (in_seconds(span.start - origin), in_seconds(span.end - origin)) in drawn

        for span, following in pairwise(spans):
            if following.start - span.end <= resolution:
                continue
            gap_start = in_seconds(span.end - origin)
            gap_end = in_seconds(following.start - origin)
            for block in lane.blocks:
                assert block.end <= gap_start + ROUNDING or block.start >= gap_end - ROUNDING


@given(cases(), LENGTHS.map(in_seconds))
def test_a_drawing_covers_little_of_a_gap(case: CaseSpans, least: float) -> None:
    for lane in lanes(case, PARTS).lanes:
        ends = drawn_ends(lane.blocks, least)
        for block, end, following in zip(lane.blocks, ends, lane.blocks[1:], strict=False):
            assert block.end <= end <= max(block.end, block.start + least)
            gap = max(0.0, following.start - block.end)
            assert end - block.end <= gap / 4 + ROUNDING


def test_many_spans_become_few_blocks_of_honest_colour() -> None:
    (case,) = cases_of(many_small(100_000))
    shown = lanes(case)
    assert shown.count < 2000
    dense, sparse = shown.lanes
    for block in dense.blocks:
        assert block.busy_share == pytest.approx(0.8, abs=0.01)
    for block in sparse.blocks:
        assert block.busy_share == pytest.approx(0.08, abs=0.01)
    assert dense.blocks[0].label == f"{dense.blocks[0].spans} × add"


def test_kinds_that_alternate_fast_keep_their_shares() -> None:
    # In microseconds.
    starts = range(0, 40_000, 4)
    computing = queue_of([(start / 1e6, (start + 3) / 1e6) for start in starts])
    copying = queue_of([((start + 3) / 1e6, (start + 4) / 1e6) for start in starts], "copy")
    (lane,) = lanes(made_case(*computing, *copying)).lanes
    assert 2000 < len(lane.blocks) < 4000
    drawn_seconds = {"compute": 0.0, "copy": 0.0}
    for block in lane.blocks:
        drawn_seconds[block.look] += block.end - block.start
    assert drawn_seconds["compute"] == pytest.approx(3 * drawn_seconds["copy"])


def test_there_are_as_few_blocks_as_asked_for() -> None:
    (case,) = cases_of(many_small(2000))
    assert lanes(case).count == 2000
    assert few_lanes(case, 600).count <= 600


RANKS = [
    (f"rank {rank} {device}", "queue")
    for rank, device in product((0, 2, 10), ("host", "gpu:2", "gpu:10"))
]
DEVICES = [
    (HOST_DEVICE, "Python"),
    (HOST_DEVICE, "waits"),
    ("cpu", "calling thread"),
    ("cpu:2", "compute"),
    ("cpu:2", "compute 2"),
    ("cpu:2", "copy"),
    ("cpu:10", "compute"),
]


# The launches of several ranks come from as many hosts.
@pytest.mark.parametrize(
    ("queues", "are_launches_shown"),
    [(DEVICES, True), (RANKS, False)],
    ids=["devices", "ranks"],
)
def test_the_host_comes_first_devices_by_number_and_the_lanes_of_a_rank_together(
    queues: list[tuple[str, str]], are_launches_shown: bool
) -> None:
    spans = []
    for device, queue in reversed(queues):
        kind: SpanKind = "host" if device.endswith("host") else "copy"
        spans.append(Span("x", kind, device, queue, 1, 2, launched=0))
    shown = lanes(made_case(*spans))
    assert [lane.name for lane in shown.lanes] == [f"{device} {queue}" for device, queue in queues]
    assert bool(shown.launches) == are_launches_shown


def test_time_begins_at_the_first_launch() -> None:
    spans = (
        Span("waitall", "host", HOST_DEVICE, "Python", ns(7.0), ns(7.5)),
        Span("a", "copy", "cpu:1", "copy", ns(9), ns(10), ns(8)),
    )
    (case,) = cases_of(Timeline("made up", spans, (Window("case", ns(6), ns(11)),)))
    shown = lanes(case)
    assert shown.seconds == 2
    (lane,) = shown.lanes
    (block,) = lane.blocks
    assert block.start == 1
    assert block.waited == 1
    assert shown.launches == ((0.0, 1.0, "cpu:1 copy"),)


def test_launches_are_told_where_they_are_few() -> None:
    def launches_of_both(products: int) -> tuple[object, ...]:
        *_, both = cases_of(mxnet_async(products))
        return lanes(both).launches

    assert len(launches_of_both(20)) == 40
    assert launches_of_both(21) == ()


def test_a_block_is_labelled_with_what_ran() -> None:
    names = ["add"] * 4 + ["multiply"] * 2 + ["relu"]
    short_spans = [
        Span(name, "compute", "cpu:1", "compute", n * 1000, (n + 1) * 1000)
        for n, name in enumerate(names)
    ]
    multiplication = Span("matmul", "compute", "cpu:1", "compute", ns(1), ns(2), None, "aten::mm")
    long_name = Span("kernel<" * 40, "compute", "cpu:1", "compute", ns(3), ns(4))

    (lane,) = lanes(made_case(*short_spans, multiplication, long_name)).lanes

    several, single, cut = (block.label for block in lane.blocks)
    assert several == "7 × add, multiply, …"
    assert single == "matmul (aten::mm)"
    assert len(cut) == 120


def test_long_names_keep_both_ends() -> None:
    assert shortened("kernel<kernel<float>", 20) == "kernel<kernel<float>"
    assert shortened("kernel<kernel<float>", 11) == "kerne…loat>"


BLOCK = Block(
    start=0.001, end=0.003, look="compute", label="matmul", spans=1, busy=0.002, waited=0.0005
)


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        (BLOCK, ["matmul", "2.00 ms from 1 ms", "500 μs from launch to start"]),
        (BLOCK._replace(waited=None), ["matmul", "2.00 ms from 1 ms"]),
        (
            BLOCK._replace(label="5 × matmul", spans=5, busy=0.001),
            [
                "5 × matmul",
                "2.00 ms from 1 ms, 50 % of it busy",
                "at most 500 μs from launch to start",
            ],
        ),
    ],
    ids=["one operation", "one without a launch", "several"],
)
def test_a_block_says_what_ran_when_and_how_long_it_waited(block: Block, lines: list[str]) -> None:
    assert block_text(block).splitlines() == lines
