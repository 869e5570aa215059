"""Ranks side by side: their collectives are matched whatever clocks say, and what each waited is
the same by any clock.

On made-up jobs, and on real ones against what a plain computation from the files gives.
"""

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Timeline
from backends.profiling.collectives import Collective
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.ranks import FIGURES, NO_EXCHANGE, Ranks, summary_of
from parallel_core.trace_analysis.ranks.meetings import last_to_arrive, meetings, waits
from parallel_core.trace_analysis.trace_files import files_of, read_ranks, side_by_side

TRACES = Path(__file__).parent / "traces"
GPUS, PROCESSES = TRACES / "two_gpus", TRACES / "two_processes"
MS = 1_000_000
DAY = 86_400_000 * MS


def call(
    start: int,
    end: int,
    kind: str = "allreduce",
    group: str = "",
    ranks: Any = None,
    number: int | None = None,
) -> Collective:
    return Collective(kind, group, ranks, "40", start, end, number)


def job(
    ranks: int, count: int, seed: int, offsets: Sequence[int] = ()
) -> tuple[dict[int, list[Collective]], list[list[int]]]:
    """Make up the collectives of ranks that come when they like and leave together, and how late
    each one came.
    """
    chance = random.Random(seed)
    late = [[chance.randrange(8 * MS) for _ in range(ranks)] for _ in range(count)]
    begins = list(accumulate(chance.randrange(20, 60) * MS for _ in range(count)))
    calls = {
        rank: [
            call(begin + own[rank] + clock, begin + max(own) + 4 * MS + clock)
            for begin, own in zip(begins, late, strict=True)
        ]
        for rank, clock in zip(range(ranks), offsets or [0] * ranks, strict=True)
    }
    return calls, late


@given(st.integers(2, 5), st.integers(1, 20), st.integers(0, 99), st.booleans())
def test_every_rank_waits_from_its_arrival_to_the_last_one_s(
    ranks: int, count: int, seed: int, agree: bool
) -> None:
    offsets = [0 if agree else rank * DAY for rank in range(ranks)]
    calls, late = job(ranks, count, seed, offsets)
    result = meetings(calls)
    assert (len(result.matched), result.unmatched, result.clocks_agree) == (count, 0, agree)
    assert dict(result.clock_offsets) == dict(enumerate(offsets))
    for meeting, delays in zip(result.matched, late, strict=True):
        assert waits(meeting) == {rank: max(delays) - delay for rank, delay in enumerate(delays)}
        assert last_to_arrive(meeting, clocks_agree=agree) == delays.index(max(delays))


@pytest.mark.parametrize("clock", [0, DAY], ids=["one clock", "two clocks"])
@pytest.mark.parametrize(
    ("lost", "unmatched"),
    [({1: [0]}, 39), ({1: [0], 0: [7]}, 38), ({1: [0], 0: [19]}, 38)],
    ids=["fewer on one rank", "others on each rank", "first and last"],
)
def test_order_does_not_count_if_some_are_lost(
    clock: int, lost: dict[int, list[int]], unmatched: int
) -> None:
    calls, _ = job(2, 20, seed=2, offsets=[0, clock])
    for rank, places in lost.items():
        for place in places:
            del calls[rank][place]
    result = meetings(calls)
    assert (result.matched, result.unmatched, result.clocks_agree) == ((), unmatched, None)


def test_a_kind_that_lost_some_leaves_the_others_matched() -> None:
    calls, _ = job(2, 20, seed=3, offsets=[0, DAY])
    others, _ = job(2, 20, seed=4, offsets=[0, DAY])
    for rank, calls_of_rank in others.items():
        calls[rank] += [gathering._replace(kind="allgather") for gathering in calls_of_rank]
    del calls[1][4]
    result = meetings(calls)
    assert {meeting[0].kind for meeting in result.matched} == {"allgather"}
    assert (len(result.matched), result.unmatched) == (20, 39)


