"""Pictures of timelines: all cases on one scale, a lane for each queue, nothing hidden unsaid."""

from dataclasses import replace
from itertools import chain, pairwise

import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core import RequestError
from parallel_core.report.plots import as_svg
from parallel_core.report.plots.timeline import MAX_PANELS
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.lanes import block_text, lanes
from tests.backends.profiling.events import ns
from tests.parallel_core.report.plots.drawn import Box, Drawn
from tests.parallel_core.report.plots.frameworks import (
    CASES,
    many_queues,
    many_small,
    mxnet_async,
    torch_async,
    torch_sync,
)
from tests.parallel_core.traces.synthetic import overlap_timeline, queue_of


def picture_of(timeline: Timeline) -> Drawn:
    """Return the picture of a timeline."""
    return Drawn(as_svg(timeline))


def only(case_name: str, timeline: Timeline) -> Timeline:
    """Return a timeline without all cases but that of this name."""
    cases = tuple(case for case in timeline.cases if case.name == case_name)
    return replace(timeline, cases=cases)


def test_lanes_cases_and_meanings_are_text() -> None:
    title, *texts = picture_of(mxnet_async()).texts
    assert title == (
        "run and copy together: 65.0 ms; one after the other its operations take 110 ms"
    )
    lane_names = {"host Python", "cpu:1 compute", "cpu:2 compute"}
    meanings = {"computation", "copy", "Python", "waiting", "matmul"}
    titles = {
        "mxnet 1.9.1, async engine",
        "copy: 50.0 ms, 1.0 queue at once",
        (
            "run and copy together: 65.0 ms, 1.7 queues at once, 90 % of communication alongside "
            "computation"
        ),
    }
    assert lane_names | meanings | titles <= set(texts)
    assert "exchange" not in texts


@pytest.mark.parametrize(
    ("experiment", "together", "message"),
    [
        ("overlap", False, "overlap: run and copy together: "),
        # An experiment of another version has no case that is known.
        ("nonsense", True, "nonsense: run and copy together: "),
        ("nonsense", False, "nonsense: run: "),
        ("", True, "run and copy together: "),
    ],
)
def test_the_message_is_of_the_experiment_s_case_or_of_what_overlapped_most(
    experiment: str, together: bool, message: str
) -> None:
    timeline = replace(overlap_timeline(together=together), experiment=experiment)
    assert picture_of(timeline).texts[0].startswith(message)


def test_all_cases_have_the_longest_one_s_scale_and_their_own_lanes() -> None:
    picture = picture_of(torch_async())
    case_titles = [text for text in picture.texts if " queue" in text]
    assert [title.partition(":")[0] for title in case_titles] == list(CASES)
    labels = [group.get("aria-label") for group in picture.all_of("g")]
    lane_devices = [label.partition(":")[0] for label in labels if label]
    run = copy = ["host Python", "cpu"]
    together = ["host Python", "cpu", "cpu"]
    assert lane_devices == [*run, *copy, *together]
    products = [box.length for box in picture.boxes if box.style == "compute" and box.title]
    # Ten products without copies and ten with them, each 6 ms of the longest case's 65.
    assert len(products) == 20
    assert max(products) - min(products) < 0.1
    assert max(products) / 700 == pytest.approx(6 / 65.03, rel=0.02)


def overlap(box: Box, other: Box) -> bool:
    """Return whether two boxes stand above each other, by more than rounding."""
    return box.start < other.end - 1 and other.start < box.end - 1


def copies_below_products(timeline: Timeline) -> int:
    """Return how many of the ten copies are drawn below a product that ran meanwhile."""
    boxes = [box for box in picture_of(only(CASES[2], timeline)).boxes if box.title]
    products = [box for box in boxes if box.style == "compute"]
    copies = [box for box in boxes if box.style == "copy"]
    assert len(products) == 10
    assert len(copies) == 10
    return sum(any(overlap(copy, product) for product in products) for copy in copies)


