"""Pictures of timelines: every lane has its name, text is text, one scale for all cases, and nothing hidden unsaid."""

import re
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from backends.profiling import Span, Timeline, Window
from parallel_core.plots import draw
from parallel_core.plots.style import LOOKS
from parallel_core.plots.timeline import MAX_PANELS, timeline_picture
from parallel_core.plots.titles import with_titles
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.lanes import block_text, lanes
from tests.parallel_core.plots.frameworks import (
    CASES,
    SECOND,
    many_small,
    mxnet_async,
    torch_async,
    torch_sync,
)
from tests.parallel_core.report.timeline_page.made_up import NASTY, busy

SVG = "{http://www.w3.org/2000/svg}"


def drawn(timeline: Timeline, kind: str = "svg") -> bytes:
    stream = BytesIO()
    draw(timeline, stream, kind)
    return stream.getvalue()


def of_one(timeline: Timeline, name: str) -> Timeline:
    return replace(timeline, cases=tuple(case for case in timeline.cases if case.name == name))


def texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


def test_lanes_cases_and_meanings_are_text() -> None:
    found = texts(drawn(mxnet_async()))
    assert {"mxnet 1.9.1, async engine", "host Python", "cpu:1 compute", "cpu:2 compute"} <= set(found)
    assert {"computation", "copy", "Python", "waiting", "matmul"} <= set(found)
    assert "exchange" not in found
    assert "run and copy together: 65.1 ms, 1.7 queues at once, 90 % of communication under computation" in found
    assert "copy: 50.1 ms, 1.0 queue at once" in found


def test_the_same_timeline_gives_the_same_file() -> None:
    assert drawn(torch_async()) == drawn(torch_async())
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert drawn(torch_sync(), kind).startswith(start)


def test_all_cases_have_the_longest_one_s_scale_and_the_same_lanes() -> None:
    panels = timeline_picture(torch_async()).figure.axes
    assert [panel.get_title(loc="left").partition(":")[0] for panel in panels] == list(CASES)
    assert len({panel.get_xlim() for panel in panels}) == 1
    assert panels[0].get_xlim() == pytest.approx((0.0, 65.06), abs=0.01)
    assert {tuple(label.get_text() for label in panel.get_yticklabels()) for panel in panels} == {
        ("host Python", "cpu:1 compute", "cpu:1 copy")
    }


def test_lanes_without_anything_in_the_cases_are_left_out() -> None:
    (panel,) = timeline_picture(of_one(mxnet_async(), "run")).figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["host Python", "cpu:1 compute"]


def blocks(timeline: Timeline, case: str) -> list[tuple[tuple[float, ...], float, float]]:
    """Return the colour, start and end of each block that was drawn."""
    (panel,) = timeline_picture(of_one(timeline, case)).figure.axes
    found = []
    for collection in panel.findobj(PolyCollection):
        for path, colour in zip(collection.get_paths(), collection.get_facecolor(), strict=True):
            found.append((tuple(colour), path.vertices[:, 0].min(), path.vertices[:, 0].max()))
    return found


def test_copies_lie_below_computation_where_they_did() -> None:
    computation, copy = to_rgba(LOOKS["compute"].colour), to_rgba(LOOKS["copy"].colour)

    def below(timeline: Timeline) -> int:
        found = blocks(timeline, CASES[2])
        computing = [(start, end) for colour, start, end in found if colour == pytest.approx(computation)]
        copying = [(start, end) for colour, start, end in found if colour == pytest.approx(copy)]
        assert len(computing) == len(copying) == 10
        return sum(any(a < end - 1e-6 and start < b - 1e-6 for a, b in computing) for start, end in copying)

    assert below(mxnet_async()) == below(torch_async()) == 9
    assert below(torch_sync()) == 0


def test_a_queue_that_was_mostly_idle_is_pale() -> None:
    shades = {colour[3] for colour, _, _ in blocks(many_small(20_000), "increments")}
    dense, sparse = max(shades), min(shades)
    assert dense > 0.8
    assert sparse < 0.3
    assert "pale: many short ones, with gaps" in texts(drawn(many_small(20_000)))


