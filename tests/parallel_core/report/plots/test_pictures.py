"""Pictures of results, task graphs and timelines, as SVG whose texts are text, in light and in
dark.

Whatever they hold is drawn where it lies, timelines on one scale for all cases, and nothing is
hidden unsaid.
"""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, Timeline, Window
from parallel_core import RequestError
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Answer, Result
from parallel_core.measurement.task_graph import Task, levels
from parallel_core.report.plots import as_svg, write_picture_file
from parallel_core.report.plots.bars import Bar, BarsChart
from parallel_core.report.plots.curves import (
    MAX_POINTS,
    Curve,
    CurvesChart,
    Panel,
    exact,
    learning_chart,
)
from parallel_core.report.plots.scales import Axis, Scale, around, from_zero, write_seconds
from parallel_core.report.plots.stacked import Part, Row, StackedChart
from parallel_core.report.plots.svg import inline, text_width, titled
from parallel_core.report.plots.task_graph import TaskGraph, rows_of
from parallel_core.report.plots.timeline import MAX_PANELS
from parallel_core.system.formatting import figure
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.lanes import block_text, lanes
from tests.backends.profiling.events import ns
from tests.parallel_core.measurement.test_task_graph import graphs
from tests.parallel_core.report.plots.drawn import SVG, Drawn
from tests.parallel_core.report.plots.frameworks import (
    CASES,
    many_queues,
    many_small,
    mxnet_async,
    torch_async,
    torch_sync,
)
from tests.parallel_core.report.plots.synthetic_results import NASTY, SWEPT, TIMED, TRAINED
from tests.parallel_core.trace_analysis.synthetic import overlap_timeline, queue_of

