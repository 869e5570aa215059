"""The page of timelines: one small file, nothing from outside, every name as text, the figures in tables."""

import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core.report.timeline_page import render, write_timeline_page
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.trace_files import read_timeline
from tests.parallel_core.report.pages import Parsed
from tests.parallel_core.report.plots.frameworks import mxnet_async, torch_async
from tests.parallel_core.report.timeline_page.made_up import NASTY, busy, page, plain, unpack
from tests.parallel_core.trace_analysis.synthetic import overlap_timeline
from tests.parallel_core.trace_analysis.test_ranks import GPUS

MAX_BYTES = 2_000_000


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


def test_a_hundred_thousand_spans_take_less_than_two_megabytes(tmp_path: Path) -> None:
    timeline = busy(100_000)
    path = tmp_path / "page.html"
    write_timeline_page({"": timeline}, {"": timeline_figures(timeline)}, path, {})
    assert path.stat().st_size < 0.7 * MAX_BYTES


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


def test_a_timeline_without_spans_is_said_to_have_none() -> None:
    assert "0 spans" in page({"": Timeline("made up", ())})


def test_what_bounds_the_path_of_a_real_trace_is_told() -> None:
    timeline = read_timeline(GPUS / "rank-0.json.gz")
    texts = Parsed(page({"": timeline})).texts
    causes = texts[texts.index("What bounds the critical path") :]
    assert "the host works" in causes
    for heading in ("Steps", "What idle queues waited for", "Launched and not begun"):
        assert heading in texts
    for name in ("ProfilerStep#551", "annotations", "critical path"):
        assert any(name[-14:] in one for one in texts)