def test_copies_lie_below_computation_where_they_did() -> None:
    assert copies_below_products(mxnet_async()) == 9
    assert copies_below_products(torch_async()) == 9
    assert copies_below_products(torch_sync()) == 0


def test_a_queue_that_was_mostly_idle_is_pale() -> None:
    picture = picture_of(many_small(20_000))
    shades = {box.opacity for box in picture.boxes if box.title}
    assert max(shades) > 0.8
    assert min(shades) < 0.3
    assert "pale: many short ones, with gaps" in picture.texts
    assert "pale: many short ones, with gaps" not in picture_of(mxnet_async()).texts


def test_cases_beyond_the_first_ones_are_counted() -> None:
    numbers = range(MAX_PANELS + 2)
    spans = queue_of([(number, number + 0.5) for number in numbers])
    cases = tuple(Window(f"case {number}", ns(number), ns(number + 1)) for number in numbers)
    texts = picture_of(Timeline("a <name> & $more$", spans, cases)).texts
    assert {"2 more cases are not shown.", "a <name> & $more$"} <= set(texts)
    case_titles = [text for text in texts if text.startswith("case ")]
    assert case_titles[-1].startswith(f"case {MAX_PANELS - 1}: ")


def test_a_trace_without_cases_is_drawn_whole() -> None:
    without_cases = picture_of(Timeline("elsewhere", mxnet_async().spans))
    assert any(text.startswith("all: ") for text in without_cases.texts)


def test_a_trace_in_which_no_time_passed_is_drawn_and_one_without_spans_is_refused() -> None:
    instant = Span("matmul", "compute", "cpu", "thread", 5, 5)
    assert "cpu thread" in picture_of(Timeline("torch", (instant,))).texts
    with pytest.raises(RequestError, match="the timeline of elsewhere has no spans to draw"):
        as_svg(Timeline("elsewhere", ()))


def test_every_block_and_every_lane_has_a_title() -> None:
    timeline = only(CASES[2], mxnet_async())
    picture = picture_of(timeline)
    (case,) = cases_of(timeline)
    blocks = chain.from_iterable(lane.blocks for lane in lanes(case).lanes)
    assert [box.title for box in picture.boxes if box.title] == list(map(block_text, blocks))
    product_title = "matmul (_npi_matmul)\n6.00 ms from 6.02 ms\n6.00 ms from launch to start"
    assert product_title in picture.titles
    assert picture.titles[:3] == ["host Python", "cpu:1 compute", "cpu:2 compute"]
    labels = {element.get("aria-label") for element in picture.root.iter()}
    assert "cpu:1 compute: computation 92 % of the width" in labels


def test_thirty_lanes_of_a_big_trace_can_be_read_in_a_picture_of_bounded_size() -> None:
    timeline = many_queues(20_000)
    svg = as_svg(timeline)
    assert len(svg) < 3_000_000
    picture = Drawn(svg)
    lane_names = sorted({f"{span.device} {span.queue}" for span in timeline.spans})
    assert len(lane_names) == 30
    heights = sorted(picture.heights(*lane_names))
    assert all(below - above > 20 for above, below in pairwise(heights))
    assert picture.height > 30 * 20
    font_sizes = [float(text.get("font-size", 13)) for text in picture.all_of("text")]
    assert min(font_sizes) >= 9


def test_a_long_name_of_a_lane_loses_its_middle_and_its_title_has_it_whole() -> None:
    queue = f"a thread with a name of its own{' and more' * 10} 17"
    span = Span("x", "compute", "gpu:0", queue, 0, 1)
    picture = picture_of(Timeline("made up", (span,)))
    (label,) = (text for text in picture.texts if text.startswith("gpu:0"))
    assert len(label) == 48
    assert "…" in label
    assert label.endswith("17")
    assert picture.titles[0] == f"gpu:0 {queue}"
