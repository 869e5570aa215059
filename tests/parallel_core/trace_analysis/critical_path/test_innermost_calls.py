"""The innermost call of a thread at each time, against looking at all calls."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling.timeline import HostCalls
from parallel_core.trace_analysis.host_waits import innermost
from parallel_core.trace_analysis.waited_for import NONE
from tests.parallel_core.trace_analysis.synthetic import Program


@st.composite
def nested(draw: st.DrawFn) -> Program:
    """Draw calls on two threads, each of which lies in the one before it, or comes after it."""
    program = Program()
    for thread in ("Python", "Python 2"):
        first_start = draw(st.integers(0, 3))
        _add_calls(draw, program, thread, first_start, last_end=30)
    return program


def _add_calls(
    draw: st.DrawFn, program: Program, thread: str, first_start: int, last_end: int
) -> None:
    """Draw calls that follow each other between two times, and calls inside some of them."""
    earliest = first_start
    for _ in range(draw(st.integers(0, 4))):
        start = min(earliest + draw(st.integers(0, 3)), last_end)
        end = min(start + draw(st.integers(0, 12)), last_end)
        program.call(start, end, f"call {len(program.calls)}", "operator", thread)
        if end > start and draw(st.booleans()):
            _add_calls(draw, program, thread, start, end)
        earliest = end


def innermost_at(calls: HostCalls, thread: str, time: int) -> int:
    """Return the number of the innermost call of a thread at a time, or `NONE`."""
    calls_of_thread = np.flatnonzero(calls.queue_of == calls.queues.index(thread))
    begins, innermost_calls = innermost(calls, calls_of_thread)
    stretch = int(begins.searchsorted(time, side="right")) - 1
    return int(innermost_calls[stretch]) if stretch >= 0 else NONE


@given(nested())
def test_the_innermost_call_is_the_shortest_that_runs(program: Program) -> None:
    calls = program.host_calls
    for thread in calls.queues:
        for time in range(40):
            lengths_of_running = [
                end - start
                for start, end, _, thread_of_call, _ in program.calls
                if thread_of_call == thread and start <= time < end
            ]

            call = innermost_at(calls, thread, time)

            if not lengths_of_running:
                assert call == NONE
                continue
            assert call != NONE
            assert calls.starts[call] <= time < calls.ends[call]
            assert calls.ends[call] - calls.starts[call] == min(lengths_of_running)
            assert calls.queues[calls.queue_of[call]] == thread


def test_a_call_that_ends_after_the_one_it_began_in_is_cut() -> None:
    # Profilers round starts and durations each for itself.
    program = Program()
    program.call(0, 10, "outer")
    program.call(5, 12, "inner")
    program.call(6, 8, "innermost")
    program.call(11, 15, "next")
    calls = program.host_calls

    begins, innermost_calls = innermost(calls, np.arange(len(calls.starts)))

    stretches = []
    for begin, call in zip(begins, innermost_calls, strict=True):
        stretches.append((int(begin), None if call == NONE else calls.names[call]))
    assert stretches == [
        (0, "outer"),
        (5, "inner"),
        (6, "innermost"),
        (8, "inner"),
        (10, None),
        (11, "next"),
        (15, None),
    ]