def test_order_does_not_count_if_a_rank_was_done_before_another_began() -> None:
    calls, _ = job(2, 20, seed=3)
    for rank, calls_of_rank in calls.items():
        for n in range(9):
            coalesced, broadcast = (100 * n + 50 * rank) * MS, (10 * n + rank) * MS
            calls_of_rank.append(call(coalesced, coalesced + 9 * MS, "coalesced"))
            calls_of_rank.append(call(broadcast, broadcast + 9, "broadcast"))
    result = meetings(calls)
    # After a broadcast the rank that sends may be done before another begins.
    assert {meeting[0].kind for meeting in result.matched} == {"allreduce", "broadcast"}
    assert (len(result.matched), result.unmatched, result.clocks_agree) == (29, 18, True)


def test_of_many_in_order_single_ones_that_do_not_overlap_are_left_out() -> None:
    calls, _ = job(2, 20, seed=3)
    early = calls[1][5]
    calls[1][5] = early._replace(start=early.start - 16 * MS, end=early.start - 15 * MS)
    result = meetings(calls)
    assert (len(result.matched), result.unmatched) == (19, 2)


@pytest.mark.parametrize(
    ("kind", "changed", "count"),
    [
        ("allreduce", {"elements": 5}, 0),
        ("allreduce", {"element_type": "Half"}, 0),
        ("alltoall", {"element_type": "Half"}, 0),
        # Ranks may give different numbers of elements, and a trace may not say what they gave.
        ("alltoall", {"elements": 5}, 20),
        ("allreduce", {"elements": None, "element_type": ""}, 20),
    ],
)
def test_order_does_not_count_if_elements_differ(
    kind: str, changed: dict[str, Any], count: int
) -> None:
    calls, _ = job(2, 20, seed=3)
    same = {
        rank: [part._replace(kind=kind, element_type="Float", elements=4) for part in calls_of_rank]
        for rank, calls_of_rank in calls.items()
    }
    assert len(meetings(same).matched) == 20
    same[1][7] = same[1][7]._replace(**changed)
    assert len(meetings(same).matched) == count


def test_a_collective_of_one_rank_is_not_matched() -> None:
    assert meetings({0: [], 1: [call(0, 5)]}).unmatched == 1


def test_running_numbers_match_whatever_is_missing_and_whatever_clocks_say() -> None:
    ours = [call(10 * MS * n, (10 * n + 3) * MS, number=n) for n in range(5)]
    theirs = [call(DAY + 10 * MS * n, DAY + (10 * n + 1) * MS, number=n) for n in (1, 2, 4)]
    result = meetings({0: ours, 1: theirs})
    assert [waits(meeting) for meeting in result.matched] == [{0: 2 * MS, 1: 0}] * 3
    assert (result.unmatched, result.clocks_agree) == (2, False)
    # Several may be launched as one.
    twice = [call(0, 3, number=1), call(4, 9, number=1)]
    assert len(meetings({0: twice, 1: twice}).matched) == 2


def test_numbers_come_before_order() -> None:
    ours = [call(0, 9, number=1), call(10, 19, number=2)]
    theirs = [call(0, 9, number=2), call(10, 19, number=3)]
    (meeting,) = meetings({0: ours, 1: theirs}).matched
    assert (meeting[0].start, meeting[1].start) == (10, 0)


def test_groups_and_kinds_are_matched_by_themselves_and_messages_not_at_all() -> None:
    pair = {"group": "1 [0, 1]", "ranks": (0, 1)}
    calls = {
        0: [
            call(0, 9, **pair),
            call(20, 29, "allgather", group="0"),
            call(40, 49, "send", group="0"),
        ],
        1: [call(5, 12, **pair), call(20, 25, "allgather", group="0"), call(60, 70, "recv")],
        2: [call(20, 22, "allgather", group="0"), call(80, 90, group="2 [2, 3]", ranks=(2, 3))],
    }
    result = meetings(calls)
    assert sorted(tuple(waits(meeting).items()) for meeting in result.matched) == [
        ((0, 2), (1, 0)),
        ((0, 7), (1, 3), (2, 0)),
    ]
    assert result.unmatched == 1


