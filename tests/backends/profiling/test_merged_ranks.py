"""Files into which ranks were merged: divided whatever a tool did to their ids, or refused, never read as one."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from backends.profiling import read_trace
from backends.profiling.collectives import job_of
from backends.profiling.merged_ranks import divided

Document = dict[str, Any]


def of_rank(rank: int, *, links: int = 100, process: int | None = None, device: int | None = None) -> Document:
    """Return what PyTorch's profiler writes of one rank: three launches and their kernels."""
    host, gpu = process or 4000 + rank, rank if device is None else device
    events: list[Document] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}} for pid in (host, 0, 1)
    ]
    for number in range(3):
        link = {"correlation": links + number}
        at = 1000.0 * number + rank
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": host, "tid": host}
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel of {rank}", "pid": gpu, "tid": 7}
        events += [
            {**launch, "ts": at, "dur": 5.0, "args": link},
            {**kernel, "ts": at + 20, "dur": 100.0, "args": {**link, "device": gpu, "stream": 7}},
        ]
    return {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}


def with_offsets(documents: list[Document]) -> Document:
    """Add multiples of a large number to the ids, as TraceLens does, and name the processes after their ranks."""
    events = []
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["pid"] += 10_000 * rank
            if event["ph"] == "M":
                event["args"]["name"] = f"RANK {rank} - {'CPU' if event['pid'] % 10_000 > 1 else 'GPU'}"
            else:
                event["args"]["correlation"] += 1000 * rank
            events.append(event)
    return {"traceEvents": events}


def with_labels(documents: list[Document]) -> Document:
    """Put the rank before the process ids, as SGLang does; the first file's properties stay."""
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["pid"] = f"[TP{rank:02d}-DP00] {event['pid']}"
    return joined(documents)


def with_ranks_as_ids(documents: list[Document]) -> Document:
    for rank, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["pid"] = rank
    return {"traceEvents": joined(documents)["traceEvents"]}


def joined(documents: list[Document]) -> Document:
    return {**documents[0], "traceEvents": [event for one in documents for event in one["traceEvents"]]}


def read(tmp_path: Path, *documents: Document) -> Any:
    path = tmp_path / "merged.json"
    path.write_text("".join(map(json.dumps, documents)))
    return read_trace(path)


@pytest.mark.parametrize("merge", [with_offsets, with_labels, with_ranks_as_ids, joined])
def test_merged_ranks_are_divided_again(tmp_path: Path, merge: Callable[[list[Document]], Document]) -> None:
    # Only where nothing else tells ranks apart their links must not collide.
    documents = [of_rank(0), of_rank(1, links=500 if merge is joined else 100)]
    first, second = divided(read(tmp_path, merge(deepcopy(documents))))
    for rank, part in enumerate((first, second)):
        assert job_of(part).rank == rank
        assert len(part.slices) == 6
        assert {one.name for one in part.slices if one.category == "kernel"} == {f"kernel of {rank}"}
    assert first.begin == second.begin


def test_files_behind_each_other_are_divided_and_a_note_says_that_they_are_numbered(tmp_path: Path) -> None:
    parts = divided(read(tmp_path, of_rank(0), of_rank(1, links=500)))
    assert [job_of(part).rank for part in parts] == [0, 1]
    assert all("they are numbered here" in part.problems[-1] for part in parts)


@pytest.mark.parametrize(
    "ambiguous",
    [
        pytest.param((of_rank(0), of_rank(1)), id="ids of launches collide"),
        pytest.param((of_rank(0), of_rank(1, links=500, device=0)), id="both ranks call their device 0"),
        pytest.param((of_rank(0, process=7), of_rank(1, links=500, process=7)), id="both ranks are process 7"),
        pytest.param((of_rank(0), of_rank(0)), id="the same file twice"),
    ],
)
def test_ranks_that_cannot_be_told_apart_are_refused(tmp_path: Path, ambiguous: tuple[Document, Document]) -> None:
    for merged in (read(tmp_path, joined(list(deepcopy(ambiguous)))), read(tmp_path, *deepcopy(ambiguous))):
        with pytest.raises(ValueError, match="give each rank's own file") as refused:
            divided(merged)
        assert "\n" not in str(refused.value)


def test_process_ids_that_collide_are_refused_without_names_too(tmp_path: Path) -> None:
    documents = [of_rank(0, process=7), of_rank(1, process=7)]
    for document in documents:
        document["traceEvents"] = [event for event in document["traceEvents"] if event["ph"] == "X"]
    with pytest.raises(ValueError, match="the same process ids"):
        divided(read(tmp_path, joined(documents)))


def test_one_rank_s_trace_is_returned_as_it_is(tmp_path: Path) -> None:
    trace = read(tmp_path, of_rank(1))
    assert divided(trace) == (trace,)
    assert divided(trace)[0] is trace


def test_one_process_with_several_devices_is_one_rank(tmp_path: Path) -> None:
    both = [of_rank(0, process=7), of_rank(1, process=7, links=500)]
    both[1]["traceEvents"] = [event for event in both[1]["traceEvents"] if event["ph"] == "X"]
    trace = read(tmp_path, joined(both))
    assert divided(trace) == (trace,)
