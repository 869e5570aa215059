"""Pictures of results and of task graphs, as SVG whose texts are text, in light and in dark.

Whatever they hold is drawn where it lies.
"""

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from parallel_core.system.formatting import figure
from tests.parallel_core.measurement.test_task_graph import graphs
from tests.parallel_core.report.plots.drawn import Drawn
from tests.parallel_core.report.plots.synthetic_results import NASTY, SWEPT, TIMED, TRAINED

AXIS = Axis("an axis", Scale(0, 10), figure)


@pytest.mark.parametrize(
    ("result", "expected_texts"),
    [
        (TRAINED, ["epoch", "loss per image", "test accuracy"]),
        (SWEPT, ["plain copy", "star", "GB/s", "4 KiB", "16 KiB"]),
        (TIMED, ["first <b>case</b>", "second", "100 ms", "200 ms"]),
    ],
    ids=["trained", "swept", "timed"],
)
def test_a_picture_shows_what_the_result_holds(
    result: Result, expected_texts: list[str], tmp_path: Path
) -> None:
    answered = replace(result, answer=Answer((f"It took {NASTY}.",), ""))

    svg = as_svg(answered)

    sentence, source, *texts = Drawn(svg).texts
    assert sentence == f"It took {NASTY}."
    assert source.startswith(f"{result.experiment} on PyTorch 1.0, cpu:1, cpu:2")
    assert set(texts) >= set(expected_texts)
    assert b"prefers-color-scheme: dark" in svg
    # Nothing of it needs another file: the only address is that of SVG's names.
    assert svg.count(b"http") == 1
    assert svg.count(b" id=") == 0
    # The file has the same bytes each time.
    path = tmp_path / "x.svg"
    write_picture_file(answered, path)
    assert path.read_bytes() == svg


def test_parts_of_a_row_stand_side_by_side_and_are_named_once_by_colour() -> None:
    first_part = Part("first", 0, 4, "compute")
    second_part = Part("second", 4, 10, "copy")
    divided = Row("<divided>", [first_part, second_part], "10 of them")
    undivided = Row("undivided", [first_part], "4 of them")
    chart = StackedChart({"": [divided], "under <this>": [undivided]}, figure)

    drawn = Drawn(titled(chart, "a title"))

    # The legend has a sample of each colour.
    *samples, first, second, alone = drawn.boxes
    assert len(samples) == 2
    row_length = second.end - first.start
    assert first.length / row_length == pytest.approx(0.4, abs=1e-3)
    assert second.start == pytest.approx(first.end, abs=0.01)
    assert alone.end == pytest.approx(first.end, abs=0.01)
    texts = set(drawn.texts)
    assert {"first", "second", "<divided>", "undivided", "under <this>"} <= texts
    assert {"10 of them", "4 of them"} <= texts
    assert "<divided>, second: 6" in drawn.titles


def test_bars_begin_and_end_where_their_values_lie() -> None:
    whole_bar = Bar("whole", "10 of them", 0, 10, "compute hollow")
    negative_bar = Bar("negative", "four", 8, 4, "copy", (1, 9), inner=6)
    empty_bar = Bar("nothing", "0 in all", 2, 2, "host")
    chart = BarsChart([whole_bar, negative_bar, empty_bar], "an axis")

    drawn = Drawn(titled(chart, "a title"))

    whole, negative, inner, empty = drawn.boxes
    (whisker,) = (line for line in drawn.all_of("line") if line.get("class") == "ink")

    def value_at(x: float) -> float:
        """Return the value that is drawn at this x; the whole bar reaches from 0 to 10."""
        return 10 * (x - whole.start) / whole.length

    whisker_ends = [float(whisker.get(end, "nan")) for end in ("x1", "x2")]
    places = [negative.start, negative.end, inner.end, empty.start, *whisker_ends]
    assert list(map(value_at, places)) == pytest.approx([4, 8, 6, 2, 1, 9], abs=0.01)
    # Where nothing is a line is seen.
    assert empty.length == 1
    heights_of_names = drawn.heights("whole", "negative", "nothing", "an axis")
    heights_of_values = drawn.heights("10 of them", "four", "0 in all", "an axis")
    assert heights_of_names == sorted(heights_of_names)
    assert heights_of_values == heights_of_names