def test_nobody_is_last_if_several_come_at_once() -> None:
    together = {0: call(5, 9), 1: call(5, 9), 2: call(3, 9)}
    assert last_to_arrive(together, clocks_agree=True) is None
    assert last_to_arrive(together, clocks_agree=False) is None


def summary(folder: Path) -> Ranks:
    return summary_of(read_ranks(files_of([folder])))


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


def check_waits(found: Ranks, pairs: Sequence[tuple[float, float]]) -> None:
    """Compare what each of two ranks waited with the differences of durations, in microseconds."""
    for rank, one in enumerate(found.by_rank):
        assert one.waited_seconds is not None
        assert one.waited_seconds * 1e6 == pytest.approx(
            sum(pair[rank] - min(pair) for pair in pairs)
        )
    # The second rank waited less, so the first one waited for it.
    assert found.straggler == 1


def test_ranks_without_any_exchange_are_told_apart_from_those_that_did_not_meet() -> None:
    traces = read_ranks(files_of([PROCESSES]), keep_spans=True)
    assert NO_EXCHANGE.format(2) not in summary_of(traces).notes
    alone = {
        rank: replace(
            one,
            collectives=(),
            figures=[
                replace(case, parts=replace(case.parts, exchange_seconds=0.0))
                for case in one.figures
            ],
        )
        for rank, one in traces.items()
    }
    assert summary_of(alone).notes == (NO_EXCHANGE.format(2),)
    assert NO_EXCHANGE.format(1) not in summary_of({0: alone[0]}).notes


def test_gloo_s_waits_are_the_differences_of_durations_in_order() -> None:
    first, second = (events(PROCESSES, rank, "gloo:all_reduce") for rank in (0, 1))
    pairs = [(one["dur"], other["dur"]) for one, other in zip(first, second, strict=True)]
    found = summary(PROCESSES)
    assert (found.matched_collectives, found.unmatched_collectives, found.clocks_agree) == (
        12,
        0,
        True,
    )
    check_waits(found, pairs)
    assert found.by_rank[1].arrived_last == sum(
        b["ts"] > a["ts"] for a, b in zip(first, second, strict=True)
    )
    assert (found.world_size, found.notes) == (2, ())


def test_of_traces_that_lost_collectives_only_those_in_a_consistent_order_are_matched() -> None:
    def of_stream(stream: int, rank: int) -> list[dict[str, Any]]:
        kernels = events(GPUS, rank, "ncclKernel")
        return [event for event in kernels if event["args"]["stream"] == stream]

    result = summary(GPUS)
    whole = zip(of_stream(203, rank=0), of_stream(203, rank=1), strict=True)
    pairs = [(one["dur"], other["dur"]) for one, other in whole]
    assert result.matched_collectives == len(pairs) == 2
    assert result.unmatched_collectives == len(of_stream(84, rank=0) + of_stream(84, rank=1))
    check_waits(result, pairs)
    assert (result.clocks_agree, result.world_size) == (True, 128)
    notes = " ".join(result.notes)
    assert all(f"{count} " in notes for count in ("2 of the job's 128", "16 kernels"))


def test_the_spread_of_each_figure_is_that_of_the_ranks() -> None:
    found = summary(GPUS)
    assert set(found.spread) == set(FIGURES)
    for figure, spread in found.spread.items():
        (least, least_rank), (most, most_rank) = sorted(
            (getattr(one, figure), one.rank) for one in found.by_rank
        )
        assert (spread.least, spread.least_rank, spread.most, spread.most_rank) == (
            least,
            least_rank,
            most,
            most_rank,
        )
        assert (spread.median, spread.spread) == (pytest.approx((least + most) / 2), most - least)


