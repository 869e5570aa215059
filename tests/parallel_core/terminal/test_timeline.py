"""What is printed of a timeline: all that was computed, readable in 80 columns, and short where cases are many."""

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.profiling import Span, Timeline, Window
from parallel_core.terminal.timeline import show_agreements, show_figures
from parallel_core.trace_analysis.figures import CaseFigures, timeline_figures
from parallel_core.trace_analysis.profiling_run import DISPATCH, Agreement
from tests.backends.profiling.events import ns
from tests.parallel_core.terminal.printed import in_words, printed
from tests.parallel_core.trace_analysis.synthetic import FIRST, JOINT, held, overlap_result, overlap_timeline, queue_of


def shown(found: tuple[CaseFigures, ...], main: str | None = None, width: int = 100) -> str:
    return printed(show_figures, found, main=main, width=width)


@pytest.mark.parametrize("width", [80, 100])
def test_a_case_is_shown_by_queue_and_in_lines(width: int) -> None:
    text = shown(timeline_figures(overlap_timeline()), JOINT, width)
    assert all(len(line) <= width for line in text.splitlines())
    text = in_words(text)
    assert "cpu:1 compute 50 98 % 0 – –" in text
    assert "host Python 101 1 %, waits 99 % 0 – –" in text
    assert "98 % of the copying (196 ms of 200 ms) lay under computation" in text
    assert "critical path: 98 % copy on cpu:2 compute and 2 % matmul on cpu:1 compute" in text
    assert "from launch to start: 99.0 ms in the median of 100 operations, 178 ms at the 90th percentile" in text
    assert "control returned after 2.00 ms, 1 % of the time" in text


def test_a_title_says_that_the_profiler_slowed_a_case_down_and_nothing_is_divided_by_it() -> None:
    timeline = overlap_timeline()
    text = in_words(shown(timeline_figures(replace(timeline, timed={JOINT: 0.05})), JOINT))
    assert "slowed down by the profiler: 4.1 × the time" in text
    assert not re.search("overlap:|critical path:", text)
    assert "slowed down" not in shown(timeline_figures(replace(timeline, timed={JOINT: 0.2})), JOINT)


def test_of_what_a_trace_does_not_have_nothing_is_said() -> None:
    text = shown(timeline_figures(Timeline("made up", queue_of([(0, 1), (2, 3)]))))
    assert "critical path: 67 % compute on cpu:1 compute and 33 % idle" in in_words(text)
    assert not re.search("overlap|launch|control|None|nan", text)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=400))
@example([(1, 0, number) for number in range(300)])
@example([(1, 999, number) for number in range(300)])
def test_the_shares_of_a_critical_path_add_up_however_many_names_share_it(drawn: list[tuple[int, int, int]]) -> None:
    """Operations follow each other: their lengths, the gaps before them and their names are drawn."""
    spans, end = [], 0
    for length, gap, name in drawn:
        spans.append(Span(f"k{name}", "compute", "cuda:0", "stream 7", end + gap, end + gap + length))
        end += gap + length
    text = in_words(shown(timeline_figures(Timeline("made up", tuple(spans), (Window("case", 0, end),))), width=1000))
    for line in re.findall("critical path: (.*)", text):
        shares = [float(share) for share in re.findall(r"([\d.]+) % (?:k\d+ on|(?:other|[\d,]+) names|idle)", line)]
        # Each of at most five is rounded, and the rest or idle time below 0.5 % is left out.
        assert shares
        assert abs(sum(shares) - 100) <= 3


def test_of_many_cases_only_the_main_one_is_shown_in_full() -> None:
    spans = queue_of([(hour, hour + 0.5) for hour in range(20)])
    found = timeline_figures(
        Timeline("made up", spans, tuple(Window(f"case {hour}", ns(hour), ns(hour + 1)) for hour in range(20)))
    )
    text = shown(found, "case 7")
    assert all(f"case {hour} " in text for hour in range(20))
    assert re.findall("“(.*)”", text) == ["case 7"]
    assert "“" not in shown(found)


def test_a_case_that_the_profiler_saw_nothing_of_is_said_to_be_empty() -> None:
    cases = (Window("[first]", 0, ns(2)), Window("[bold]", ns(5), ns(6)))
    text = shown(timeline_figures(Timeline("made up", queue_of([(0, 1)], device=FIRST), cases)))
    assert "“[bold]”: the profiler recorded nothing in it" in text


def test_what_differs_is_explained_and_what_agrees_is_counted() -> None:
    result = overlap_result(0.2, 0.2, 0.3)
    text = in_words(printed(show_agreements, held(result, stretch=1.5)))
    assert "run and copy together overlap_efficiency 0.98 0.5 ± " in text
    assert "“run and copy together”: overlap_efficiency 0.98 by the trace, 0.5 by the clock" in text
    assert "6 of 6 agree" in text


def test_of_times_only_the_main_case_s_are_listed_and_the_others_are_counted() -> None:
    one = Agreement("case", DISPATCH, 0.9, 0.1, 0.05)
    cases = [replace(one, case=f"case {number}", by_clock=0.9 if number == 4 else 0.1) for number in range(5)]
    text = printed(show_agreements, cases, main="case 2", asked=DISPATCH)
    assert text.count("differ") == 1
    assert text.count("! ") == 1
    assert "1 of 4 agree" in text
    assert "case 2" not in printed(show_agreements, cases, main="case 2", asked="overlap_efficiency")
    assert printed(show_agreements, ()) == ""
