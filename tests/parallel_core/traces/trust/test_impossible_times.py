"""Traces whose times cannot be: a note says what was left out, and the rest is right."""

import json
from pathlib import Path
from typing import Any

import pytest

from parallel_core.traces.ranks.reading import RankTrace, read_ranks

OPERATIONS = 50


def launches_and_kernels(unit: float = 1, begin: float = 0) -> list[dict[str, Any]]:
    """Return the events of kernels that take 50 microseconds, one every 100, each after the call
    that launches it; `unit` is the length of a microsecond in the trace's times.
    """
    events: list[dict[str, Any]] = []
    for number in range(OPERATIONS):
        arguments = {"correlation": number + 1, "device": 0, "stream": 7}
        launch_time = begin + 100 * number
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": arguments}
        launch |= {"pid": 9, "tid": 9, "ts": launch_time * unit, "dur": 5 * unit}
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "args": arguments}
        kernel |= {"pid": 0, "tid": 7, "ts": (launch_time + 30) * unit, "dur": 50 * unit}
        events += [launch, kernel]
    return events


def trace_of(folder: Path, events: list[dict[str, Any]]) -> RankTrace:
    """Write events as a trace into a folder, and read it."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (rank,) = read_ranks([path]).values()
    return rank


@pytest.mark.parametrize("unit", [1e-6, 1e-9])
def test_times_in_another_unit_are_told(tmp_path: Path, unit: float) -> None:
    rank = trace_of(tmp_path, launches_and_kernels(unit))
    assert "other-unit" in [doubt.code for doubt in rank.doubts]


@pytest.mark.parametrize("begin", [0, -3000, 1.7e15])
def test_times_begin_wherever_they_do(tmp_path: Path, begin: float) -> None:
    rank = trace_of(tmp_path, launches_and_kernels(begin=begin))
    (case,) = rank.figures
    assert case.compute_seconds == pytest.approx(OPERATIONS * 50e-6)
    assert rank.timeline.notes == ()


@pytest.mark.parametrize(
    ("key", "value"), [("ts", "NaN"), ("dur", float("nan")), ("dur", float("inf")), ("dur", -1)]
)
def test_events_of_impossible_times_are_counted_and_left_out(
    tmp_path: Path, key: str, value: object
) -> None:
    events = launches_and_kernels()
    # Two of the kernels, which stand after their launches.
    events[3][key] = value
    events[9][key] = value
    rank = trace_of(tmp_path, events)
    (case,) = rank.figures
    assert case.compute_seconds == pytest.approx((OPERATIONS - 2) * 50e-6)
    assert any(note.startswith("2 events") for note in rank.timeline.notes)
