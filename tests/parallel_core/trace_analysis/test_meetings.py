"""Collectives of several ranks are matched whatever clocks say, and what each rank waited is the same by any clock."""

import random
from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from backends.profiling.collectives import Collective
from parallel_core.trace_analysis.meetings import last_to_arrive, meetings, waits

MS = 1_000_000
DAY = 86_400_000 * MS


def call(
    start: int,
    end: int,
    kind: str = "allreduce",
    *,
    group: str = "",
    ranks: Sequence[int] = (),
    number: int | None = None,
) -> Collective:
    return Collective(kind, group, tuple(ranks) or None, "40", start, end, number)


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
