"""The figures of several ranks side by side: their spread, what each waited in collectives, and the
straggler.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from backends.profiling import in_seconds
from parallel_core.system.formatting import listed
from parallel_core.trace_analysis.ranks.meetings import Meetings, last_to_arrive, meetings, waits
from parallel_core.trace_analysis.trace_files import RankTrace

MIN_SPREAD = 0.01
"""If the times that ranks waited differ by a smaller share of the collectives' own, none is a
straggler.
"""
NO_EXCHANGE = (
    "{} ranks, and no exchange was found: if they train together, they exchange in a way that is "
    "not recorded or not known here (trace --communication names kernels), or not at all, as under "
    "no_sync()."
)
FIGURES = (
    "seconds",
    "compute_seconds",
    "communication_seconds",
    "hidden_share",
    "hidden_collective_share",
    "idle_share",
    "waited_seconds",
)
"""Those whose spread is reported."""


@dataclass(frozen=True)
class RankFigures:
    """One rank's figures, over all its cases."""

    rank: int
    file: str
    seconds: float
    compute_seconds: float
    communication_seconds: float
    hidden_share: float | None
    """The share of the communication that lay under computation."""
    idle_share: float
    hidden_collective_share: float | None
    """The share of its devices' collectives that lay under computation, as Holistic Trace Analysis
    counts.
    """
    matched_collectives: int
    """How many of its collectives were found on the other ranks, too; `matched_collective_seconds`
    is their time.
    """
    matched_collective_seconds: float
    waited_seconds: float | None
    """How long they lasted beyond the shortest of each; None if there are none."""
    waited_share: float | None
    """The same as a share of their time."""
    arrived_last: int
    """In how many of them all other ranks had come before."""
    clock_offset_seconds: float | None
    """By how much they end later than on the first rank that took part, in the median."""


@dataclass(frozen=True)
class Spread:
    """The extremes of a figure and the ranks that they belong to; the spread is the difference of
    the two.
    """

    least: float
    least_rank: int
    median: float
    most: float
    most_rank: int
    spread: float


@dataclass(frozen=True)
class Ranks:
    """Several ranks of one job."""

    by_rank: tuple[RankFigures, ...]
    world_size: int | None
    """How many ranks the job has, which may be more; None if the traces do not say."""
    straggler: int | None
    """The rank that waited least in collectives, as a share of their time: the other ranks waited
    for it.

    None if no collectives were matched, or all ranks waited alike.
    """
    waited_seconds: float
    """By all ranks together."""
    matched_collectives: int
    unmatched_collectives: int
    """How many kernels of collectives were not."""
    clocks_agree: bool | None
    spread: Mapping[str, Spread]
    """By the names of figures, those that any rank has."""
    notes: tuple[str, ...]


def summary_of(traces: Mapping[int, RankTrace]) -> Ranks:
    """Put the traces of several ranks side by side."""
    together = meetings({rank: one.collectives for rank, one in traces.items()})
    ranks = _figures(traces, together)
    sizes = {one.world_size for one in traces.values() if one.world_size is not None}
    return Ranks(
        by_rank=ranks,
        world_size=max(sizes, default=None),
        straggler=_straggler(ranks),
        waited_seconds=sum(one.waited_seconds or 0.0 for one in ranks),
        matched_collectives=len(together.matched),
        unmatched_collectives=together.unmatched,
        clocks_agree=together.clocks_agree,
        spread={figure: spread for figure in FIGURES if (spread := _spread(figure, ranks))},
        notes=tuple(_notes(traces, sizes, together)),
    )


def _figures(traces: Mapping[int, RankTrace], together: Meetings) -> tuple[RankFigures, ...]:
    met: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    waited: Counter[int] = Counter()
    last: Counter[int | None] = Counter()
    for meeting in together.matched:
        met.update(meeting.keys())
        taken.update({rank: part.end - part.start for rank, part in meeting.items()})
        waited.update(waits(meeting))
        last[last_to_arrive(meeting, bool(together.clocks_agree))] += 1
    offsets = together.clock_offsets
    found = []
    for rank, one in traces.items():
        seconds = sum(case.seconds for case in one.figures)
        communicating = sum(case.communication_seconds for case in one.figures)
        hidden = sum(case.hidden_seconds for case in one.figures)
        devices = [device for case in one.figures for device in case.devices]
        collective = sum(device.collective_seconds for device in devices)
        hidden_collective = sum(device.hidden_collective_seconds for device in devices)
        found.append(
            RankFigures(
                rank=rank,
                file=str(one.file),
                seconds=seconds,
                compute_seconds=sum(case.compute_seconds for case in one.figures),
                communication_seconds=communicating,
                hidden_share=hidden / communicating if communicating else None,
                idle_share=1 - sum(case.working_seconds for case in one.figures) / seconds
                if seconds
                else 0.0,
                hidden_collective_share=hidden_collective / collective if collective else None,
                matched_collectives=met[rank],
                matched_collective_seconds=in_seconds(taken[rank]),
                waited_seconds=in_seconds(waited[rank]) if met[rank] else None,
                waited_share=waited[rank] / taken[rank] if taken[rank] else None,
                arrived_last=last[rank],
                clock_offset_seconds=in_seconds(offsets[rank]) if rank in offsets else None,
            )
        )
    return tuple(found)


def _straggler(ranks: Sequence[RankFigures]) -> int | None:
    took_part = [one for one in ranks if one.waited_share is not None]
    if len(took_part) < 2:
        return None
    waited = [one.waited_seconds or 0.0 for one in took_part]
    usual = median(one.matched_collective_seconds for one in took_part)
    if max(waited) - min(waited) < MIN_SPREAD * usual:
        return None
    return min(took_part, key=lambda one: one.waited_share or 0.0).rank


def _spread(figure: str, ranks: Sequence[RankFigures]) -> Spread | None:
    values = {one.rank: value for one in ranks if (value := getattr(one, figure)) is not None}
    if not values:
        return None
    least, most = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    bottom, top = values[least], values[most]
    return Spread(bottom, least, median(values.values()), top, most, top - bottom)


def _notes(traces: Mapping[int, RankTrace], of: Iterable[int], together: Meetings) -> Iterator[str]:
    unsaid = sum(one.rank is None for one in traces.values())
    if unsaid:
        yield (
            f"{unsaid} of the traces do not say their rank: their files' names or order stand "
            "for it."
        )
    sizes = sorted(of)
    if len(sizes) > 1:
        yield (
            f"The ranks are not of one job: it has {listed([str(size) for size in sizes])} ranks "
            "by the traces."
        )
    elif sizes and sizes[0] > len(traces):
        yield (
            f"{len(traces)} of the job's {sizes[0]} ranks are here: who waited for the rest is not "
            "seen, and less "
            "waiting than there was."
        )
    exchanging = any(case.parts.exchange_seconds for one in traces.values() for case in one.figures)
    if len(traces) > 1 and not exchanging:
        yield NO_EXCHANGE.format(len(traces))
    elif not together.matched:
        yield "No collective was found on all of its ranks: what was waited in them is not known."
    if together.unmatched:
        kernels = f"{together.unmatched:,} kernels of collectives"
        yield f"{kernels} could not be matched between ranks, and are left out."
    if together.clocks_agree is False:
        yield (
            "The ranks' clocks do not agree: by them ranks leave collectives before the rest come. "
            "What was waited is "
            "computed only from durations."
        )
