"""Traces whose times cannot be: a note says what was left out, and the rest is right."""

import json
from pathlib import Path
from typing import Any

import pytest

from parallel_core.trace_analysis.trace_files import RankTrace, read_ranks

OPERATIONS = 50


def events(unit: float = 1, begin: float = 0) -> list[dict[str, Any]]:
    """Return kernels of 50 microseconds, one each 100, and the calls that launch them."""
    made = []
    for number in range(OPERATIONS):
        time = begin + 100 * number
        alike = {"ph": "X", "args": {"correlation": number + 1, "device": 0, "stream": 7}}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9}
        kernel = {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7}
        made.append({**alike, **launch, "ts": time * unit, "dur": 5 * unit})
        made.append({**alike, **kernel, "ts": (time + 30) * unit, "dur": 50 * unit})
    return made


def read(folder: Path, written: list[dict[str, Any]]) -> RankTrace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": written}))
    (rank,) = read_ranks([path]).values()
    return rank


@pytest.mark.parametrize("unit", [1e-6, 1e-9])
def test_times_in_another_unit_are_told(tmp_path: Path, unit: float) -> None:
    notes = read(tmp_path, events(unit)).timeline.notes
    assert any("microseconds" in note for note in notes)


@pytest.mark.parametrize("begin", [0, -3000, 1.7e15])
def test_times_begin_wherever_they_do(tmp_path: Path, begin: float) -> None:
    rank = read(tmp_path, events(begin=begin))
    (case,) = rank.figures
    assert case.compute_seconds == pytest.approx(OPERATIONS * 50e-6)
    assert rank.timeline.notes == ()


@pytest.mark.parametrize(
    ("key", "value"), [("ts", "NaN"), ("dur", float("nan")), ("dur", float("inf")), ("dur", -1)]
)
def test_events_of_impossible_times_are_counted_and_left_out(
    tmp_path: Path, key: str, value: object
) -> None:
    written = events()
    written[3][key] = written[9][key] = value
    rank = read(tmp_path, written)
    (case,) = rank.figures
    assert case.compute_seconds == pytest.approx((OPERATIONS - 2) * 50e-6)
    assert any(note.startswith("2 events") for note in rank.timeline.notes)
