"""Time in which nothing ran is told where the median step hides it, and nowhere else."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.traces.account import Division
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.steps.figures import steps
from parallel_core.traces.steps.pauses import Pause
from parallel_core.traces.trust import unrecorded_time
from tests.parallel_core.traces.synthetic import GPU, sorted_by_start

MS = 1_000_000


def in_steps(pauses: Sequence[int], *, in_step: bool) -> Timeline:
    """Return the timeline of steps of 1 ms without work and 9 ms of it, and of pauses before them.

    A pause, in milliseconds, belongs to the step that follows it, or to none.
    """
    spans, windows = [], []
    end = 0
    for number, pause in enumerate(pauses):
        pause_start = end
        pause_end = pause_start + pause * MS
        end = pause_end + 10 * MS
        step_start = pause_start if in_step else pause_end
        windows.append(Window(f"ProfilerStep#{number}", step_start, end))
        spans.append(Span("gemm", "compute", GPU, "stream 7", pause_end + MS, end))
    return Timeline("torch", spans, annotations=tuple(windows))


def pause_in(timeline: Timeline) -> Pause | None:
    """Return the pause that is told of a timeline's steps, if any is."""
    (case,) = cases_of(timeline)
    figures = steps(case, Division.of(case))
    assert figures is not None
    return figures.pause


def test_a_pause_in_one_step_is_said_and_where() -> None:
    pause = pause_in(in_steps([0, 0, 0, 40, 0, 0], in_step=True))
    assert pause is not None
    # The pause and 1 ms of each of the six steps.
    assert pause.share == pytest.approx((40 + 6) / 100)
    assert pause.step_share == pytest.approx(0.1)
    assert pause.longest_seconds == pytest.approx(0.041)
    assert pause.after == "ProfilerStep#3"
    assert pause.before == "ProfilerStep#3"


def test_a_pause_between_two_steps_is_said_and_where() -> None:
    pause = pause_in(in_steps([0, 0, 0, 9, 0, 0, 0, 0, 0, 9], in_step=False))
    assert pause is not None
    # Two pauses and 1 ms of each of the ten steps.
    assert pause.share == pytest.approx((9 + 9 + 10) / 118)
    assert pause.after == "ProfilerStep#2"
    assert pause.before == "ProfilerStep#3"


def test_a_short_pause_between_two_steps_is_not_said() -> None:
    assert pause_in(in_steps([0, 0, 0, 5, 0, 0], in_step=False)) is None


@pytest.mark.parametrize("pauses", [[0] * 6, [40] * 6])
def test_what_the_median_step_says_is_not_said_twice(pauses: list[int]) -> None:
    assert pause_in(in_steps(pauses, in_step=True)) is None


def without_steps(gaps: Sequence[int]) -> Timeline:
    """Return operations of 10 ms, each after a gap in milliseconds."""
    spans = []
    end = 0
    for gap in (0, *gaps):
        start = end + gap * MS
        end = start + 10 * MS
        spans.append(Span("gemm", "compute", "cpu", "thread", start, end))
    return Timeline("torch", spans)


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        ([1] * 20, []),
        ([8] * 20, []),
        ([1, 1, 1, 9], []),
        # 300 of 300 + 8 + 11 x 10 ms.
        ([1, 1, 1, 300, 1, 1, 1, 1, 1, 0], ["72 % ", "300 ms, after 43.0 ms"]),
        # Several epochs: 4 x 30 of 120 + 21 + 26 x 10 ms.
        ([1, 1, 1, 1, 1, 30] * 4 + [1], ["30 % ", "30.0 ms"]),
    ],
)
def test_time_without_a_record_is_said_of_programs_without_steps(
    gaps: list[int], said: list[str]
) -> None:
    notes = list(unrecorded_time(without_steps(gaps)))
    assert len(notes) == bool(said)
    assert all(words in notes[0] for words in said)


def test_what_a_host_does_is_a_record_too() -> None:
    timeline = without_steps([1, 1, 1, 300, 1])
    waiting = Span("wait", "host", HOST_DEVICE, "Python", 44 * MS, 340 * MS)
    spans = sorted_by_start((*timeline.spans, waiting))
    assert list(unrecorded_time(replace(timeline, spans=spans))) == []
