"""Ranks side by side: what real ones waited is what a plain computation from their files gives,
and every rank has its number.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.profiling import Timeline
from parallel_core.system.errors import RequestError
from parallel_core.traces.ranks import Ranks, summary_of
from parallel_core.traces.ranks.reading import read_ranks, side_by_side
from parallel_core.traces.trace_files import files_of
from tests.parallel_core.traces.stored import TRACES, events_in
from tests.parallel_core.traces.synthetic import with_figures

GPUS, PROCESSES = TRACES / "two_gpus", TRACES / "two_processes"
MS = 1_000_000


def summary(folder: Path) -> Ranks:
    return summary_of(read_ranks(files_of([folder])))


def codes_of(ranks: Ranks) -> list[str]:
    return [doubt.code for doubt in ranks.notes]


def test_ranks_without_any_exchange_are_told_apart_from_those_that_did_not_meet() -> None:
    traces = read_ranks(files_of([PROCESSES]), keep_spans=True)
    assert "no-exchange" not in codes_of(summary_of(traces))

    alone = {}
    for rank, trace in traces.items():
        figures_without_exchange = [
            with_figures(figures, parts=replace(figures.parts, exchange_seconds=0.0))
            for figures in trace.figures
        ]
        alone[rank] = replace(trace, collectives=(), figures=figures_without_exchange)

    assert codes_of(summary_of(alone)) == ["no-exchange"]
    assert "no-exchange" not in codes_of(summary_of({0: alone[0]}))


def test_gloo_s_waits_are_the_differences_of_durations_in_order() -> None:
    first, second = (
        [event for event in events_in(path) if event["name"].startswith("gloo:")]
        for path in files_of([PROCESSES])
    )
    waited = [0.0, 0.0]
    second_arrived_last = 0
    for of_first, of_second in zip(first, second, strict=True):
        durations = (of_first["dur"], of_second["dur"])
        waited[0] += durations[0] - min(durations)
        waited[1] += durations[1] - min(durations)
        second_arrived_last += of_second["ts"] > of_first["ts"]

    ranks = summary(PROCESSES)

    assert ranks.matched_collectives == 12
    assert ranks.unmatched_collectives == 0
    assert ranks.clocks_agree is True
    microseconds = [1e6 * (rank.waited_seconds or 0.0) for rank in ranks.by_rank]
    assert microseconds == pytest.approx(waited)
    # The second rank waited less, so the first one waited for it.
    assert ranks.straggler == 1
    assert ranks.by_rank[1].arrived_last == second_arrived_last
    assert ranks.world_size == 2
    assert ranks.notes == ()


def test_clocks_that_differ_change_nothing_but_what_is_said_of_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        document = json.loads(gzip.decompress((PROCESSES / f"rank-{rank}.json.gz").read_bytes()))
        hour_in_nanoseconds = 3_600_000_000_000
        document["baseTimeNanoseconds"] += rank * hour_in_nanoseconds
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(document))

    agreeing, differing = summary(PROCESSES), summary(tmp_path)

    assert [rank.waited_seconds for rank in differing.by_rank] == [
        rank.waited_seconds for rank in agreeing.by_rank
    ]
    assert differing.straggler == agreeing.straggler
    assert differing.clocks_agree is False
    assert "clocks-differ" in codes_of(differing)


def test_ranks_stand_side_by_side_as_their_clocks_say() -> None:
    ranks = read_ranks(files_of([PROCESSES]), keep_spans=True)
    span_count = sum(trace.spans for trace in ranks.values())
    starts_alone = [int(trace.timeline.columns.starts.min()) for trace in ranks.values()]
    first, second = (events_in(path)[0]["ts"] for path in files_of([PROCESSES]))
    distance = (second - first) * 1000

    by_clocks = side_by_side(ranks, clocks_agree=True)
    assert len(by_clocks.spans) == span_count
    starts = first_starts(by_clocks)
    assert min(starts) < 50 * MS
    assert starts[1] - starts[0] == pytest.approx(distance, abs=50 * MS)
    assert starts != starts_alone

    each_from_its_start = side_by_side(ranks, clocks_agree=False)
    assert len(each_from_its_start.spans) == span_count
    assert first_starts(each_from_its_start) == starts_alone


def first_starts(timeline: Timeline) -> list[int]:
    """Return when the first span of rank 0 starts, and of rank 1, in nanoseconds."""
    starts: dict[str, int] = {}
    # Spans are in the order of their start.
    for span in timeline.spans:
        starts.setdefault(span.device.split()[1], span.start)
    return [starts["0"], starts["1"]]


def write_traces(folder: Path, rank_by_name: Mapping[str, int | None]) -> None:
    """Write traces of these names; those with a rank say it in their text."""
    mm = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    for name, rank in rank_by_name.items():
        document: dict[str, Any] = {"schemaVersion": 1, "traceEvents": [mm]}
        if rank is not None:
            document["distributedInfo"] = {"rank": rank}
        (folder / name).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("rank_by_name", "name_by_rank"),
    [
        ({"a.json": 1, "b.json": 0}, {0: "b.json", 1: "a.json"}),
        ({"rank-7.json": None, "rank_2.json": None}, {2: "rank_2.json", 7: "rank-7.json"}),
        ({"a.json": None, "b.json": None}, {0: "a.json", 1: "b.json"}),
    ],
    ids=["by the trace", "by the name", "by the order"],
)
def test_ranks_are_numbered(
    tmp_path: Path, rank_by_name: dict[str, int | None], name_by_rank: dict[int, str]
) -> None:
    write_traces(tmp_path, rank_by_name)

    traces = read_ranks(files_of([tmp_path]))
    assert {rank: trace.file.name for rank, trace in traces.items()} == name_by_rank
    assert list(traces) == sorted(traces)

    ranks = summary_of(traces)
    assert ranks.straggler is None
    assert ranks.clocks_agree is None
    assert ranks.matched_collectives == 0
    is_rank_missing = None in rank_by_name.values()
    assert ("rank-not-said" in codes_of(ranks)) == is_rank_missing


@pytest.mark.parametrize(
    ("rank_by_name", "problem"),
    [
        ({"a.json": 1, "b.json": 1}, r"a.json and .*b.json are both of rank 1"),
        ({"a.json": 1, "b.json": None}, r"b.json does not say its rank"),
        ({}, "holds no trace"),
    ],
)
def test_ranks_that_are_not_known_are_refused(
    tmp_path: Path, rank_by_name: dict[str, int | None], problem: str
) -> None:
    write_traces(tmp_path, rank_by_name)
    with pytest.raises(RequestError, match=problem):
        read_ranks(files_of([tmp_path]))
    if rank_by_name:
        with pytest.raises(RequestError, match="named twice"):
            files_of([tmp_path, tmp_path / "a.json"])


def test_of_ranks_that_wait_alike_none_is_the_straggler() -> None:
    first = read_ranks(files_of([PROCESSES]))[0]
    ranks = summary_of({0: first, 1: replace(first, rank=1)})
    assert ranks.matched_collectives == 12
    assert ranks.straggler is None
