"""What a trace adds to an answer: figures alone, of what was recorded."""

from dataclasses import replace

import pytest

from backends.profiling import Timeline
from parallel_core.trace_analysis.efficiency import about_efficiency
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.lanes import overlap_phrases
from tests.parallel_core.trace_analysis.synthetic import overlap_timeline, parallel_timeline


def test_copies_that_are_hidden_are_told_with_the_devices_that_worked() -> None:
    told = about_efficiency(timeline_figures(overlap_timeline(products=50))[-1])
    assert "1.96 of 2 devices worked at the same time, on average, 98 % of the shorter of computing and" in told
    assert told.endswith("was hidden, and nothing ran for 0 % of the time.")


def test_of_a_case_that_communicates_nothing_no_share_is_told() -> None:
    told = about_efficiency(timeline_figures(parallel_timeline())[-1])
    assert "hidden" not in told
    assert "devices worked at the same time, on average, and nothing ran for" in told


def test_of_a_case_without_operations_nothing_is_told() -> None:
    (empty,) = timeline_figures(Timeline("made up", ()))
    assert about_efficiency(empty) == ""


def test_of_a_case_that_the_profiler_slowed_down_no_figure_is_told() -> None:
    timeline = overlap_timeline()
    seconds = {case.case: case.seconds for case in timeline_figures(timeline)}
    for slowdown, figures in ((1.2, True), (6.2, False)):
        timed = {case: taken / slowdown for case, taken in seconds.items()}
        case = timeline_figures(replace(timeline, timed=timed))[-1]
        assert case.slowdown == pytest.approx(slowdown)
        assert ("%" in about_efficiency(case)) == figures
        assert (overlap_phrases(case) == (case.slowed_in_words,)) == (not figures)
        assert ("6.2" in case.slowed_in_words) == (not figures)