AXIS = Axis("an axis", Scale(0, 10), figure)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (TRAINED, ["epoch", "loss per image", "test accuracy"]),
        (SWEPT, ["plain copy", "star", "GB/s", "4 KiB", "16 KiB"]),
        (TIMED, ["first <b>case</b>", "second", "100 ms", "200 ms"]),
    ],
    ids=lambda shown: getattr(shown, "experiment", ""),
)
def test_a_picture_shows_what_the_result_holds(
    shown: Result, expected: list[str], tmp_path: Path
) -> None:
    answered = replace(shown, answer=Answer((f"It took {NASTY}.",), ""))
    svg = as_svg(answered)
    texts = Drawn(svg).texts
    assert set(expected) <= set(texts)
    assert texts[0] == f"It took {NASTY}."
    assert texts[1].startswith(f"{shown.experiment} on torch 1.0, async engine, cpu:1, cpu:2")
    # The same bytes each time, of which nothing needs another file.
    write_picture_file(answered, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_bytes() == svg
    assert b"prefers-color-scheme: dark" in svg
    assert (svg.count(b"http"), svg.count(b" id=")) == (1, 0)


def test_parts_of_a_row_stand_side_by_side_and_are_named_once_by_colour() -> None:
    parts = [Part("first", 0, 4, "compute"), Part("second", 4, 10, "copy")]
    rows = [Row("<one>", parts, "10 of them"), Row("another", parts[:1], "4 of them")]
    drawn = Drawn(titled(StackedChart({"": rows[:1], "under <this>": rows[1:]}, figure), "a title"))
    *samples, first, second, alone = drawn.boxes
    assert len(samples) == 2
    shares = [(one.end - first.start) / (second.end - first.start) for one in (first, second)]
    assert shares == pytest.approx([0.4, 1.0], abs=1e-3)
    assert (second.start, alone.end) == pytest.approx((first.end, first.end), abs=0.01)
    drawn.places("first", "second", "<one>", "another", "under <this>", "10 of them", "4 of them")
    assert "<one>, second: 6" in drawn.titles


def test_bars_begin_and_end_where_their_values_lie() -> None:
    bars = [
        Bar("whole", "10 of them", 0, 10, "total"),
        Bar("negative", "four", 8, 4, "copy", (1, 9), inner=6),
        Bar("nothing", "0 in all", 2, 2, "host"),
    ]
    drawn = Drawn(
        titled(BarsChart({"": bars[:1], "under <this>": bars[1:]}, figure, "an axis"), "a title")
    )
    whole, negative, inner, nothing = drawn.boxes
    (whisker,) = (one for one in drawn.root.iter(f"{SVG}line") if one.get("class") == "ink")
    low, high = (float(whisker.get(end, "nan")) for end in ("x1", "x2"))
    ends = (negative.start, negative.end, inner.end, nothing.start, low, high)
    shares = [(end - whole.start) / (whole.end - whole.start) for end in ends]
    assert shares == pytest.approx([0.4, 0.8, 0.6, 0.2, 0.1, 0.9], abs=1e-3)
    # Where nothing is a line is seen.
    assert nothing.end - nothing.start == 1
    assert drawn.places("whole", "under <this>", "negative", "nothing", "an axis") == sorted(
        drawn.places("10 of them", "under <this>", "four", "0 in all", "an axis")
    )


def test_a_long_title_is_broken_into_lines_that_fit() -> None:
    title = "a word " * 60
    drawn = Drawn(titled(BarsChart({"": [Bar("bar", "1", 0, 1, "total")]}), title.strip()))
    lines = [text for text in drawn.texts if "word" in text]
    assert " ".join(lines) == title.strip()
    assert text_width(lines) <= drawn.width


def test_curves_go_up_and_say_their_values() -> None:
    points = [(1.0, Interval(2, 1, 3)), (5.0, exact(8.0)), (9.0, exact(math.nan))]
    curves = (Curve("star", "c0", points, 0), Curve("bound", "host", points[:2], dash="2 5"))
    panel = Panel("a panel", AXIS, Axis("GB/s", Scale(0, 10), figure), curves)
    drawn = Drawn(titled(CurvesChart([panel]), "a title"))
    paths = [one for one in drawn.root.iter(f"{SVG}path") if "line" in one.get("class", "")]
    # Two samples of the legend, two curves; what is no number is left out.
    star = [
        tuple(map(float, place.split()))
        for place in paths[2].get("d", "").removeprefix("M").split("L")
    ]
    assert [len(star), star[0][0] < star[1][0], star[0][1] > star[1][1]] == [2, True, True]
    assert drawn.titles == ["star: 2 (1–3); an axis: 1", "star: 8; an axis: 5"]
    assert [one.get("stroke-dasharray") for one in paths] == [None, "2 5", None, "2 5"]
    assert {"star", "bound", "a panel: GB/s"} <= set(drawn.texts)
    whiskers = [one for one in drawn.root.iter(f"{SVG}line") if "line" in one.get("class", "")]
    assert [float(one.get("y1", 0)) > star[0][1] > float(one.get("y2", 0)) for one in whiskers] == [
        True,
        True,
    ]


def test_learning_curves_are_thinned_and_thinner_one_by_one() -> None:
    long = replace(TRAINED, series={"loss": (2.0, 0.0) * 5000, "test_accuracy": (0.1, 0.4)})
    losses, accuracies = learning_chart([(Curve(name, "c0", ()), long) for name in "abc"]).panels
    widths = [curve.thickness for curve in losses.curves]
    assert widths == sorted(widths, reverse=True)
    assert all(len(curve.points) <= MAX_POINTS for curve in losses.curves)
    # Each epoch has its mark, at its end.
    assert [x for x, _ in accuracies.curves[0].points] == [1, 2]
    assert losses.x.scale.high == 2
    guessing = replace(TRAINED, series={"loss": (2.0,), "test_accuracy": (0.1,)})
    assert [panel.name for panel in learning_chart([(Curve("", "c0", ()), guessing)]).panels] == [
        "loss per image"
    ]


def test_what_xml_cannot_hold_is_replaced() -> None:
    hostile = f"\x00\x1b {NASTY} \ud800"
    svg = titled(BarsChart({hostile: [Bar(hostile, hostile, 0, 1, "copy")]}), hostile)
    assert NASTY.encode() not in svg
    assert any(NASTY in text for text in Drawn(svg).texts)
    assert NASTY not in (inline(BarsChart({"": [Bar(hostile, "", 0, 1, "copy")]}), hostile) or "")


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=5), st.booleans())
def test_values_keep_their_order_and_marks_are_few_and_on_the_scale(
    values: list[float], log: bool
) -> None:
    scale = around(values) if log else from_zero(values)
    places, marks = [scale.place(value) for value in sorted(values)], scale.marks
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert list(marks) == sorted(set(marks))
    assert all(scale.low <= mark <= scale.high * (1 + 1e-9) for mark in marks)
    assert 2 <= len(marks) <= 9


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (Scale(0, 0.9), ["0", "0.2", "0.4", "0.6", "0.8"]),
        (Scale(-0.1, 0.9), ["0", "0.2", "0.4", "0.6", "0.8"]),
        (Scale(0.1, 3, log=True), ["0.1", "0.2", "0.5", "1", "2"]),
        (Scale(0.95, 1.05, log=True), ["0.96", "0.98", "1", "1.02", "1.04"]),
        (Scale(1e-5, 20, log=True), ["1e-05", "0.001", "0.1", "10"]),
    ],
)
def test_marks_are_round(scale: Scale, labels: list[str]) -> None:
    assert [label for _, label in Axis("", scale, lambda value: f"{value:.4g}").ticks] == labels


