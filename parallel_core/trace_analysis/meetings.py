"""Match the collectives of several ranks: which kernels, one of each rank, were the same collective.

Ranks of a process group call the same collectives in the same order, so the n-th of a kind in a group is the same one
on every rank, unless a trace begins later, ends earlier or lost some. Collectives end together: if order makes their
ends scatter although clocks agree, those that end together are matched instead, and the rest are left out.

Whoever comes last waits least. The shortest part of a collective is that of the last rank to arrive, and what the
other ranks took longer they waited. This needs no clocks; when each rank arrived is known only if clocks agree.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import le
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from backends.profiling.collectives import Collective

Meeting: TypeAlias = Mapping[int, Collective]
"""The parts of one collective, by rank; times are by the ranks' clocks."""
Calls: TypeAlias = Mapping[int, Sequence[Collective]]
"""The collectives of one kind in one group, by rank, in the order of their start."""

POINT_TO_POINT = {"send", "recv"}
ONE_SENDS = {"broadcast", "reduce", "gather", "scatter"}
"""In these a rank may be done before another begins."""
MOST = 0.9
"""Of collectives that are matched rightly at least this share overlap on all ranks, clocks permitting."""
ENOUGH = 0.5
"""Clocks are known by the collectives of several kinds if they fit more than this share of them."""
CLOSE = 0.1
"""Ends that coincide differ by less than this share of the time that a collective takes."""
MAX_SHIFT = 100
"""So many collectives may be missing at the ends of a trace whose clock differs."""
BY_CHANCE = 0.05
"""If more than this share of the ends would be as close by chance, they say nothing."""


@dataclass(frozen=True)
class Meetings:
    """The collectives that all members of a group took part in, as far as the traces show."""

    met: tuple[Meeting, ...]
    unmatched: int
    """How many kernels of collectives have no counterpart on another rank, or none that is certain."""
    by_ends: int
    """How many were matched by the times of their ends, because traces lost some or begin elsewhere."""
    clocks_agree: bool | None
    """Whether no rank left a collective before the last one came, by their clocks; None if none of them met."""
    clock_offsets: Mapping[int, int]
    """By rank, by how many nanoseconds its collectives end later than those of the first rank that it met."""


def meetings(collectives: Mapping[int, Sequence[Collective]]) -> Meetings:
    """Match the collectives of several ranks. Messages between two ranks, which nobody else waits for, are left out."""
    in_order = [(calls, _in_order(calls)) for calls in _alike(collectives)]
    known = _common_offsets([some for _, some in in_order if some])
    met: list[Meeting] = []
    by_ends = 0
    for calls, some in in_order:
        if some and (_is_consistent(some, known) or _kind(some) in ONE_SENDS):
            met += some
            continue
        ending_together = _ending_together(calls, known) or ([] if known else _ending_together(calls, _shifted(calls)))
        # By clocks that are known, what does not overlap is not the same collective.
        met += ending_together or ([] if known else some)
        by_ends += len(ending_together)
    met.sort(key=lambda meeting: min(part.start for part in meeting.values()))
    taken = sum(map(len, met))
    considered = sum(one.kind.lower() not in POINT_TO_POINT for own in collectives.values() for one in own)
    telling = [meeting for meeting in met if _kind([meeting]) not in ONE_SENDS] or met
    agree = _overlapping(telling) >= MOST if telling else None
    return Meetings(tuple(met), considered - taken, by_ends, agree, _offsets(telling))


def waits(meeting: Meeting) -> dict[int, int]:
    """Return by how many nanoseconds each rank's part is longer than the shortest: the time that it waited."""
    lengths = {rank: part.end - part.start for rank, part in meeting.items()}
    shortest = min(lengths.values())
    return {rank: length - shortest for rank, length in lengths.items()}


def last_to_arrive(meeting: Meeting, clocks_agree: bool) -> int | None:
    """Return the rank that came last: by the clocks if they agree, else the one whose part is the shortest.

    None if several came at once.
    """
    came = {rank: part.start if clocks_agree else part.start - part.end for rank, part in meeting.items()}
    latest = max(came.values())
    last = [rank for rank, time in came.items() if time == latest]
    return last[0] if len(last) == 1 else None


