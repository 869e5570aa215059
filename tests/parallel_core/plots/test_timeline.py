"""Pictures of timelines: every lane has its name, text is text, one scale for all cases, and nothing hidden unsaid."""

from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from backends.profiling import Span, Timeline, Window
from parallel_core.plots import draw
from parallel_core.plots.style import LOOKS
from parallel_core.plots.timeline import MAX_PANELS, timeline_figure
from tests.parallel_core.trace_analysis.frameworks import (
    CASES,
    SECOND,
    many_small,
    mxnet_async,
    torch_async,
    torch_sync,
)


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
    assert "run and copy together: 65.1 ms, 1.7 queues at once, 90% of communication under computation" in found
    assert "copy: 50.1 ms, 1.0 queue at once" in found


def test_the_same_timeline_gives_the_same_file() -> None:
    assert drawn(torch_async()) == drawn(torch_async())
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert drawn(torch_sync(), kind).startswith(start)


def test_all_cases_have_the_longest_one_s_scale_and_the_same_lanes() -> None:
    panels = timeline_figure(torch_async()).axes
    assert [panel.get_title(loc="left").partition(":")[0] for panel in panels] == list(CASES)
    assert len({panel.get_xlim() for panel in panels}) == 1
    assert panels[0].get_xlim() == pytest.approx((0.0, 65.06), abs=0.01)
    assert {tuple(label.get_text() for label in panel.get_yticklabels()) for panel in panels} == {
        ("host Python", "cpu:1 compute", "cpu:1 copy")
    }


def test_lanes_without_anything_in_the_cases_are_left_out() -> None:
    (panel,) = timeline_figure(of_one(mxnet_async(), "run")).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["host Python", "cpu:1 compute"]


def blocks(timeline: Timeline, case: str) -> list[tuple[tuple[float, ...], float, float]]:
    """Return the colour, start and end of each block that was drawn."""
    (panel,) = timeline_figure(of_one(timeline, case)).axes
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
    (panel,) = timeline_figure(Timeline("elsewhere", mxnet_async().spans)).axes
    assert panel.get_title(loc="left").startswith("all: ")
    assert panel.get_xlabel() == "seconds since the case's first launch"
