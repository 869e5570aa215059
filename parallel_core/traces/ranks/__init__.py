"""The figures of several ranks side by side: their spread, what each waited in collectives, and the
straggler.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Annotated

from backends.profiling import Doubt, in_seconds
from backends.profiling.collectives import Collective
from parallel_core.system.formatting import listed
from parallel_core.traces.bounds.answer import NO_EXCHANGE
from parallel_core.traces.figures import Count, Lacking, Seconds, Share, figure, ratio
from parallel_core.traces.ranks.jobs import exchanges_of_job
from parallel_core.traces.ranks.meetings import (
    Meetings,
    last_to_arrive,
    meetings,
    waits_by_rank,
)
from parallel_core.traces.ranks.reading import RankTrace
from parallel_core.traces.reasons import ExchangeFigures

MIN_SPREAD = 0.01
"""If the times that ranks waited differ by a smaller share of the collectives' own, none is a
straggler.
"""
FIGURES = (
    "seconds",
    "compute_seconds",
    "communication_seconds",
    "hidden_share",
    "idle_share",
    "waited_seconds",
)
"""Those whose spread is reported."""


@dataclass(frozen=True)
class RankFigures:
    """One rank's figures, over all its cases."""

    rank: int
    trace: RankTrace = field(repr=False)
    waits: Mapping[Collective, int] = field(repr=False)
    """For how many nanoseconds it waited in each collective in which it met the other ranks."""
    arrived_last: Count
    """In how many matched collectives all other ranks had come before."""

    @figure
    def seconds(self) -> Seconds:
        return self._sum("seconds")

    @figure
    def compute_seconds(self) -> Seconds:
        return self._sum("compute_seconds")

    @figure
    def communication_seconds(self) -> Seconds:
        return self._sum("communication_seconds")

    @figure
    def hidden_share(self) -> Annotated[Share | None, Lacking("no-communication")]:
        """The share of the communication that lay alongside computation."""
        return ratio(self._sum("hidden_seconds"), self.communication_seconds)

    @figure
    def idle_share(self) -> Share:
        idle = sum(case.parts.idle_seconds for case in self.trace.figures)
        return ratio(idle, self.seconds) or 0.0

    @figure
    def matched_collectives(self) -> Count:
        """How many of its collectives were found on the other ranks, too."""
        return len(self.waits)

    @figure
    def matched_collective_seconds(self) -> Seconds:
        """The time of these."""
        return in_seconds(sum(part.end - part.start for part in self.waits))

    @figure
    def waited_seconds(self) -> Annotated[Seconds | None, Lacking("not-matched")]:
        """How long they lasted beyond the shortest of each."""
        return in_seconds(sum(self.waits.values())) if self.waits else None

    def _sum(self, name: str) -> float:
        """Return the sum of a figure over its cases."""
        return sum(getattr(case, name) for case in self.trace.figures)


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
    world_size: Annotated[Count | None, Lacking("not-said")]
    """How many ranks the job has, which may be more; None if the traces do not say."""
    straggler: Annotated[int | None, Lacking("no-straggler")]
    """The rank that waited least in collectives, as a share of their time: the other ranks waited
    for it.

    None if no collectives were matched, or all ranks waited alike.
    """
    waited_seconds: Seconds
    """By all ranks together."""
    matched_collectives: Count
    unmatched_collectives: Count
    """How many kernels of collectives were not."""
    clocks_agree: Annotated[bool | None, Lacking("not-matched")]
    exchanges: tuple[ExchangeFigures, ...]
    """In the mean of the ranks that take part."""
    spread: Mapping[str, Spread]
    """By the names of figures, those that any rank has."""
    notes: tuple[Doubt, ...]