def test_a_long_title_is_broken_into_lines_that_fit() -> None:
    title = " ".join(["a word"] * 60)
    chart = BarsChart([Bar("bar", "1", 0, 1, "compute")])
    drawn = Drawn(titled(chart, title))
    lines = [text for text in drawn.texts if "word" in text]
    assert " ".join(lines) == title
    assert text_width(lines) <= drawn.width


def points_of(path: ElementTree.Element) -> list[tuple[float, float]]:
    """Return the corners of a path of straight lines, which is written `M1,2L3,4`."""
    corners = path.get("d", "").removeprefix("M").split("L")
    points = [corner.split() for corner in corners]
    return [(float(x), float(y)) for x, y in points]


def test_curves_go_up_and_say_their_values() -> None:
    points = [(1.0, Interval(2, 1, 3)), (5.0, exact(8.0)), (9.0, exact(math.nan))]
    star = Curve("star", "c0", points, 0)
    bound = Curve("bound", "host", points[:2], dash="2 5")
    panel = Panel("a panel", AXIS, Axis("GB/s", Scale(0, 10), figure), (star, bound))

    drawn = Drawn(titled(CurvesChart([panel]), "a title"))

    # Two samples of the legend, two curves.
    paths = [path for path in drawn.all_of("path") if "line" in path.get("class", "")]
    assert [path.get("stroke-dasharray") for path in paths] == [None, "2 5", None, "2 5"]
    # What is no number is left out, and a larger value is drawn higher: at a smaller y.
    (first_x, first_y), (second_x, second_y) = points_of(paths[2])
    assert first_x < second_x
    assert first_y > second_y
    assert drawn.titles == ["star: 2 (1–3); an axis: 1", "star: 8; an axis: 5"]
    assert {"star", "bound", "a panel: GB/s"} <= set(drawn.texts)
    whiskers = [line for line in drawn.all_of("line") if "line" in line.get("class", "")]
    assert len(whiskers) == 2
    for whisker in whiskers:
        assert float(whisker.get("y1", 0)) > first_y > float(whisker.get("y2", 0))


def test_learning_curves_are_thinned_and_thinner_one_by_one() -> None:
    # Two epochs of 5,000 steps each.
    long_training = replace(
        TRAINED, series={"loss": (2.0, 0.0) * 5000, "test_accuracy": (0.1, 0.4)}
    )
    chart = learning_chart([(Curve(name, "c0", ()), long_training) for name in "abc"])
    losses, accuracies = chart.panels
    widths = [curve.thickness for curve in losses.curves]
    assert widths == sorted(widths, reverse=True)
    for curve in losses.curves:
        assert len(curve.points) <= MAX_POINTS
    # Each epoch has its mark, at its end.
    assert [epoch for epoch, _ in accuracies.curves[0].points] == [1, 2]
    assert losses.x.scale.high == 2


def test_accuracies_of_guesses_have_no_panel() -> None:
    guessing = replace(TRAINED, series={"loss": (2.0,), "test_accuracy": (0.1,)})
    chart = learning_chart([(Curve("", "c0", ()), guessing)])
    assert [panel.name for panel in chart.panels] == ["loss per image"]


def test_what_xml_cannot_hold_is_replaced() -> None:
    hostile = f"\x00\x1b {NASTY} \ud800"
    svg = titled(BarsChart([Bar(hostile, hostile, 0, 1, "copy")]), hostile)
    assert NASTY.encode() not in svg
    assert any(NASTY in text for text in Drawn(svg).texts)

    picture_in_page = inline(BarsChart([Bar(hostile, "", 0, 1, "copy")]), hostile)
    assert picture_in_page is not None
    assert NASTY not in picture_in_page


