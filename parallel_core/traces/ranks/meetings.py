"""Match the collectives of several ranks: which kernels, one of each rank, were the same
collective.

Two strategies are tried in order, for each group of ranks and each kind of collective:

1. By the running number that the profiler recorded.
2. By order, for ranks of a group call the same collectives in the same order. It counts only if it
   is consistent: each rank has equally many, of the same elements, and no rank is done with one
   before another rank begins it.

What neither of them matches is left out, and counted.

Whoever comes last waits least. The shortest part of a collective is that of the last rank to
arrive, and what the other ranks took longer they waited. This needs no clocks; when each rank
arrived is known only if clocks agree.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from backends.profiling.collectives import Collective

Meeting = Mapping[int, Collective]
"""The parts of one collective, by rank; times are by the ranks' clocks."""
Calls = Mapping[int, Sequence[Collective]]
"""The collectives of one kind in one group, by rank, in the order of their start."""

POINT_TO_POINT = {"send", "recv"}
ONE_SENDS = {"broadcast", "reduce", "gather", "scatter"}
"""In these a rank may be done before another begins."""
EQUAL_SHARES = {"allreduce", "broadcast", "reduce", "_allgather_base", "_reduce_scatter_base"}
"""In these all ranks give equally many elements."""
MOST = 0.9
"""Of collectives that are matched rightly at least this share overlap; clocks are not exact."""


@dataclass(frozen=True)
class Meetings:
    """The collectives that all members of a group took part in, as far as the traces show."""

    matched: tuple[Meeting, ...]
    unmatched: int
    """How many kernels of collectives have no counterpart on another rank, or none that is
    certain.
    """
    clocks_agree: bool | None
    """Whether no rank left a collective before the last one came; None if none was matched."""


def meetings(collectives: Mapping[int, Sequence[Collective]]) -> Meetings:
    """Match the collectives of several ranks.

    Messages between two ranks, which nobody else waits for, are left out.
    """
    have_one_clock = _have_one_clock(collectives.values())
    matched: list[Meeting] = []
    for calls in _by_group_and_kind(collectives):
        all_calls = chain.from_iterable(calls.values())
        if all(call.number is not None for call in all_calls):
            matched += _by_number(calls)
        else:
            matched += _by_order(calls, have_one_clock)
    matched.sort(key=lambda meeting: min(part.start for part in meeting.values()))

    # Where one rank sends, another may be done before it begins: that says nothing of clocks.
    synchronising = [meeting for meeting in matched if _kind(meeting) not in ONE_SENDS] or matched
    clocks_agree = None
    if synchronising:
        overlapping = sum(_overlaps(meeting, {}) for meeting in synchronising)
        clocks_agree = overlapping >= MOST * len(synchronising)
    all_calls = chain.from_iterable(collectives.values())
    collective_calls = sum(not _is_message(call) for call in all_calls)
    matched_calls = sum(len(meeting) for meeting in matched)
    return Meetings(
        tuple(matched),
        unmatched=collective_calls - matched_calls,
        clocks_agree=clocks_agree,
    )


def waits(meeting: Meeting) -> dict[int, int]:
    """Return by how many nanoseconds each rank's part is longer than the shortest: the time that it
    waited.
    """
    lengths = {rank: part.end - part.start for rank, part in meeting.items()}
    shortest = min(lengths.values())
    return {rank: length - shortest for rank, length in lengths.items()}


def waits_by_rank(matched: Iterable[Meeting]) -> Mapping[int, Mapping[Collective, int]]:
    """Return for how many nanoseconds each rank waited in each of its collectives."""
    waits_of_rank: dict[int, dict[Collective, int]] = defaultdict(dict)
    for meeting in matched:
        for rank, waited in waits(meeting).items():
            waits_of_rank[rank][meeting[rank]] = waited
    return waits_of_rank


def last_to_arrive(meeting: Meeting, clocks_agree: bool) -> int | None:
    """Return the rank that came last: by the clocks if they agree, else the one whose part is the
    shortest.

    None if several came at once.
    """
    arrived = {}
    for rank, part in meeting.items():
        # Unless clocks agree, all parts are taken to end together: then the shortest began last.
        arrived[rank] = part.start if clocks_agree else part.start - part.end
    latest = max(arrived.values())
    last_ranks = [rank for rank, time in arrived.items() if time == latest]
    return last_ranks[0] if len(last_ranks) == 1 else None


def _by_group_and_kind(collectives: Mapping[int, Sequence[Collective]]) -> list[Calls]:
    """Sort collectives by group and kind.

    Only those are kept in which every member whose trace is given took part.
    """
    shared_kinds = _kinds_of_shared_queues(collectives)
    calls_by_kind: dict[tuple[str, str], dict[int, list[Collective]]] = {}
    for rank, calls_of_rank in collectives.items():
        for call in calls_of_rank:
            if _is_message(call):
                continue
            # Without groups, queues stand for them if all ranks number them alike.
            queue = call.queue if call.kind in shared_kinds else ""
            group_and_kind = (call.group or queue, call.kind)
            calls = calls_by_kind.setdefault(group_and_kind, defaultdict(list))
            calls[rank].append(call)

    return [
        calls
        for calls in calls_by_kind.values()
        if len(calls) > 1 and set(calls) == _expected(calls, collectives)
    ]