def test_a_product_is_a_sum_of_lengths_on_a_logarithmic_scale() -> None:
    scale = around((0.25, 1.0, 2.0))
    assert scale.place(2) - scale.place(1) == pytest.approx(scale.place(1) - scale.place(0.5))
    assert scale.place(math.nextafter(scale.low, 0)) == 0
    assert scale.place(1e9) == 1


def test_marked_times_have_no_needless_digits() -> None:
    written = map(write_seconds, (0, 2e-5, 0.05, -0.1, -0.0025, 20))
    assert list(written) == ["0", "20 μs", "50 ms", "−100 ms", "−2.5 ms", "20 s"]


DIAMOND = (
    Task("x", "a", "load", (), 5.0),
    Task("fork", "a", "compute", (0,), 0.001),
    Task("sent", "b", "copy", (1,), 0.0002),
    Task("left", "a", "compute", (1,), 0.003),
    Task("right", "b", "compute", (2,), 0.004),
    Task("join <&>", "b", "allreduce", (1, 3, 4), 0.001),
)


def graph(*tasks: Task) -> Drawn:
    return Drawn(titled(TaskGraph(tasks), "a <title> & more"))


def test_a_task_graph_has_texts_a_coloured_longest_chain_and_no_implied_dependencies() -> None:
    drawn = graph(*DIAMOND)
    assert {"x", "fork", "left", "right", "join <&>", "a", "b", "a <title> & more"} <= set(
        drawn.texts
    )
    # Without the input's own seconds: fork, sent, right, join.
    assert {"3.00 ms", "200 μs", "input", "longest chain: 6.20 ms of 9.20 ms in all"} <= set(
        drawn.texts
    )
    # Four boxes, and the legend's; the three arrows between them, which are a line and a head each.
    assert sum("chain" in box.style for box in drawn.boxes) == 5
    arrows = [one.get("class") or "" for one in drawn.root.iter(f"{SVG}path")]
    assert (len(arrows), sum("c1" in style for style in arrows)) == (2 * 6, 2 * 3)


@given(graphs())
def test_no_two_tasks_share_a_place(tasks: tuple[Task, ...]) -> None:
    places = list(zip((task.device for task in tasks), levels(tasks), rows_of(tasks), strict=True))
    assert len(set(places)) == len(tasks)


def test_a_chain_keeps_its_row() -> None:
    other = Task("other", "a", "compute")
    chain = (
        Task("first", "a", "compute"),
        Task("second", "a", "compute", (1,)),
        Task("third", "a", "compute", (2,)),
    )
    assert rows_of((other, *chain)) == (0, 1, 1, 1)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_single_task_can_be_drawn(seconds: float) -> None:
    found = graph(Task("alone", "cpu:1", "compute", (), seconds)).texts
    assert "alone" in found
    assert any("ms" in text or " s" in text for text in found if "Times" not in text) == bool(
        seconds
    )


def picture_of(timeline: Timeline) -> Drawn:
    return Drawn(as_svg(timeline))


def of_one(timeline: Timeline, name: str) -> Timeline:
    return replace(timeline, cases=tuple(case for case in timeline.cases if case.name == name))


def test_lanes_cases_and_meanings_are_text() -> None:
    found = picture_of(mxnet_async()).texts
    assert (
        found[0] == "run and copy together: 65.0 ms; one after the other its operations take 110 ms"
    )
    assert {"mxnet 1.9.1, async engine", "host Python", "cpu:1 compute", "cpu:2 compute"} <= set(
        found
    )
    assert {"computation", "copy", "Python", "waiting", "matmul"} <= set(found)
    assert "exchange" not in found
    assert (
        "run and copy together: 65.0 ms, 1.7 queues at once, 90 % of communication under "
        "computation" in found
    )
    assert "copy: 50.0 ms, 1.0 queue at once" in found
    assert as_svg(torch_async()) == as_svg(torch_async())


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
    groups = [
        label.partition(":")[0]
        for one in picture.root.iter(f"{SVG}g")
        if (label := one.get("aria-label"))
    ]
    assert groups == ["host Python", "cpu"] * 2 + ["host Python", "cpu", "cpu"]
    assert [text.partition(":")[0] for text in picture.texts if " queue" in text] == list(CASES)
    lengths = [box.end - box.start for box in picture.boxes if box.style == "compute" and box.title]
    # Six milliseconds of the longest case's 65, with and without copies.
    assert len(lengths) == 20
    assert max(lengths) - min(lengths) < 0.1
    assert max(lengths) / 700 == pytest.approx(6 / 65.03, rel=0.02)


