"""The critical path: it always tiles a case, and goes through what held the case up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline
from parallel_core.trace_analysis.case_spans import CaseSpans, cases_of
from parallel_core.trace_analysis.critical_path import PathSummary, critical_path, path_summary
from tests.parallel_core.trace_analysis.synthetic import FIRST, SECOND, overlap_timeline, queue_of, sorted_by_start

QUEUES: tuple[tuple[str, str, tuple[str, SpanKind]], ...] = (
    (FIRST, "compute", ("matmul", "compute")),
    (FIRST, "compute 2", ("matmul", "compute")),
    (SECOND, "copy", ("copy", "copy")),
    (HOST_DEVICE, "Python", ("launch matmul", "host")),
    (HOST_DEVICE, "Python", ("wait", "host")),
    (HOST_DEVICE, "waits", ("WaitForVar", "host")),
)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Draw spans on several queues, some without length, some linked to a launch before them."""
    spans = []
    now: dict[tuple[str, str], int] = {}
    for place, pause, length, linked in draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 4), st.none() | st.integers(0, 6)),
            max_size=30,
        )
    ):
        device, queue, (name, kind) = QUEUES[place]
        start = now.get((device, queue), 0) + pause
        now[device, queue] = start + length
        launched = None if linked is None or kind == "host" else max(0, start - linked)
        spans.append(Span(name, kind, device, queue, start, start + length, launched))
    return Timeline("drawn", sorted_by_start(spans))


def case_of(*spans: Span) -> CaseSpans:
    (case,) = cases_of(Timeline("made up", sorted_by_start(spans)))
    return case


def segments_of(*spans: Span) -> list[tuple[str, int, int]]:
    return [(span.name if span else "idle", start, end) for start, end, span in critical_path(case_of(*spans))]


def shares(summary: PathSummary) -> dict[str, float]:
    return {part.name: part.share for part in summary.parts}


def operation(name: str, start: int, end: int, launched: int | None = None, device: str = FIRST) -> Span:
    return Span(name, "compute", device, "compute", start, end, launched)


def call(name: str, start: int, end: int) -> Span:
    return Span(name, "host", HOST_DEVICE, "Python", start, end)


@given(timelines())
def test_a_path_tiles_the_case_up_to_its_last_operation(timeline: Timeline) -> None:
    (case,) = cases_of(timeline)
    segments = critical_path(case)
    ends = [span.end for span in case.spans if span.kind != "host" and span.end > span.start]
    if not ends:
        assert segments == ()
        return
    assert segments[0].start == case.start
    assert segments[-1].end == max(ends)
    assert all(before.end == after.start for before, after in itertools.pairwise(segments))
    assert all(segment.start < segment.end for segment in segments)


@given(timelines())
def test_a_segment_lies_in_its_span_and_an_operation_is_on_the_path_as_a_whole_and_once(timeline: Timeline) -> None:
    (case,) = cases_of(timeline)
    seen = [span for _, _, span in critical_path(case) if span is not None]
    for one in seen:
        within = [span for span in case.spans if span[:4] == one[:4] and span.start <= one.start < one.end <= span.end]
        assert within
        assert one in within or one.kind == "host"
    summary = path_summary(case)
    assert sum(part.share for part in summary.parts) + summary.idle_share == pytest.approx(1 if summary.seconds else 0)
    assert sum(part.segments for part in summary.parts) == len(seen)
    assert sum(part.seconds for part in summary.parts) == pytest.approx(sum(one.end - one.start for one in seen) / 1e9)


@pytest.mark.parametrize(("slow", "fast"), [("matmul", "copy"), ("copy", "matmul")])
def test_the_longer_of_two_queues_is_the_path(slow: str, fast: str) -> None:
    seconds = {"matmul": "product", "copy": "copy"}
    timeline = overlap_timeline(**{seconds[slow]: 4e-3, seconds[fast]: 1e-3})  # type: ignore[arg-type]
    found = shares(path_summary(cases_of(timeline)[-1]))
    assert found[slow] > 0.95
    assert found[fast] < 0.05


@pytest.mark.parametrize("linked", [True, False])
def test_where_launching_takes_longer_than_computing_the_host_is_the_path(linked: bool) -> None:
    spans: list[Span] = []
    for number in range(10):
        begin = 100 * number
        begun = begin if linked else None
        spans += [call("launch add", begin, begin + 100), operation("add", begin + 105, begin + 130, begun)]
    found = shares(path_summary(case_of(*spans)))
    assert found["launch add"] > 0.9


@pytest.mark.parametrize("linked", [True, False])
def test_a_synchronous_engine_s_calls_are_not_the_path_but_what_they_compute(linked: bool) -> None:
    timeline = overlap_timeline(synchronous=True, linked=linked)
    found = shares(path_summary(cases_of(timeline)[-1]))
    assert found["matmul"] + found["copy"] > 0.99


def test_where_the_host_waited_the_path_goes_on_with_what_it_waited_for() -> None:
    assert segments_of(
        call("launch a", 0, 1),
        operation("a", 2, 10, 0),
        call("wait", 1, 11),
        call("launch b", 12, 13),
        operation("b", 14, 20, 12),
    ) == [
        ("launch a", 0, 1),
        ("idle", 1, 2),
        ("a", 2, 10),
        ("wait", 10, 11),
        ("idle", 11, 12),
        ("launch b", 12, 13),
        ("idle", 13, 14),
        ("b", 14, 20),
    ]


def test_what_ended_last_is_taken_wherever_it_ran() -> None:
    spans = (operation("early", 0, 3), operation("late", 0, 5, device=SECOND), operation("last", 6, 9))
    assert segments_of(*spans) == [("late", 0, 5), ("idle", 5, 6), ("last", 6, 9)]


def test_of_ends_that_the_profiler_cannot_tell_apart_the_queue_s_own_is_taken() -> None:
    spans = (operation("mine", 0, 5), operation("other", 0, 6, device=SECOND), operation("last", 6, 9))
    assert [name for name, *_ in segments_of(*spans)] == ["mine", "idle", "last"]


def test_a_call_that_launched_something_else_did_not_hold_up_a_linked_operation() -> None:
    spans = (call("launch a", 0, 1), operation("a", 1, 3, 0), call("launch b", 1, 5), operation("last", 6, 7, 0))
    assert [name for name, *_ in segments_of(*spans)] == ["launch a", "a", "idle", "last"]


def test_operations_without_length_are_passed_over() -> None:
    assert segments_of(operation("a", 1, 1), operation("b", 1, 1), operation("c", 1, 2)) == [("c", 1, 2)]
    assert segments_of(*queue_of([(1, 1)])) == []


def test_an_operation_that_began_before_any_call_was_launched_by_none() -> None:
    assert segments_of(operation("a", 0, 2), call("launch b", 1, 1)) == [("a", 0, 2)]


def test_a_call_that_was_under_way_is_not_taken_for_the_launch_of_what_ran_on_after_it() -> None:
    spans = (call("launch a", 0, 1), operation("a", 1, 3), call("launch b", 2, 5), operation("last", 4, 9))
    assert [name for name, *_ in segments_of(*spans)] == ["launch a", "a", "idle", "last"]
