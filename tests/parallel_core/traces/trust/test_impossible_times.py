"""Traces whose times cannot be: a note says what was left out, and the rest is right."""

from pathlib import Path

import pytest

from tests.parallel_core.traces.made_up_trace import MadeUpTrace

OPERATIONS = 50


def launches_and_kernels(unit: float = 1, begin: float = 0) -> MadeUpTrace:
    """Return a trace of kernels that take 50 microseconds, one every 100, each behind its launch.

    `unit` is the length of a microsecond in the trace's times.
    """
    trace = MadeUpTrace()
    for number in range(OPERATIONS):
        trace.kernel("gemm", begin + 100 * number, 50)
    for event in trace.events:
        event["ts"] *= unit
        event["dur"] *= unit
    return trace


@pytest.mark.parametrize("unit", [1e-6, 1e-9])
def test_times_in_another_unit_are_told(tmp_path: Path, unit: float) -> None:
    doubts = launches_and_kernels(unit).read(tmp_path).doubts
    assert "other-unit" in [doubt.code for doubt in doubts]


@pytest.mark.parametrize("begin", [0, -3000, 1.7e15])
def test_times_begin_wherever_they_do(tmp_path: Path, begin: float) -> None:
    rank = launches_and_kernels(begin=begin).read(tmp_path)
    (case,) = rank.figures
    assert case.compute_seconds == pytest.approx(OPERATIONS * 50e-6)
    assert rank.doubts == ()


@pytest.mark.parametrize(
    ("key", "value"), [("ts", "NaN"), ("dur", float("nan")), ("dur", float("inf")), ("dur", -1)]
)
def test_events_of_impossible_times_are_counted_and_left_out(
    tmp_path: Path, key: str, value: object
) -> None:
    trace = launches_and_kernels()
    # Two of the kernels, which stand after their launches.
    trace.events[3][key] = value
    trace.events[9][key] = value
    rank = trace.read(tmp_path)
    (case,) = rank.figures
    assert case.compute_seconds == pytest.approx((OPERATIONS - 2) * 50e-6)
    assert [doubt.code for doubt in rank.doubts] == [
        "impossible-times",
        "launches-without-operations",
    ]