def test_copies_lie_below_computation_where_they_did() -> None:
    def below(timeline: Timeline) -> int:
        found = [box for box in picture_of(of_one(timeline, CASES[2])).boxes if box.title]
        computing, copying = (
            [box for box in found if box.style == look] for look in ("compute", "copy")
        )
        assert len(computing) == len(copying) == 10
        return sum(
            any(one.start < copy.end - 1 and copy.start < one.end - 1 for one in computing)
            for copy in copying
        )

    assert below(mxnet_async()) == below(torch_async()) == 9
    assert below(torch_sync()) == 0


def test_a_queue_that_was_mostly_idle_is_pale() -> None:
    picture = picture_of(many_small(20_000))
    shades = {box.opacity for box in picture.boxes if box.title}
    assert max(shades) > 0.8
    assert min(shades) < 0.3
    assert "pale: many short ones, with gaps" in picture.texts
    assert "pale: many short ones, with gaps" not in picture_of(mxnet_async()).texts


def test_cases_beyond_the_first_ones_are_counted() -> None:
    names = [f"case {number}" for number in range(MAX_PANELS + 2)]
    spans = queue_of([(at, at + 0.5) for at in range(len(names))])
    cases = tuple(Window(name, ns(at), ns(at + 1)) for at, name in enumerate(names))
    found = picture_of(Timeline("a <name> & $more$", spans, cases)).texts
    assert {"2 more cases are not shown.", "a <name> & $more$"} <= set(found)
    assert [text for text in found if text.startswith("case ")][-1].startswith(
        f"case {MAX_PANELS - 1}: "
    )


def test_a_trace_without_cases_is_drawn_whole_and_one_without_spans_refused() -> None:
    assert any(
        text.startswith("all: ")
        for text in picture_of(Timeline("elsewhere", mxnet_async().spans)).texts
    )
    # Even if no time passed in it.
    assert (
        "cpu thread"
        in picture_of(Timeline("torch", (Span("matmul", "compute", "cpu", "thread", 5, 5),))).texts
    )
    with pytest.raises(RequestError, match="the timeline of elsewhere has no spans to draw"):
        as_svg(Timeline("elsewhere", ()))


def test_every_block_and_every_lane_has_a_title() -> None:
    timeline = of_one(mxnet_async(), CASES[2])
    picture = picture_of(timeline)
    (case,) = (lanes(case) for case in cases_of(timeline))
    assert [box.title for box in picture.boxes if box.title] == [
        block_text(block) for lane in case.lanes for block in lane.blocks
    ]
    assert (
        "matmul (_npi_matmul)\n6.00 ms from 6.02 ms\n6.00 ms from launch to start" in picture.titles
    )
    assert picture.titles[:3] == ["host Python", "cpu:1 compute", "cpu:2 compute"]
    assert "cpu:1 compute: computation 92 % of the width" in {
        one.get("aria-label") for one in picture.root.iter()
    }


def test_thirty_lanes_of_a_big_trace_can_be_read_in_a_picture_of_bounded_size() -> None:
    timeline = many_queues(20_000)
    svg = as_svg(timeline)
    assert len(svg) < 3_000_000
    picture = Drawn(svg)
    names = sorted({f"{span.device} {span.queue}" for span in timeline.spans})
    assert len(names) == 30
    places = sorted(picture.places(*names))
    assert min(second - first for first, second in pairwise(places)) > 20
    assert picture.height > 30 * 20
    assert min(float(one.get("font-size", 13)) for one in picture.root.iter(f"{SVG}text")) >= 9


def test_a_long_name_of_a_lane_loses_its_middle_and_its_title_has_it_whole() -> None:
    queue = f"a thread with a name of its own{' and more' * 10} 17"
    picture = picture_of(Timeline("made up", (Span("x", "compute", "gpu:0", queue, 0, 1),)))
    (label,) = (text for text in picture.texts if text.startswith("gpu:0"))
    assert (len(label), label[-2:], "…" in label) == (48, "17", True)
    assert picture.titles[0] == f"gpu:0 {queue}"
