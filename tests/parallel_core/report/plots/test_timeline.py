"""Pictures of timelines: every lane has its name, text is text, one scale for all cases, and nothing hidden unsaid."""

from dataclasses import replace
from itertools import pairwise

import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core import RequestError
from parallel_core.report.plots import as_svg
from parallel_core.report.plots.timeline import MAX_PANELS
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.lanes import block_text, lanes
from tests.backends.profiling.events import ns
from tests.parallel_core.report.plots.drawn import SVG, Drawn
from tests.parallel_core.report.plots.frameworks import CASES, many_small, mxnet_async, torch_async, torch_sync
from tests.parallel_core.report.timeline_page.made_up import busy
from tests.parallel_core.trace_analysis.synthetic import queue_of


def drawn(timeline: Timeline) -> Drawn:
    return Drawn(as_svg(timeline))


def of_one(timeline: Timeline, name: str) -> Timeline:
    return replace(timeline, cases=tuple(case for case in timeline.cases if case.name == name))


def test_lanes_cases_and_meanings_are_text() -> None:
    found = drawn(mxnet_async()).texts
    assert found[0] == "run and copy together: 65.0 ms; one after the other its operations take 110 ms"
    assert {"mxnet 1.9.1, async engine", "host Python", "cpu:1 compute", "cpu:2 compute"} <= set(found)
    assert {"computation", "copy", "Python", "waiting", "matmul"} <= set(found)
    assert "exchange" not in found
    assert "run and copy together: 65.0 ms, 1.7 queues at once, 90 % of communication under computation" in found
    assert "copy: 50.0 ms, 1.0 queue at once" in found
    assert as_svg(torch_async()) == as_svg(torch_async())


def test_all_cases_have_the_longest_one_s_scale_and_their_own_lanes() -> None:
    picture = drawn(torch_async())
    groups = [
        (one.get("aria-label") or "").partition(":")[0] for one in picture.root.iter(f"{SVG}g") if len(one.attrib)
    ]
    lanes_of = {"run": ["cpu"], "copy": ["cpu"], "both": ["cpu", "cpu"]}
    assert groups == [name for devices in lanes_of.values() for name in ("host Python", *devices)]
    assert [text.partition(":")[0] for text in picture.texts if " queue" in text] == list(CASES)
    lengths = [box.end - box.start for box in picture.boxes if box.style == "compute" and box.title]
    # Six milliseconds of the longest case's 65, with and without copies.
    assert len(lengths) == 20
    assert max(lengths) - min(lengths) < 0.1
    assert max(lengths) / 700 == pytest.approx(6 / 65.03, rel=0.02)


def test_copies_lie_below_computation_where_they_did() -> None:
    def below(timeline: Timeline) -> int:
        found = [box for box in drawn(of_one(timeline, CASES[2])).boxes if box.title]
        computing, copying = ([box for box in found if box.style == look] for look in ("compute", "copy"))
        assert len(computing) == len(copying) == 10
        return sum(any(one.start < copy.end - 1 and copy.start < one.end - 1 for one in computing) for copy in copying)

    assert below(mxnet_async()) == below(torch_async()) == 9
    assert below(torch_sync()) == 0


def test_a_queue_that_was_mostly_idle_is_pale() -> None:
    picture = drawn(many_small(20_000))
    shades = {box.opacity for box in picture.boxes if box.title}
    assert max(shades) > 0.8
    assert min(shades) < 0.3
    assert "pale: many short ones, with gaps" in picture.texts
    assert "pale: many short ones, with gaps" not in drawn(mxnet_async()).texts


def test_cases_beyond_the_first_ones_are_counted() -> None:
    names = [f"case {number}" for number in range(MAX_PANELS + 2)]
    spans = queue_of([(at, at + 0.5) for at in range(len(names))])
    cases = tuple(Window(name, ns(at), ns(at + 1)) for at, name in enumerate(names))
    found = drawn(Timeline("a <name> & $more$", spans, cases)).texts
    assert {"2 more cases are not shown.", "a <name> & $more$"} <= set(found)
    assert [text for text in found if text.startswith("case ")][-1].startswith(f"case {MAX_PANELS - 1}: ")


def test_a_trace_without_cases_is_drawn_whole_and_one_without_spans_refused() -> None:
    assert any(text.startswith("all: ") for text in drawn(Timeline("elsewhere", mxnet_async().spans)).texts)
    # Even if no time passed in it.
    assert "cpu thread" in drawn(Timeline("torch", (Span("matmul", "compute", "cpu", "thread", 5, 5),))).texts
    with pytest.raises(RequestError, match="the timeline of elsewhere has no spans to draw"):
        as_svg(Timeline("elsewhere", ()))


def test_every_block_and_every_lane_has_a_title() -> None:
    timeline = of_one(mxnet_async(), CASES[2])
    picture = drawn(timeline)
    (case,) = (lanes(case) for case in cases_of(timeline))
    assert [box.title for box in picture.boxes if box.title] == [
        block_text(block) for lane in case.lanes for block in lane.blocks
    ]
    assert "matmul (_npi_matmul)\n6.00 ms from 6.02 ms\n6.00 ms from launch to start" in picture.titles
    assert picture.titles[:3] == ["host Python", "cpu:1 compute", "cpu:2 compute"]
    assert "cpu:1 compute: computation 92 % of the width" in {one.get("aria-label") for one in picture.root.iter()}


def test_thirty_lanes_of_a_big_trace_can_be_read_in_a_picture_of_bounded_size() -> None:
    timeline = busy(20_000)
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
    picture = drawn(Timeline("made up", (Span("x", "compute", "gpu:0", queue, 0, 1),)))
    (label,) = (text for text in picture.texts if text.startswith("gpu:0"))
    assert (len(label), label[-2:], "…" in label) == (48, "17", True)
    assert picture.titles[0] == f"gpu:0 {queue}"
