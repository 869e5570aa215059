"""What bounds a time, against asking at each instant what ran and who was waited for."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, SpanKind
from parallel_core.traces.account import PARTS, Division, Parts, bounds_in_words
from parallel_core.traces.case_spans import CaseSpans
from parallel_core.traces.cases import CaseFigures
from tests.parallel_core.traces.stored import LINKED, case_of_trace
from tests.parallel_core.traces.synthetic import GPU, Program

BOUNDS = ("compute", "exchange", "copy", "blocked")
"""In the order in which they count."""


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw waits of the host, copies that block their calls and others, and work of all kinds."""
    program = Program()
    times = st.integers(0, 30)
    kinds: st.SearchStrategy[SpanKind] = st.sampled_from(("compute", "exchange", "copy"))
    for number in range(draw(st.integers(1, 8))):
        start, length = draw(times), draw(st.integers(1, 9))
        queue = f"stream {number}"
        program.spans.append(Span("work", draw(kinds), GPU, queue, start, start + length))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(times)
        program.call(start, start + draw(st.integers(1, 9)), "wait", "wait")
    if draw(st.booleans()):
        start, length = draw(times), draw(st.integers(1, 5))
        program.call(start, start + 7, "copy it", "copy")
        program.spans.append(
            Span("copied", "copy", GPU, "copies", start + 3, start + 3 + length, start)
        )
    return program


def running_at(program: Program, time: int) -> set[str]:
    """Return which kinds of operation run at a time, and "blocked" if the host is."""
    running: set[str] = {span.kind for span in program.spans if span.start <= time < span.end}
    for start, end, _, _, role in program.calls:
        copied_within = any(span.launched == start and span.end <= end for span in program.spans)
        if start <= time < end and (role == "wait" or copied_within):
            running.add("blocked")
    return running


def parts_of(case: CaseSpans) -> Parts:
    """Return the parts of a whole case."""
    (parts,) = Division.of(case).parts([(case.start, case.end)])
    return parts


@given(programs())
def test_each_instant_is_bound_by_the_first_that_holds(program: Program) -> None:
    case = program.case
    counted: Counter[str] = Counter()
    for time in range(case.start, case.end):
        running = running_at(program, time)
        counted[next((bound for bound in BOUNDS if bound in running), "launching")] += 1
    parts = parts_of(case)
    assert round(parts.compute_seconds * 1e9) == counted["compute"]
    assert round(parts.exposed_exchange_seconds * 1e9) == counted["exchange"]
    assert round(parts.exposed_copy_seconds * 1e9) == counted["copy"]
    assert round(parts.blocked_seconds * 1e9) == counted["blocked"]
    assert round(parts.idle_seconds * 1e9) == counted["blocked"] + counted["launching"]


def test_what_bounds_a_time_is_told_in_words() -> None:
    program = Program()
    program.call(0, 10, "launch a").run(10, 60, "a", 0)
    program.call(20, 80, "synchronize", "wait").call(80, 90, "launch b").run(90, 100, "b", 80)
    parts = parts_of(program.case)
    assert bounds_in_words(parts, has_host=True) == (
        "60 % computing, 20 % the host launches and 20 % a blocking call"
    )
    assert bounds_in_words(parts, has_host=False) == "60 % computing and 40 % waiting"


@pytest.mark.parametrize("name", LINKED)
def test_the_parts_of_a_real_trace_sum_to_its_time(name: str) -> None:
    figures = CaseFigures(case_of_trace(name))
    for parts in (figures.parts, *figures.accounted):
        bounds = [getattr(parts, part) for part in PARTS]
        assert min(bounds) >= 0
        assert sum(bounds) == pytest.approx(parts.seconds)
        assert 0 <= parts.blocked_seconds <= parts.idle_seconds
