"""The innermost call at each time: against looking at all calls."""

from hypothesis import given
from hypothesis import strategies as st

from parallel_core.trace_analysis.host_waits import innermost
from parallel_core.trace_analysis.waited_for import NONE
from tests.parallel_core.trace_analysis.synthetic import Program

THREADS = ("Python", "Python 2")


@st.composite
def nested(draw: st.DrawFn) -> Program:
    """Draw calls on two threads, each of which lies in the one before it, or comes after it."""
    program = Program()
    for thread in THREADS:
        _fill(draw, program, thread, draw(st.integers(0, 3)), 30)
    return program


def _fill(draw: st.DrawFn, program: Program, thread: str, start: int, end: int) -> None:
    for pause, length, inside in draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=4)
    ):
        begin, until = min(start + pause, end), min(start + pause + length, end)
        program.call(begin, until, f"call {len(program.calls)}", "operator", thread)
        if inside and until > begin:
            _fill(draw, program, thread, begin, until)
        start = until


@given(nested())
def test_the_innermost_call_is_the_shortest_that_runs(program: Program) -> None:
    calls = program.host_calls
    for thread, name in enumerate(calls.queues):
        begins, found = innermost(calls, thread)
        for time in range(40):
            place = int(begins.searchsorted(time, side="right")) - 1
            call = int(found[place]) if place >= 0 else NONE
            running = [one for one in program.calls if one[3] == name and one[0] <= time < one[1]]
            assert (call == NONE) == (not running)
            if running:
                length = min(one[1] - one[0] for one in running)
                assert calls.starts[call] <= time < calls.ends[call]
                assert calls.ends[call] - calls.starts[call] == length
                assert calls.queues[calls.queue_of[call]] == name


def test_a_call_that_ends_after_the_one_it_began_in_is_cut() -> None:
    # Profilers round starts and durations each for itself.
    calls = Program().call(0, 10, "outer").call(5, 12, "inner").call(6, 8, "innermost").call(11, 15, "next").host_calls
    named = [
        (int(begin), calls.names[call] if call >= 0 else None) for begin, call in zip(*innermost(calls, 0), strict=True)
    ]
    assert named == [(0, "outer"), (5, "inner"), (6, "innermost"), (8, "inner"), (10, None), (11, "next"), (15, None)]