def test_clocks_that_differ_change_nothing_but_what_is_said_of_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        document = json.loads(gzip.decompress((PROCESSES / f"rank-{rank}.json.gz").read_bytes()))
        document["baseTimeNanoseconds"] += rank * 3_600_000_000_000
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(document))
    ours, theirs = summary(PROCESSES), summary(tmp_path)
    assert [one.waited_seconds for one in theirs.by_rank] == [
        one.waited_seconds for one in ours.by_rank
    ]
    assert (theirs.straggler, theirs.clocks_agree) == (ours.straggler, False)
    assert theirs.by_rank[1].clock_offset_seconds == pytest.approx(3600, abs=1)
    assert any("clocks do not agree" in note and "from durations" in note for note in theirs.notes)


def test_ranks_stand_side_by_side_as_their_clocks_say() -> None:
    ranks = read_ranks(files_of([PROCESSES]), keep_spans=True)
    together, apart = (side_by_side(ranks, clocks_agree) for clocks_agree in (True, False))
    assert len(together.spans) == len(apart.spans) == sum(one.spans for one in ranks.values())
    begins = first_starts(together)
    first, second = (events(PROCESSES, rank, "")[0]["ts"] for rank in (0, 1))
    assert min(begins) < 50_000_000
    assert begins[1] - begins[0] == pytest.approx((second - first) * 1000, abs=50_000_000)
    alone = [min(span.start for span in one.timeline.spans) for one in ranks.values()]
    assert begins != alone
    assert first_starts(apart) == alone


def first_starts(timeline: Timeline) -> list[int]:
    """Return when the first span of rank 0 starts, and of rank 1, in nanoseconds."""
    starts: dict[int, list[int]] = {0: [], 1: []}
    for span in timeline.spans:
        starts[int(span.device.split()[1])].append(span.start)
    return [min(of_rank) for of_rank in starts.values()]


def put(folder: Path, said: Mapping[str, int | None]) -> None:
    """Write traces of these names, which say their rank or do not."""
    mm = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    for name, rank in said.items():
        job = {} if rank is None else {"distributedInfo": {"rank": rank}}
        (folder / name).write_text(json.dumps({"schemaVersion": 1, **job, "traceEvents": [mm]}))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"a.json": 1, "b.json": 0}, {0: "b.json", 1: "a.json"}),
        ({"rank-7.json": None, "rank_2.json": None}, {2: "rank_2.json", 7: "rank-7.json"}),
        ({"a.json": None, "b.json": None}, {0: "a.json", 1: "b.json"}),
    ],
    ids=["by the trace", "by the name", "by the order"],
)
def test_ranks_are_numbered(
    tmp_path: Path, said: dict[str, int | None], expected: dict[int, str]
) -> None:
    put(tmp_path, said)
    read = read_ranks(files_of([tmp_path]))
    assert {rank: one.file.name for rank, one in read.items()} == expected
    assert list(read) == sorted(read)
    found = summary_of(read)
    assert (found.straggler, found.clocks_agree, found.matched_collectives) == (None, None, 0)
    assert any("do not say their rank" in note for note in found.notes) == (None in said.values())


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"a.json": 1, "b.json": 1}, r"a.json and .*b.json are both of rank 1"),
        ({"a.json": 1, "b.json": None}, r"b.json does not say its rank"),
        ({}, "holds no trace"),
    ],
)
def test_ranks_that_are_not_known_are_refused(
    tmp_path: Path, said: dict[str, int | None], problem: str
) -> None:
    put(tmp_path, said)
    with pytest.raises(RequestError, match=problem):
        read_ranks(files_of([tmp_path]))
    if said:
        with pytest.raises(RequestError, match="named twice"):
            files_of([tmp_path, tmp_path / "a.json"])


def test_of_ranks_that_wait_alike_none_is_the_straggler() -> None:
    first = read_ranks(files_of([PROCESSES]))[0]
    found = summary_of({0: first, 1: replace(first, rank=1)})
    assert (found.matched_collectives, found.straggler) == (12, None)
