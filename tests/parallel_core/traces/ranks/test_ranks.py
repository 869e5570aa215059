"""Ranks side by side: what real ones waited is what a plain computation from their files gives,
and every rank has its number.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.profiling import Timeline
from parallel_core.system.errors import RequestError
from parallel_core.traces.ranks import FIGURES, Ranks, summary_of
from parallel_core.traces.ranks.reading import read_ranks, side_by_side
from parallel_core.traces.trace_files import files_of
from tests.parallel_core.traces.synthetic import with_figures

TRACES = Path(__file__).parents[1] / "stored"
GPUS, PROCESSES = TRACES / "two_gpus", TRACES / "two_processes"
MS = 1_000_000


def summary(folder: Path) -> Ranks:
    return summary_of(read_ranks(files_of([folder])))


def codes_of(ranks: Ranks) -> list[str]:
    return [doubt.code for doubt in ranks.notes]


def events(folder: Path, rank: int, name: str) -> list[dict[str, Any]]:
    """Return the events of a name in the order of their start, read without any of the code under
    test.
    """
    document = json.loads(gzip.decompress((folder / f"rank-{rank}.json.gz").read_bytes()))
    named = [
        event
        for event in document["traceEvents"]
        if event["ph"] == "X" and event["name"].startswith(name)
    ]
    return sorted(named, key=lambda event: event["ts"])


def durations_of_pairs(
    first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]
) -> list[tuple[float, float]]:
    """Return the durations of events of two ranks that belong together, in microseconds."""
    return [
        (event_of_first["dur"], event_of_second["dur"])
        for event_of_first, event_of_second in zip(first, second, strict=True)
    ]


def check_waits(ranks: Ranks, durations: Sequence[tuple[float, float]]) -> None:
    """Check that each of two ranks waited as much longer as its collectives took than the
    shorter ones of their pairs, in microseconds.
    """
    for rank, rank_summary in enumerate(ranks.by_rank):
        expected = sum(pair[rank] - min(pair) for pair in durations)
        assert rank_summary.waited_seconds is not None
        assert rank_summary.waited_seconds * 1e6 == pytest.approx(expected)
    # The second rank waited less, so the first one waited for it.
    assert ranks.straggler == 1


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
    first = events(PROCESSES, 0, "gloo:all_reduce")
    second = events(PROCESSES, 1, "gloo:all_reduce")
    arrived_later = [
        event_of_second["ts"] > event_of_first["ts"]
        for event_of_first, event_of_second in zip(first, second, strict=True)
    ]

    ranks = summary(PROCESSES)

    assert ranks.matched_collectives == 12
    assert ranks.unmatched_collectives == 0
    assert ranks.clocks_agree is True
    check_waits(ranks, durations_of_pairs(first, second))
    assert ranks.by_rank[1].arrived_last == sum(arrived_later)
    assert ranks.world_size == 2
    assert ranks.notes == ()


def test_of_traces_that_lost_collectives_only_those_in_a_consistent_order_are_matched() -> None:
    def of_stream(stream: int, rank: int) -> list[dict[str, Any]]:
        kernels = events(GPUS, rank, "ncclKernel")
        return [event for event in kernels if event["args"]["stream"] == stream]

    complete = durations_of_pairs(of_stream(203, rank=0), of_stream(203, rank=1))
    incomplete = [*of_stream(84, rank=0), *of_stream(84, rank=1)]

    ranks = summary(GPUS)

    assert len(complete) == 2
    assert ranks.matched_collectives == 2
    assert ranks.unmatched_collectives == len(incomplete)
    check_waits(ranks, complete)
    assert ranks.clocks_agree is True
    assert ranks.world_size == 128


def test_the_spread_of_each_figure_is_that_of_the_ranks() -> None:
    ranks = summary(GPUS)
    assert set(ranks.spread) == set(FIGURES)
    for figure, spread in ranks.spread.items():
        values = [(getattr(summary, figure), summary.rank) for summary in ranks.by_rank]
        least, least_rank = min(values)
        most, most_rank = max(values)
        assert spread.least == least
        assert spread.least_rank == least_rank
        assert spread.most == most
        assert spread.most_rank == most_rank
        assert spread.median == pytest.approx((least + most) / 2)
        assert spread.spread == most - least


def test_clocks_that_differ_change_nothing_but_what_is_said_of_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        document = json.loads(gzip.decompress((PROCESSES / f"rank-{rank}.json.gz").read_bytes()))
        hour_in_nanoseconds = 3_600_000_000_000
        document["baseTimeNanoseconds"] += rank * hour_in_nanoseconds
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(document))

    agreeing, differing = summary(PROCESSES), summary(tmp_path)

    for rank in (0, 1):
        waited_seconds = agreeing.by_rank[rank].waited_seconds
        assert differing.by_rank[rank].waited_seconds == waited_seconds
    assert len(differing.by_rank) == 2
    assert differing.straggler == agreeing.straggler
    assert differing.clocks_agree is False
    assert "clocks-differ" in codes_of(differing)


def test_ranks_stand_side_by_side_as_their_clocks_say() -> None:
    ranks = read_ranks(files_of([PROCESSES]), keep_spans=True)
    span_count = sum(trace.spans for trace in ranks.values())
    starts_alone = [min(span.start for span in trace.timeline.spans) for trace in ranks.values()]
    first_microseconds = events(PROCESSES, 0, "")[0]["ts"]
    second_microseconds = events(PROCESSES, 1, "")[0]["ts"]
    distance = (second_microseconds - first_microseconds) * 1000

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
    starts: dict[int, list[int]] = {0: [], 1: []}
    for span in timeline.spans:
        starts[int(span.device.split()[1])].append(span.start)
    return [min(starts[0]), min(starts[1])]


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