def summary_of(traces: Mapping[int, RankTrace]) -> Ranks:
    """Put the traces of several ranks side by side."""
    collectives = meetings({rank: trace.collectives for rank, trace in traces.items()})
    waits = waits_by_rank(collectives.matched)
    clocks_agree = bool(collectives.clocks_agree)
    times_last = Counter(last_to_arrive(meeting, clocks_agree) for meeting in collectives.matched)
    ranks = []
    for rank, trace in traces.items():
        ranks.append(RankFigures(rank, trace, waits.get(rank, {}), times_last[rank]))
    world_sizes = {trace.world_size for trace in traces.values() if trace.world_size is not None}
    spreads = {name: _spread(name, ranks) for name in FIGURES}
    return Ranks(
        by_rank=tuple(ranks),
        world_size=max(world_sizes, default=None),
        straggler=_straggler(ranks),
        waited_seconds=sum(rank.waited_seconds or 0.0 for rank in ranks),
        matched_collectives=len(collectives.matched),
        unmatched_collectives=collectives.unmatched,
        clocks_agree=collectives.clocks_agree,
        exchanges=exchanges_of_job(
            (rank.trace.figures[0].exchanges_by_pass, rank.waits) for rank in ranks
        ),
        spread={name: spread for name, spread in spreads.items() if spread is not None},
        notes=tuple(_notes(traces, sorted(world_sizes), collectives)),
    )


def _straggler(ranks: Sequence[RankFigures]) -> int | None:
    """Return the rank that waited for the least share of its collectives; None if all waited
    alike.
    """
    took_part = [figures for figures in ranks if figures.matched_collective_seconds]
    if len(took_part) < 2:
        return None
    waited = [figures.waited_seconds or 0.0 for figures in took_part]
    lasted = [figures.matched_collective_seconds for figures in took_part]
    if max(waited) - min(waited) < MIN_SPREAD * median(lasted):
        return None
    shares = [wait / time for wait, time in zip(waited, lasted, strict=True)]
    return took_part[shares.index(min(shares))].rank


def _spread(name: str, ranks: Sequence[RankFigures]) -> Spread | None:
    """Return the extremes of a figure, given by its name; None if no rank has it."""
    values = {figures.rank: getattr(figures, name) for figures in ranks}
    known = {rank: value for rank, value in values.items() if value is not None}
    if not known:
        return None
    least_rank = min(known, key=known.__getitem__)
    most_rank = max(known, key=known.__getitem__)
    least, most = known[least_rank], known[most_rank]
    return Spread(
        least=least,
        least_rank=least_rank,
        median=median(known.values()),
        most=most,
        most_rank=most_rank,
        spread=most - least,
    )


def _notes(
    traces: Mapping[int, RankTrace], sizes: Sequence[int], collectives: Meetings
) -> Iterator[Doubt]:
    """Yield what a reader must know; `sizes` are the sizes that the traces give their job."""
    unsaid = sum(trace.rank is None for trace in traces.values())
    if unsaid:
        yield Doubt(
            "rank-not-said",
            f"{unsaid} of the traces do not say their rank: their files' names or order stand "
            "for it.",
        )
    if len(sizes) > 1:
        yield Doubt(
            "several-jobs",
            f"The ranks are not of one job: it has {listed([str(size) for size in sizes])} ranks "
            "by the traces.",
        )
    elif sizes and sizes[0] > len(traces):
        yield Doubt(
            "ranks-missing",
            f"{len(traces)} of the job's {sizes[0]} ranks are here: who waited for the rest is not "
            "seen, and less waiting than there was.",
        )
    all_cases = chain.from_iterable(trace.figures for trace in traces.values())
    exchanged = any(case.parts.exchange_seconds for case in all_cases)
    if len(traces) > 1 and not exchanged:
        yield Doubt("no-exchange", NO_EXCHANGE.format(len(traces)))
    elif not collectives.matched:
        yield Doubt(
            "not-matched",
            "No collective was found on all of its ranks: what was waited in them is not known.",
        )
    if collectives.unmatched:
        kernels = f"{collectives.unmatched:,} kernels of collectives"
        yield Doubt("unmatched", f"{kernels} could not be matched between ranks, and are left out.")
    if collectives.clocks_agree is False:
        yield Doubt(
            "clocks-differ",
            "The ranks' clocks do not agree: by them ranks leave collectives before the rest come. "
            "What was waited is computed only from durations.",
        )
