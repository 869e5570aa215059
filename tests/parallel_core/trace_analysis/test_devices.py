"""The time of each device, divided, its operations by name, and what its queues waited for and held.

By the definitions, and as Holistic Trace Analysis counts real traces.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.trace_analysis.devices import device_figures, operations_by_name, queue_idleness, queue_lengths
from tests.parallel_core.trace_analysis.synthetic import Program, made_case, queue_of
from tests.parallel_core.trace_analysis.traces import case_of_trace


def test_holistic_trace_analysis_says_the_same_but_for_its_rounding() -> None:
    (found,) = device_figures(case_of_trace("ddp"))
    # As counted from the file, nanosecond by nanosecond.
    assert (found.operations, found.seconds, found.idle_seconds) == (842, 0.650741473, 0.583905775)
    assert (found.compute_seconds, found.non_compute_seconds) == (0.020733021, 0.046102677)
    assert (found.collective_seconds, found.hidden_collective_seconds) == (0.046876493, 0.001410705)
    # HTA 0.5.0 with all steps, in microseconds that it rounds down, a start and a duration each.
    at_most = 2e-6 * found.operations
    assert found.idle_seconds == pytest.approx(584_696e-6, abs=at_most)
    assert found.compute_seconds == pytest.approx(20_214e-6, abs=at_most)
    assert found.hidden_collective_share == pytest.approx(0.0290, abs=0.003)


def test_copies_and_fills_are_neither_computation_nor_collectives() -> None:
    fill = queue_of([(4, 6)])[0]._replace(operator="Memset (Device)")
    (found,) = device_figures(made_case(*queue_of([(0, 2)]), *queue_of([(2, 4)], "copy"), fill))
    assert (found.compute_seconds, found.non_compute_seconds, found.idle_seconds) == (2, 4, 0)
    assert (found.collective_seconds, found.hidden_collective_share) == (0, None)


def test_devices_have_their_own_figures_and_the_host_none() -> None:
    spans = (*queue_of([(0, 4)], "exchange", "gpu:0"), *queue_of([(0, 4)], device="gpu:1"))
    found = device_figures(made_case(*spans, *queue_of([(0, 9)], "host", "host")))
    assert [(one.device, one.hidden_collective_share) for one in found] == [("gpu:0", 0), ("gpu:1", None)]


def test_one_name_of_two_kinds_is_two_rows_and_the_longest_come_first() -> None:
    spans = [*queue_of([(0, 1), (1, 3)]), *queue_of([(3, 9)], "copy")]
    found = operations_by_name(made_case(*(span._replace(name="same") for span in spans)))
    assert [(one.kind, one.operations, one.seconds, one.mean_seconds, one.longest_seconds) for one in found] == [
        ("copy", 1, 6, 6, 6),
        ("compute", 2, 3, 1.5, 2),
    ]
    assert [one.share for one in found] == [6 / 9, 3 / 9]
    assert operations_by_name(made_case()) == ()


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
