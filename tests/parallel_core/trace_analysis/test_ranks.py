"""Ranks side by side: their collectives are matched whatever clocks say, and what each waited is the same by any clock.

On made-up jobs, and on real ones against what a plain computation from the files gives.
"""

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Timeline
from backends.profiling.collectives import Collective
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.meetings import last_to_arrive, meetings, waits
from parallel_core.trace_analysis.ranks import FIGURES, Ranks, summary_of
from parallel_core.trace_analysis.trace_files import files_of, read_ranks, side_by_side

TRACES = Path(__file__).parent / "traces"
GPUS, PROCESSES = TRACES / "two_gpus", TRACES / "two_processes"
MS = 1_000_000
DAY = 86_400_000 * MS


def call(
    start: int, end: int, kind: str = "allreduce", group: str = "", ranks: Any = None, number: int | None = None
) -> Collective:
    return Collective(kind, group, ranks, "40", start, end, number)


def job(
    ranks: int, count: int, seed: int, offsets: Sequence[int] = ()
) -> tuple[dict[int, list[Collective]], list[list[int]]]:
    """Make up the collectives of ranks that come when they like and leave together, and how late each one came."""
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
def test_every_rank_waits_from_its_arrival_to_the_last_one_s(ranks: int, count: int, seed: int, agree: bool) -> None:
    offsets = [0 if agree else rank * DAY for rank in range(ranks)]
    calls, late = job(ranks, count, seed, offsets)
    found = meetings(calls)
    assert (len(found.met), found.unmatched, found.by_ends, found.clocks_agree) == (count, 0, 0, agree)
    assert dict(found.clock_offsets) == dict(enumerate(offsets))
    for meeting, own in zip(found.met, late, strict=True):
        assert waits(meeting) == {rank: max(own) - at for rank, at in enumerate(own)}
        assert last_to_arrive(meeting, clocks_agree=agree) == own.index(max(own))


def test_what_one_trace_lost_is_left_out_if_clocks_agree() -> None:
    calls, late = job(3, 20, seed=1)
    del calls[1][0], calls[2][7]
    found = meetings(calls)
    assert (len(found.met), found.by_ends, found.unmatched) == (18, 18, 60 - 2 - 54)
    assert [waits(meeting)[0] for meeting in found.met] == [
        max(own) - own[0] for place, own in enumerate(late) if place not in (0, 7)
    ]


def test_equally_many_that_are_not_the_same_ones_are_matched_by_their_ends() -> None:
    calls, _ = job(2, 20, seed=2)
    del calls[0][-1], calls[1][0]
    found = meetings(calls)
    assert (len(found.met), found.by_ends, found.unmatched, found.clocks_agree) == (18, 18, 2, True)


@given(st.integers(2, 4), st.integers(8, 30), st.integers(0, 99), st.integers(0, 3), st.integers(0, 3))
def test_traces_that_begin_later_or_end_earlier_are_laid_along_the_others(
    ranks: int, count: int, seed: int, first: int, last: int
) -> None:
    calls, late = job(ranks, count, seed, offsets=[rank * DAY for rank in range(ranks)])
    calls[1] = calls[1][first : count - last]
    found = meetings(calls)
    assert [waits(meeting)[1] for meeting in found.met] == [max(own) - own[1] for own in late[first : count - last]]
    assert (found.unmatched, found.clocks_agree) == ((ranks - 1) * (first + last), False)


def test_one_kind_s_clocks_serve_for_another_that_lost_some_in_between() -> None:
    calls, _ = job(2, 20, seed=3, offsets=[0, DAY])
    others, _ = job(2, 20, seed=4, offsets=[0, DAY])
    for rank, own in others.items():
        calls[rank] += [one._replace(kind="allgather") for one in own]
    del calls[1][4], calls[0][11]
    found = meetings(calls)
    assert (len(found.met), found.by_ends, found.unmatched) == (38, 18, 2)


def test_order_does_not_count_against_clocks_that_others_agree_on() -> None:
    calls, _ = job(2, 20, seed=3)
    for rank, own in calls.items():
        own += [call((100 * n + 50 * rank) * MS, (100 * n + 50 * rank + 9) * MS, "coalesced") for n in range(9)]
        own += [call((10 * n + rank) * MS, (10 * n + rank) * MS + 9, "broadcast") for n in range(9)]
    found = meetings(calls)
    # Nor does a broadcast, in which one may be done before another begins.
    assert (len(found.met), found.unmatched, found.clocks_agree) == (29, 18, True)


def test_nothing_is_matched_by_chance() -> None:
    calls, _ = job(2, 20, seed=3)
    others, _ = job(2, 15, seed=5, offsets=[0, DAY])
    found = meetings({0: calls[0], 1: others[1]})
    assert (found.met, found.unmatched, found.clocks_agree) == ((), 35, None)
    assert meetings({0: [], 1: [call(0, 5)]}).unmatched == 1