def _alike(collectives: Mapping[int, Sequence[Collective]]) -> list[Calls]:
    """Sort collectives by group and kind; keep those in which every member whose trace is given took part."""
    queues: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for rank, own in collectives.items():
        for one in own:
            queues[one.kind][rank].add(one.queue)
    sorted_calls: dict[tuple[str, str], dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for rank, own in collectives.items():
        for one in own:
            if one.kind.lower() not in POINT_TO_POINT:
                # Without groups, queues stand for them if all ranks number them alike.
                same_queues = len(set(map(frozenset, queues[one.kind].values()))) == 1
                sorted_calls[one.group or (one.queue if same_queues else ""), one.kind][rank].append(one)
    return [calls for calls in sorted_calls.values() if len(calls) > 1 and _expected(calls, collectives) == set(calls)]


def _expected(calls: Calls, collectives: Iterable[int]) -> set[int]:
    one = next(iter(calls.values()))[0]
    if one.ranks is not None:
        return set(one.ranks) & set(collectives)
    return set(calls) if one.group else set(collectives)


def _in_order(calls: Calls) -> list[Meeting]:
    """Match by the numbers that the trace gives, or else one by one; nothing if there are not equally many."""
    if all(one.number is not None for own in calls.values() for one in own):
        numbered = {rank: dict(zip(_numbers(own), own, strict=True)) for rank, own in calls.items()}
        common = set.intersection(*map(set, numbered.values()))
        return [{rank: own[key] for rank, own in numbered.items()} for key in sorted(common)]
    if len(set(map(len, calls.values()))) > 1:
        return []
    return [dict(zip(calls, parts, strict=True)) for parts in zip(*calls.values(), strict=True)]


def _numbers(calls: Iterable[Collective]) -> Iterator[tuple[int, int]]:
    """Give the number of each collective, and how many before it have the same: several may be launched as one."""
    seen: Counter[int] = Counter()
    for number in (one.number or 0 for one in calls):
        yield number, seen[number]
        seen[number] += 1


def _common_offsets(in_order: Iterable[Sequence[Meeting]]) -> dict[int, int]:
    """Return the clocks' differences by which most collectives overlap that are matched in order; {} if few do."""
    likely = [meeting for some in in_order if _is_consistent(some) for meeting in some]
    offsets = _offsets(likely)
    return offsets if likely and _overlapping(likely, offsets) > ENOUGH else {}


def _is_consistent(met: Sequence[Meeting], known: Mapping[int, int] | None = None) -> bool:
    """Return whether parts of matched collectives overlap by corrected clocks; if none are known, by their own."""
    if next(iter(met[0].values())).number is not None:
        return True
    return _overlapping(met, known or _offsets(met)) >= MOST


def _ending_together(calls: Calls, offsets: Mapping[int, int]) -> list[Meeting]:
    """Match collectives whose ends, by corrected clocks, are nearest to each other on all ranks.

    Nothing is matched if that may be by chance.
    """
    fewest = min(calls, key=lambda rank: len(calls[rank]))
    by_end = {rank: sorted(own, key=lambda one: one.end) for rank, own in calls.items()}
    ends = {rank: [one.end - offsets.get(rank, 0) for one in own] for rank, own in by_end.items()}

    def nearest(rank: int, end: int) -> int:
        place = bisect_left(ends[rank], end)
        return min(range(max(0, place - 1), min(place + 1, len(ends[rank]))), key=lambda at: abs(ends[rank][at] - end))

    met: list[Meeting] = []
    apart = 0
    for place, end in enumerate(ends[fewest]):
        places = {rank: nearest(rank, end) for rank in calls}
        parts = {rank: by_end[rank][at] for rank, at in places.items()}
        difference = max(abs(ends[rank][at] - end) for rank, at in places.items())
        is_close = difference <= CLOSE * median(part.end - part.start for part in parts.values())
        is_mutual = all(nearest(fewest, ends[rank][at]) == place for rank, at in places.items())
        if is_close and is_mutual and _overlapping([parts], offsets):
            met.append(parts)
            apart = max(apart, difference)
    lasted = max(own[-1] for own in ends.values()) - min(own[0] for own in ends.values())
    chance = 2 * (apart + 1) * max(map(len, ends.values())) / lasted if lasted else 1.0
    return met if len(met) > 1 and chance * len(calls[fewest]) <= BY_CHANCE * len(met) else []


def _shifted(calls: Calls) -> dict[int, int]:
    """Return the clocks' differences if traces lack only the first or the last collectives that other traces have.

    Of the ways to lay a trace along the shortest one, the right one makes the differences of ends scatter least.
    """
    fewest = min(calls.values(), key=len)
    shortest = np.array([one.end for one in fewest])
    offsets = {}
    for rank, own in calls.items():
        ends = np.array([one.end for one in own])
        if len(ends) - len(shortest) > MAX_SHIFT:
            continue
        later = sliding_window_view(ends, len(shortest)) - shortest
        scatter = np.median(np.abs(later - np.median(later, axis=1, keepdims=True)), axis=1)
        offsets[rank] = round(float(np.median(later[np.argmin(scatter)])))
    return offsets


def _overlapping(met: Sequence[Meeting], offsets: Mapping[int, int] | None = None) -> float:
    """Return the share of collectives in which the last rank came before the first one left, by corrected clocks."""
    late = offsets or {}
    came = (max(part.start - late.get(rank, 0) for rank, part in meeting.items()) for meeting in met)
    left = (min(part.end - late.get(rank, 0) for rank, part in meeting.items()) for meeting in met)
    return sum(map(le, came, left)) / len(met)


def _offsets(met: Sequence[Meeting]) -> dict[int, int]:
    later: dict[int, list[int]] = defaultdict(list)
    for meeting in met:
        first = meeting[min(meeting)].end
        for rank, part in meeting.items():
            later[rank].append(part.end - first)
    return {rank: round(median(some)) for rank, some in sorted(later.items())}


def _kind(met: Sequence[Meeting]) -> str:
    """Return the kind of collectives that are all of one, "" if there are none."""
    return next(iter(met[0].values())).kind.lower() if met else ""
