"""Collectives of several ranks are matched whatever clocks say, and what each rank waited is the
same by any clock: on made-up jobs, whose waits are known.
"""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling.collectives import Collective
from parallel_core.traces.ranks.meetings import last_to_arrive, meetings, waits

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
    """Return the calls of each rank in made-up collectives, and the ranks' delays in each of them.

    Ranks come to a collective when they like and leave it together. Each rank's clock is ahead by
    its offset.
    """
    chance = random.Random(seed)
    offsets = offsets or [0] * ranks
    calls: dict[int, list[Collective]] = {rank: [] for rank in range(ranks)}
    delays_of_all = []
    begin = 0
    for _ in range(count):
        begin += chance.randrange(20, 60) * MS
        delays = [chance.randrange(8 * MS) for _ in range(ranks)]
        end = begin + max(delays) + 4 * MS
        for rank, offset in enumerate(offsets):
            calls[rank].append(call(begin + delays[rank] + offset, end + offset))
        delays_of_all.append(delays)
    return calls, delays_of_all


@given(st.integers(2, 5), st.integers(1, 20), st.integers(0, 99), st.booleans())
def test_every_rank_waits_from_its_arrival_to_the_last_one_s(
    ranks: int, count: int, seed: int, agree: bool
) -> None:
    offsets = [0 if agree else rank * DAY for rank in range(ranks)]
    calls, delays_of_all = job(ranks, count, seed, offsets)

    result = meetings(calls)

    assert len(result.matched) == count
    assert result.unmatched == 0
    assert result.clocks_agree == agree
    for meeting, delays in zip(result.matched, delays_of_all, strict=True):
        longest = max(delays)
        assert waits(meeting) == {rank: longest - delay for rank, delay in enumerate(delays)}
        assert last_to_arrive(meeting, clocks_agree=agree) == delays.index(longest)


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
    for rank, positions in lost.items():
        for position in positions:
            del calls[rank][position]

    result = meetings(calls)

    assert result.matched == ()
    assert result.unmatched == unmatched
    assert result.clocks_agree is None


def test_a_kind_that_lost_some_leaves_the_others_matched() -> None:
    calls, _ = job(2, 20, seed=3, offsets=[0, DAY])
    gatherings, _ = job(2, 20, seed=4, offsets=[0, DAY])
    for rank, gatherings_of_rank in gatherings.items():
        calls[rank] += [gathering._replace(kind="allgather") for gathering in gatherings_of_rank]
    del calls[1][4]

    result = meetings(calls)

    assert {meeting[0].kind for meeting in result.matched} == {"allgather"}
    assert len(result.matched) == 20
    assert result.unmatched == 20 + 19


def test_order_does_not_count_if_a_rank_was_done_before_another_began() -> None:
    calls, _ = job(2, 20, seed=3)
    for rank, calls_of_rank in calls.items():
        for n in range(9):
            coalesced_start = (100 * n + 50 * rank) * MS
            calls_of_rank.append(call(coalesced_start, coalesced_start + 9 * MS, "coalesced"))
            broadcast_start = (10 * n + rank) * MS
            calls_of_rank.append(call(broadcast_start, broadcast_start + 9, "broadcast"))

    result = meetings(calls)

    # After a broadcast the rank that sends may be done before another begins.
    assert {meeting[0].kind for meeting in result.matched} == {"allreduce", "broadcast"}
    assert len(result.matched) == 20 + 9
    assert result.unmatched == 2 * 9
    assert result.clocks_agree is True


def test_of_many_in_order_single_ones_that_do_not_overlap_are_left_out() -> None:
    calls, _ = job(2, 20, seed=3)
    moved = calls[1][5]
    calls[1][5] = moved._replace(start=moved.start - 16 * MS, end=moved.start - 15 * MS)

    result = meetings(calls)

    assert len(result.matched) == 19
    assert result.unmatched == 2


@pytest.mark.parametrize(
    ("kind", "changed", "matched_count"),
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
    kind: str, changed: dict[str, Any], matched_count: int
) -> None:
    calls, _ = job(2, 20, seed=3)
    for calls_of_rank in calls.values():
        calls_of_rank[:] = [
            collective._replace(kind=kind, element_type="Float", elements=4)
            for collective in calls_of_rank
        ]
    assert len(meetings(calls).matched) == 20

    calls[1][7] = calls[1][7]._replace(**changed)

    assert len(meetings(calls).matched) == matched_count


def test_a_collective_of_one_rank_is_not_matched() -> None:
    assert meetings({0: [], 1: [call(0, 5)]}).unmatched == 1


def test_running_numbers_match_whatever_is_missing_and_whatever_clocks_say() -> None:
    # The calls of rank 0 last 3 ms and those of rank 1 last 1 ms.
    first = [call(10 * MS * n, (10 * n + 3) * MS, number=n) for n in range(5)]
    second = [call(DAY + 10 * MS * n, DAY + (10 * n + 1) * MS, number=n) for n in (1, 2, 4)]

    result = meetings({0: first, 1: second})

    assert [waits(meeting) for meeting in result.matched] == [{0: 2 * MS, 1: 0}] * 3
    assert result.unmatched == 2
    assert result.clocks_agree is False
    # Several may be launched as one.
    twice = [call(0, 3, number=1), call(4, 9, number=1)]
    assert len(meetings({0: twice, 1: twice}).matched) == 2


def test_numbers_come_before_order() -> None:
    first = [call(0, 9, number=1), call(10, 19, number=2)]
    second = [call(0, 9, number=2), call(10, 19, number=3)]
    (meeting,) = meetings({0: first, 1: second}).matched
    assert meeting[0].start == 10
    assert meeting[1].start == 0


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

    waits_by_kind = {meeting[0].kind: waits(meeting) for meeting in result.matched}
    assert len(result.matched) == 2
    assert waits_by_kind["allreduce"] == {0: 2, 1: 0}
    assert waits_by_kind["allgather"] == {0: 7, 1: 3, 2: 0}
    assert result.unmatched == 1


def test_nobody_is_last_if_several_come_at_once() -> None:
    together = {0: call(5, 9), 1: call(5, 9), 2: call(3, 9)}
    assert last_to_arrive(together, clocks_agree=True) is None
    assert last_to_arrive(together, clocks_agree=False) is None