def cases_named(*names: str) -> Timeline:
    starts = [at * SECOND for at in range(len(names))]
    spans = tuple(Span("x", "compute", "cpu:1", "compute", at, at + SECOND // 2) for at in starts)
    cases = tuple(Window(name, at, at + SECOND) for at, name in zip(starts, names, strict=True))
    return Timeline("a <name> & $more$", spans, cases)


def test_cases_beyond_the_first_ones_are_counted() -> None:
    names = [f"case {number}" for number in range(MAX_PANELS + 2)]
    found = " ".join(texts(drawn(cases_named(*names))))
    assert "(2 more cases are not shown)" in found
    assert f"case {MAX_PANELS - 1}" in found
    assert f"case {MAX_PANELS}:" not in found
    assert "a <name> & $more$" in found


def test_a_trace_without_cases_is_drawn_whole() -> None:
    (panel,) = timeline_picture(Timeline("elsewhere", mxnet_async().spans)).figure.axes
    assert panel.get_title(loc="left").startswith("all: ")
    assert panel.get_xlabel() == "seconds since the case's first launch"


def titles(svg: bytes, kind: str) -> list[list[str]]:
    """Return the titles of what is drawn in each lane ("lane"), or of the lanes' names ("name"), lane by lane."""
    groups = [
        one for one in ElementTree.fromstring(svg).iter() if re.fullmatch(rf"panel-\d+-{kind}-\d+", one.get("id", ""))
    ]
    return [[title.text or "" for title in group.iter(f"{SVG}title")] for group in groups]


def test_every_block_and_every_lane_of_an_svg_has_a_title() -> None:
    svg = drawn(of_one(mxnet_async(), CASES[2]))
    (case,) = (lanes(case) for case in cases_of(of_one(mxnet_async(), CASES[2])))
    assert sorted(titles(svg, "lane")) == sorted([block_text(block) for block in lane.blocks] for lane in case.lanes)
    assert "matmul (_npi_matmul)\n6.00 ms from 6.03 ms\n5.97 ms from launch to start" in titles(svg, "lane")[1]
    assert titles(svg, "name") == [["host Python"], ["cpu:1 compute"], ["cpu:2 compute"]]
    # A title belongs to what is drawn, of which it is the first child.
    parents = [one for one in ElementTree.fromstring(svg).iter() if one.find(f"{SVG}title") is not None]
    assert {one.tag.removeprefix(SVG) for one in parents} <= {"path", "use", "text"}
    assert all(one[0].tag == f"{SVG}title" for one in parents)


def test_names_are_escaped() -> None:
    spans = tuple(Span(NASTY, "compute", "gpu:0", queue, at, at + 1, 0) for at, queue in ((0, NASTY), (1, "stream 7")))
    svg = drawn(Timeline(NASTY, spans))
    assert NASTY.encode() not in svg
    assert {text.partition("\n")[0] for lane in titles(svg, "lane") for text in lane} == {NASTY}
    assert f"gpu:0 {NASTY}" in texts(svg)


def test_thirty_lanes_can_be_read() -> None:
    timeline = busy(3000)
    svg = ElementTree.fromstring(drawn(timeline))
    names = sorted({f"{span.device} {span.queue}" for span in timeline.spans})
    assert len(names) == 30
    labels = [one for one in svg.iter(f"{SVG}text") if one.text in names]
    assert sorted(one.text or "" for one in labels) == names
    # An inch of a picture is 72 points, and 96 pixels on a screen.
    places = sorted(float(one.get("y", "nan")) * 96 / 72 for one in labels)
    assert min(second - first for first, second in pairwise(places)) > 20
    assert height(svg) > 30 * 20
    sizes = [re.match(r"font-size: ([\d.]+)px", one.get("style", "")) for one in svg.iter(f"{SVG}text")]
    assert min(float(size[1]) * 96 / 72 if size else 0 for size in sizes) >= 9
    assert height(svg) > 2 * height(ElementTree.fromstring(drawn(of_one(mxnet_async(), CASES[0]))))


def height(svg: ElementTree.Element) -> float:
    """Return the height of a picture in pixels."""
    return float(svg.get("height", "").removesuffix("pt")) * 96 / 72


def test_a_long_name_of_a_lane_loses_its_middle_and_its_title_has_it_whole() -> None:
    queue = f"a thread with a name of its own{' and more' * 10} 17"
    svg = drawn(Timeline("made up", (Span("x", "compute", "gpu:0", queue, 0, 1),)))
    (label,) = (text for text in texts(svg) if text.startswith("gpu:0"))
    assert (len(label), label[-2:], "…" in label) == (48, "17", True)
    assert titles(svg, "name") == [[f"gpu:0 {queue}"]]


def test_a_big_trace_gives_a_picture_of_bounded_size() -> None:
    assert len(drawn(busy(50_000))) < 7_000_000


def test_a_group_with_more_parts_than_titles_is_refused() -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><g id="lane"><path d="M0 0"/><path d="M1 1"/></g></svg>'
    with pytest.raises(ValueError, match="shorter"):
        with_titles(svg, {"lane": ["one"]})