def test_running_numbers_match_whatever_is_missing_and_whatever_clocks_say() -> None:
    ours = [call(10 * MS * n, (10 * n + 3) * MS, number=n) for n in range(5)]
    theirs = [call(DAY + 10 * MS * n, DAY + (10 * n + 1) * MS, number=n) for n in (1, 2, 4)]
    found = meetings({0: ours, 1: theirs})
    assert [waits(meeting) for meeting in found.met] == [{0: 2 * MS, 1: 0}] * 3
    assert (found.unmatched, found.clocks_agree) == (2, False)
    # Several may be launched as one.
    twice = [call(0, 3, number=1), call(4, 9, number=1)]
    assert len(meetings({0: twice, 1: twice}).met) == 2


def test_groups_and_kinds_are_matched_by_themselves_and_messages_not_at_all() -> None:
    pair = {"group": "1 [0, 1]", "ranks": (0, 1)}
    calls = {
        0: [call(0, 9, **pair), call(20, 29, "allgather", group="0"), call(40, 49, "send", group="0")],
        1: [call(20, 25, "allgather", group="0"), call(50, 57, **pair), call(60, 70, "recv", group="0")],
        2: [call(20, 22, "allgather", group="0"), call(80, 90, group="2 [2, 3]", ranks=(2, 3))],
    }
    found = meetings(calls)
    assert sorted(tuple(waits(meeting).items()) for meeting in found.met) == [
        ((0, 2), (1, 0)),
        ((0, 7), (1, 3), (2, 0)),
    ]
    assert found.unmatched == 1


def test_nobody_is_last_if_several_come_at_once() -> None:
    together = {0: call(5, 9), 1: call(5, 9), 2: call(3, 9)}
    assert last_to_arrive(together, clocks_agree=True) is None
    assert last_to_arrive(together, clocks_agree=False) is None


def summary(folder: Path) -> Ranks:
    return summary_of(read_ranks(files_of([folder])))


def events(folder: Path, rank: int, name: str) -> list[dict[str, Any]]:
    """Return the events of a name in the order of their start, read without any of the code under test."""
    document = json.loads(gzip.decompress((folder / f"rank-{rank}.json.gz").read_bytes()))
    named = [event for event in document["traceEvents"] if event["ph"] == "X" and event["name"].startswith(name)]
    return sorted(named, key=lambda event: event["ts"])


def check_waits(found: Ranks, pairs: Sequence[tuple[float, float]]) -> None:
    """Compare what each of two ranks waited with the differences of durations, in microseconds."""
    for rank, one in enumerate(found.by_rank):
        assert one.waited_seconds is not None
        assert one.waited_seconds * 1e6 == pytest.approx(sum(pair[rank] - min(pair) for pair in pairs))
    # The second rank waited less, so the first one waited for it.
    assert found.straggler == 1


def test_gloo_s_waits_are_the_differences_of_durations_in_order() -> None:
    first, second = (events(PROCESSES, rank, "gloo:all_reduce") for rank in (0, 1))
    pairs = [(one["dur"], other["dur"]) for one, other in zip(first, second, strict=True)]
    found = summary(PROCESSES)
    assert (found.matched_collectives, found.unmatched_collectives, found.clocks_agree) == (12, 0, True)
    check_waits(found, pairs)
    assert found.by_rank[1].arrived_last == sum(b["ts"] > a["ts"] for a, b in zip(first, second, strict=True))
    assert (found.world_size, found.notes) == (2, ())


def test_collectives_that_are_missing_in_one_trace_do_not_shift_the_others() -> None:
    first, second = (events(GPUS, rank, "ncclKernel") for rank in (0, 1))
    # The clocks are one machine's: what ends within a millisecond on both is one collective.
    pairs = [
        (one["dur"], other["dur"])
        for one, other in product(first, second)
        if abs(one["ts"] + one["dur"] - other["ts"] - other["dur"]) < 1000
    ]
    found = summary(GPUS)
    assert found.matched_collectives == len(pairs) == 5
    assert found.unmatched_collectives == len(first) + len(second) - 10
    check_waits(found, pairs)
    assert (found.clocks_agree, found.world_size) == (True, 128)
    notes = " ".join(found.notes)
    assert all(f"{count} " in notes for count in ("2 of the job's 128", "10 kernels", "3 collectives"))


def test_the_spread_of_each_figure_is_that_of_the_ranks() -> None:
    found = summary(GPUS)
    assert set(found.spread) == set(FIGURES)
    for figure, spread in found.spread.items():
        (least, least_rank), (most, most_rank) = sorted((getattr(one, figure), one.rank) for one in found.by_rank)
        assert (spread.least, spread.least_rank, spread.most, spread.most_rank) == (least, least_rank, most, most_rank)
        assert (spread.median, spread.spread) == (pytest.approx((least + most) / 2), most - least)


def test_clocks_that_differ_change_nothing_but_what_is_said_of_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        document = json.loads(gzip.decompress((PROCESSES / f"rank-{rank}.json.gz").read_bytes()))
        document["baseTimeNanoseconds"] += rank * 3_600_000_000_000
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(document))
    ours, theirs = summary(PROCESSES), summary(tmp_path)
    assert [one.waited_seconds for one in theirs.by_rank] == [one.waited_seconds for one in ours.by_rank]
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
def test_ranks_are_numbered(tmp_path: Path, said: dict[str, int | None], expected: dict[int, str]) -> None:
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
def test_ranks_that_are_not_known_are_refused(tmp_path: Path, said: dict[str, int | None], problem: str) -> None:
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