def _kinds_of_shared_queues(collectives: Mapping[int, Sequence[Collective]]) -> set[str]:
    """Return the kinds of collectives that all ranks which call them do in the same queues."""
    queues: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for rank, calls_of_rank in collectives.items():
        for call in calls_of_rank:
            queues[call.kind][rank].add(call.queue)
    shared_kinds = set()
    for kind, queues_by_rank in queues.items():
        first_queues, *other_queues = queues_by_rank.values()
        if all(queues_of_rank == first_queues for queues_of_rank in other_queues):
            shared_kinds.add(kind)
    return shared_kinds


def _expected(calls: Calls, ranks: Iterable[int]) -> set[int]:
    """Return the ranks, of those whose traces are given, that belong to a group."""
    calls_of_first_rank = next(iter(calls.values()))
    first_call = calls_of_first_rank[0]
    if first_call.ranks is not None:
        return set(first_call.ranks) & set(ranks)
    if first_call.group:
        return set(calls)
    # Without a group nothing tells the calls of one from those of another.
    return set(ranks)


def _by_number(calls: Calls) -> list[Meeting]:
    """Match collectives by their numbers; those whose number some rank lacks are left out."""
    numbered = {rank: _by_running_number(calls_of_rank) for rank, calls_of_rank in calls.items()}
    on_all_ranks = set.intersection(*(set(by_number) for by_number in numbered.values()))

    def with_number(number: tuple[int, int]) -> Meeting:
        return {rank: by_number[number] for rank, by_number in numbered.items()}

    return [with_number(number) for number in sorted(on_all_ranks)]


def _by_running_number(calls: Iterable[Collective]) -> dict[tuple[int, int], Collective]:
    """Return the collectives of a rank by their number, and how many before it have the same.

    Several may be launched as one.
    """
    counts: Counter[int] = Counter()
    by_number = {}
    for call in calls:
        number = call.number or 0
        by_number[number, counts[number]] = call
        counts[number] += 1
    return by_number


def _by_order(calls: Calls, have_one_clock: bool) -> list[Meeting]:
    """Match the first collective of each rank, the second, and so on.

    Nothing is matched if that is not consistent. Single ones that cannot be the same, because a
    rank was done before another began, are left out.
    """
    counts = {len(calls_of_rank) for calls_of_rank in calls.values()}
    if len(counts) > 1:
        return []

    def with_place(place: int) -> Meeting:
        return {rank: calls_of_rank[place] for rank, calls_of_rank in calls.items()}

    (count,) = counts
    in_order = [with_place(place) for place in range(count)]
    if not all(map(_same_elements, in_order)):
        return []
    if _kind(in_order[0]) in ONE_SENDS:
        return in_order

    offsets = {} if have_one_clock else _clock_offsets(in_order)
    overlapping = [meeting for meeting in in_order if _overlaps(meeting, offsets)]
    if len(overlapping) < MOST * len(in_order):
        return []
    return overlapping


def _same_elements(meeting: Meeting) -> bool:
    """Return whether all ranks gave elements of one type and, where they must, equally many.

    What a trace does not say is the same.
    """
    types = {part.element_type for part in meeting.values() if part.element_type}
    if len(types) > 1:
        return False
    counts = {part.elements for part in meeting.values() if part.elements is not None}
    return len(counts) <= 1 or _kind(meeting) not in EQUAL_SHARES


def _have_one_clock(collectives: Iterable[Sequence[Collective]]) -> bool:
    """Return whether by their clocks all ranks were communicating at some time.

    Ranks of one machine were; clocks of several machines may differ by days.
    """
    communicating = [calls for calls in collectives if calls]
    begins = [min(call.start for call in calls) for calls in communicating]
    ends = [max(call.end for call in calls) for calls in communicating]
    return max(begins, default=0) <= min(ends, default=0)


def _overlaps(meeting: Meeting, offsets: Mapping[int, int]) -> bool:
    """Return whether the last rank came before the first one left.

    Clocks are corrected by `offsets`, in nanoseconds by rank.
    """
    came = max(part.start - offsets.get(rank, 0) for rank, part in meeting.items())
    left = min(part.end - offsets.get(rank, 0) for rank, part in meeting.items())
    return came <= left


def _clock_offsets(matched: Iterable[Meeting]) -> dict[int, int]:
    """Return by rank how many nanoseconds its collectives end later than on the first rank that
    took part, in the median.
    """
    delays: dict[int, list[int]] = defaultdict(list)
    for meeting in matched:
        end_on_first = meeting[min(meeting)].end
        for rank, part in meeting.items():
            delays[rank].append(part.end - end_on_first)
    return {rank: round(median(delays[rank])) for rank in sorted(delays)}


def _is_message(call: Collective) -> bool:
    """Return whether it goes from one rank to another, and no other rank takes part."""
    return call.kind.lower() in POINT_TO_POINT


def _kind(meeting: Meeting) -> str:
    """Return the kind of a collective in lower case."""
    return next(iter(meeting.values())).kind.lower()
