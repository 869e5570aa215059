"""What queues waited for, and their lengths: by the definitions, and as Holistic Trace Analysis counts real traces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.trace_analysis.device_figures.queues import queue_idleness, queue_lengths
from tests.parallel_core.trace_analysis.synthetic import Program, made_case, queue_of
from tests.parallel_core.trace_analysis.traces import case_of_trace


def test_each_gap_is_of_its_kind_since_all_before_it_had_ended() -> None:
    program = Program().run(0, 10, "a", 0).run(2, 4, "b", 1).run(13, 20, "kernel", 10).run(50, 60, "other", 19)
    program.run(64, 70, "host", 62).run(74, 76, "unknown").run(76, 80, "none", 76)
    (found,) = queue_idleness(program.case, kernel_delay=4)
    assert (found.host_wait_seconds, found.kernel_wait_seconds, found.other_wait_seconds) == (4e-9, 3e-9, 34e-9)
    assert (found.host_waits, found.kernel_waits, found.other_waits) == (1, 1, 2)


def test_holistic_trace_analysis_says_the_same_of_whole_microseconds() -> None:
    # HTA 0.5.0, get_idle_time_breakdown(consecutive_kernel_delay=30), in microseconds as the trace has them.
    one, other = queue_idleness(case_of_trace("two_streams"))
    assert (one.host_wait_seconds, one.kernel_wait_seconds, one.other_wait_seconds) == (12.855007, 104e-6, 0)
    assert (other.host_wait_seconds, other.kernel_wait_seconds, other.other_wait_seconds) == (12.011718, 3e-6, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.none() | st.integers(0, 20)), max_size=12))
def test_the_kinds_add_up(steps: list[tuple[int, int, int | None]]) -> None:
    program, now = Program(), 0
    for pause, length, launched in steps:
        now += pause + length
        program.run(now - length, now, "x", None if launched is None else min(launched, now - length))
    for found in queue_idleness(program.case):
        kinds = found.host_wait_seconds + found.kernel_wait_seconds + found.other_wait_seconds
        assert found.idle_seconds == pytest.approx(kinds)
        assert kinds == pytest.approx(sum(pause for pause, _, _ in steps[1:]) / 1e9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two_streams", {"stream 7": (182, 3.346154, 18), "stream 20": (14, 0.642857, 2)}),
        ("ddp", {"stream 7": (1642, 0.530451, 4), "stream 40": (42, 0.5, 1)}),
    ],
)
def test_hta_counts_the_same_lengths(name: str, expected: dict[str, tuple[int, float, int]]) -> None:
    # HTA 0.5.0, get_queue_length_summary: count, mean and maximum.
    found = {
        one.queue: (2 * one.operations, round(one.mean_length_at_changes, 6), one.longest)
        for one in queue_lengths(case_of_trace(name))
    }
    assert found == expected


def test_a_length_lasts_from_launch_to_start() -> None:
    program = Program().run(4, 5, "a", 0).run(8, 9, "b", 2).run(9, 10, "no launch").run(12, 13, "c", 12)
    (found,) = queue_lengths(program.case)
    # One from 0 to 2, two to 4, one to 8, none to 12, when one is launched and starts.
    assert (found.operations, found.longest, found.mean_length) == (3, 2, 10 / 12)
    assert found.mean_length_at_changes == (1 + 2 + 1 + 0 + 1 + 0) / 6
    assert queue_lengths(made_case(*queue_of([(0, 1)]))) == ()
