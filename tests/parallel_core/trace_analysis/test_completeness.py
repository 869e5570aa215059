"""What a trace lacks is said, and a host's share is not offered in a device's place."""

import re
from collections import Counter
from pathlib import Path

import pytest

from backends.profiling import Timeline
from parallel_core.trace_analysis.trace_files import read_ranks, read_timeline

TRACES = Path(__file__).parent / "traces"
INCOMPLETE = TRACES / "incomplete"


def devices_of(timeline: Timeline) -> set[str]:
    return {span.device for span in timeline.spans}


def notes_of(name: str) -> tuple[str, ...]:
    (rank,) = read_ranks([INCOMPLETE / f"{name}.json"]).values()
    return rank.timeline.notes


@pytest.mark.parametrize("name", ["kernels_missing", "nccl_annotations_only", "ascend_strings"])
def test_where_a_device_is_not_in_the_trace_no_share_of_a_cpu_stands_for_it(name: str) -> None:
    timeline = read_timeline(INCOMPLETE / f"{name}.json")
    assert devices_of(timeline) == {"host"}
    assert len(timeline.notes) == 1


def test_launches_without_operations_are_counted() -> None:
    assert any(note.startswith("20 launches ") for note in notes_of("kernels_missing"))


def test_events_that_say_not_what_they_are_are_named_with_their_processes() -> None:
    (note,) = (note for note in notes_of("ascend_strings") if note.startswith("30 events"))
    assert "Ascend Hardware" in note
    assert "HCCL" in note


def test_kernels_that_copy_are_copies() -> None:
    timeline = read_timeline(INCOMPLETE / "hip_copies.json")
    kinds = Counter(span.kind for span in timeline.spans if span.device == "gpu:0")
    assert kinds == {"compute": 10, "copy": 20}
    (rank,) = read_ranks([INCOMPLETE / "hip_copies.json"]).values()
    (figures,) = rank.figures
    # 2.00 of 5.00 ms, by intervals alone.
    assert figures.hidden_share == pytest.approx(0.4)


def test_kernels_named_like_collectives_are_told_until_they_count_as_such() -> None:
    assert any("8 ms" in note for note in notes_of("custom_allreduce"))
    path = INCOMPLETE / "custom_allreduce.json"
    (rank,) = read_ranks([path], re.compile("reduce")).values()
    assert not any("8 ms" in note for note in rank.timeline.notes)
    (figures,) = rank.figures
    assert figures.collective_seconds == pytest.approx(0.008)


COMPLETE = [path for path in sorted(TRACES.glob("*/*.gz")) if path.parent != INCOMPLETE]


@pytest.mark.parametrize("path", COMPLETE, ids=lambda path: path.name)
def test_a_complete_trace_is_not_called_incomplete(path: Path) -> None:
    notes = read_timeline(path).notes
    assert not any("no operation on a device" in note or "category, of" in note for note in notes)
