"""Time in which nothing ran is told where the median step hides it, and nowhere else."""

from collections.abc import Sequence

import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core.own_program.step_figures import step_figures
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.steps.figures import steps
from parallel_core.trace_analysis.steps.pauses import Pause
from tests.parallel_core.trace_analysis.synthetic import GPU

MS = 1_000_000


def in_steps(pauses: Sequence[int], *, in_step: bool) -> Timeline:
    """Return steps of 9 ms of work and 1 ms of none, and a pause before each, in it or between."""
    spans, marked, time = [], [], 0
    for number, pause in enumerate(pauses):
        begin, time = time, time + pause * MS
        marked.append(Window(f"ProfilerStep#{number}", begin if in_step else time, time + 10 * MS))
        spans.append(Span("gemm", "compute", GPU, "stream 7", time + MS, time + 10 * MS))
        time += 10 * MS
    return Timeline("torch", spans, annotations=tuple(marked))


def pause_in(timeline: Timeline) -> Pause | None:
    (case,) = cases_of(timeline)
    found = steps(case)
    assert found is not None
    return found.pause


def test_a_pause_in_one_step_is_said_and_where() -> None:
    found = pause_in(in_steps([0, 0, 0, 40, 0, 0], in_step=True))
    assert found is not None
    assert found.share == pytest.approx(46 / 100)
    assert found.step_share == pytest.approx(0.1)
    assert found.longest_seconds == pytest.approx(0.041)
    assert (found.after, found.before) == ("ProfilerStep#3", "ProfilerStep#3")


def test_a_pause_between_two_steps_is_said_and_where() -> None:
    found = pause_in(in_steps([0, 0, 0, 5, 0, 0], in_step=False))
    assert found is None
    found = pause_in(in_steps([0, 0, 0, 9, 0, 0, 0, 0, 0, 9], in_step=False))
    assert found is not None
    assert found.share == pytest.approx(28 / 118)
    assert (found.after, found.before) == ("ProfilerStep#2", "ProfilerStep#3")


@pytest.mark.parametrize("pauses", [[0] * 6, [40] * 6])
def test_what_the_median_step_says_is_not_said_twice(pauses: list[int]) -> None:
    assert pause_in(in_steps(pauses, in_step=True)) is None


def test_a_queue_s_share_is_of_the_median_step_as_all_others_are() -> None:
    # A cold first step is six times as long as the others.
    found = step_figures(in_steps([50, 0, 0, 0, 0], in_step=True), 5)
    (queue,) = found.queues
    assert queue.busy_share == pytest.approx(0.9)
    shares = [step.compute_seconds / step.seconds for step in found.by_step]
    assert sorted(shares)[2] == pytest.approx(queue.busy_share)