@given(values=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=5), is_logarithmic=st.booleans())
def test_values_keep_their_order_and_marks_are_few_and_on_the_scale(
    values: list[float], is_logarithmic: bool
) -> None:
    rounding = 1e-9
    scale = around(values) if is_logarithmic else from_zero(values)

    places = [scale.place(value) for value in sorted(values)]
    assert places == sorted(places)
    for place in places:
        assert -rounding <= place <= 1 + rounding

    marks = list(scale.marks)
    assert 2 <= len(marks) <= 9
    assert marks == sorted(set(marks))
    for mark in marks:
        assert scale.low <= mark <= scale.high * (1 + rounding)


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
    axis = Axis("", scale, lambda value: f"{value:.4g}")
    assert [label for _, label in axis.ticks] == labels


def test_a_product_is_a_sum_of_lengths_on_a_logarithmic_scale() -> None:
    scale = around((0.25, 1.0, 2.0))
    assert scale.place(2) - scale.place(1) == pytest.approx(scale.place(1) - scale.place(0.5))


def test_what_lies_beyond_a_logarithmic_scale_is_at_its_end() -> None:
    scale = around((0.25, 1.0, 2.0))
    assert scale.place(math.nextafter(scale.low, 0)) == 0
    assert scale.place(1e9) == 1


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0"),
        (2e-5, "20 μs"),
        (0.05, "50 ms"),
        (-0.1, "−100 ms"),
        (-0.0025, "−2.5 ms"),
        (20, "20 s"),
    ],
)
def test_marked_times_have_no_needless_digits(seconds: float, written: str) -> None:
    assert write_seconds(seconds) == written


DIAMOND = (
    Task("fork", "a", "compute", after=(), seconds=0.001),
    Task("sent", "b", "copy", after=(0,), seconds=0.0002),
    Task("left", "a", "compute", after=(0,), seconds=0.003),
    Task("right", "b", "compute", after=(1,), seconds=0.004),
    Task("join <&>", "b", "allreduce", after=(0, 2, 3), seconds=0.001),
)
"""A graph whose longest chain is fork, sent, right and join. That join is after fork is implied."""


def drawn_graph(*tasks: Task) -> Drawn:
    """Return the picture of a task graph."""
    return Drawn(titled(TaskGraph(tasks), "a <title> & more"))


def test_a_task_graph_has_the_names_and_times_of_its_tasks() -> None:
    texts = set(drawn_graph(*DIAMOND).texts)
    assert {"fork", "left", "right", "join <&>", "a", "b", "a <title> & more"} <= texts
    assert {"3.00 ms", "200 μs", "allreduce"} <= texts
    assert "longest chain: 6.20 ms of 9.20 ms in all" in texts


def test_a_task_graph_has_a_coloured_longest_chain_and_no_implied_dependencies() -> None:
    drawn = drawn_graph(*DIAMOND)
    # Four boxes, and the legend's.
    assert sum("chain" in box.style for box in drawn.boxes) == 5
    # Five arrows, of which the chain has three; each is a line and a head.
    arrows = [path.get("class", "") for path in drawn.all_of("path")]
    assert len(arrows) == 5 * 2
    assert sum("c1" in style for style in arrows) == 3 * 2


@given(tasks=graphs())
def test_no_two_tasks_share_a_place(tasks: tuple[Task, ...]) -> None:
    devices = [task.device for task in tasks]
    places = set(zip(devices, levels(tasks), rows_of(tasks), strict=True))
    assert len(places) == len(tasks)


def test_a_chain_keeps_its_row() -> None:
    other = Task("other", "a", "compute")
    first = Task("first", "a", "compute")
    second = Task("second", "a", "compute", after=(1,))
    third = Task("third", "a", "compute", after=(2,))
    assert rows_of((other, first, second, third)) == (0, 1, 1, 1)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_single_task_can_be_drawn(seconds: float) -> None:
    texts = drawn_graph(Task("alone", "cpu:1", "compute", after=(), seconds=seconds)).texts
    assert "alone" in texts
    assert ("1.00 s" in texts) == (seconds > 0)
    assert not {"0 s", "0.00 s", "0 ms"} & set(texts)
