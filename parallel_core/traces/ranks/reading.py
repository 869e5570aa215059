"""Traces of ranks: what was read of each, in the order of the ranks."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from backends.profiling import HOST_DEVICE, Doubt, Spans, Timeline, Trace
from backends.profiling.collectives import (
    Collective,
    check_one_rank,
    collectives_of,
    job_of,
    with_communication,
)
from backends.profiling.perfetto import OWN_KEY
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.system.errors import RequestError
from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.evidence.interference import Price, interference
from parallel_core.traces.steps.figures import launched_in, numbered_step, only_step
from parallel_core.traces.trace_files import core_wait_share, to_last_step, trace_and_timeline
from parallel_core.traces.trust import doubts_about

RANK_IN_NAME = re.compile(r"rank[ _-]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class RankTrace:
    """What was read of one rank."""

    file: Path
    rank: int | None
    """As the trace says itself."""
    world_size: int | None
    timeline: Timeline
    spans: int
    """How many there were, also if the timeline does not keep them."""
    figures: Sequence[CaseFigures]
    collectives: tuple[Collective, ...]
    """Their times are nanoseconds by the clock of the file."""
    begin: int | None
    """When the timeline begins, by the same clock; None if that is not known."""
    prices: tuple[Price, ...] = ()
    """How much longer computations took while other operations ran beside them."""
    doubts: tuple[Doubt, ...] = ()
    """What a reader must know before he trusts the figures."""
    origin: int | None = None
    """The timeline's zero by the clock of the file, in nanoseconds; None if that is not known."""
    core_wait_share: float | None = None
    """During what share of the time its busiest thread waited for a core, if the trace says it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the devices are, and the doubts in words."""
        return *self.timeline.models, *map(str, self.doubts)


def read_ranks(
    files: Iterable[Path],
    kernels: re.Pattern[str] | None = None,
    step: int | None = None,
    *,
    keep_spans: bool = False,
) -> dict[int, RankTrace]:
    """Read the traces of all ranks, of which each file holds one; in the order of the ranks.

    A trace's rank is what it says itself, else what its file's name says, else its place. Kernels
    whose full names hold `kernels` communicate, too. Of a trace with steps only what belongs to
    `step` is kept, if one is named. Without `keep_spans` only one trace is in memory at a time.
    Raises RequestError, which names the file, for one that cannot be used, also because several
    ranks were merged into it, and if two are of the same rank.
    """
    read: list[RankTrace] = []
    with without_garbage_collection():
        for file in files:
            trace = _read_rank(file, kernels, step)
            if not keep_spans:
                figures = tuple(case.settled() for case in trace.figures)
                timeline = replace(trace.timeline, spans=(), host_calls=None)
                trace = replace(trace, figures=figures, timeline=timeline)
            read.append(trace)
    return dict(sorted(_by_rank(read).items()))


def side_by_side(ranks: Mapping[int, RankTrace], clocks_agree: bool) -> Timeline:
    """Return one timeline with the devices of all ranks, each named after its rank.

    If their clocks agree, each rank begins when it did; otherwise all begin at zero.
    """
    delays = _begins_later(ranks, clocks_agree)
    spans_of_ranks = []
    for rank, trace in ranks.items():
        spans = trace.timeline.columns.moved(delays[rank])
        queues = tuple((f"rank {rank} {device}", queue) for device, queue in spans.queues)
        spans_of_ranks.append(replace(spans, queues=queues))
    # Each source once, in the order of the ranks.
    sources = dict.fromkeys(trace.timeline.source for trace in ranks.values())
    return Timeline(", ".join(sources), Spans.joined(spans_of_ranks))


def _begins_later(ranks: Mapping[int, RankTrace], clocks_agree: bool) -> dict[int, int]:
    """Return how many nanoseconds after the first one each rank's timeline begins; 0 for all if
    clocks disagree.
    """
    begins = {rank: trace.begin for rank, trace in ranks.items() if trace.begin is not None}
    if not clocks_agree or len(begins) < len(ranks):
        return dict.fromkeys(ranks, 0)
    first_begin = min(begins.values())
    return {rank: begin - first_begin for rank, begin in begins.items()}


@contextmanager
def _naming(file: Path, problem: str = "cannot be used") -> Iterator[None]:
    """Let the error name the file."""
    try:
        yield
    except ValueError as error:
        raise RequestError(f"{file} {problem}: {error}") from error


def _read_rank(file: Path, kernels: re.Pattern[str] | None, step: int | None) -> RankTrace:
    """Read one rank's trace, as `read_ranks` says."""
    trace, whole_timeline = trace_and_timeline(file)
    with _naming(file):
        check_one_rank(trace)
    timeline = to_last_step(whole_timeline, trace)
    if kernels is not None:
        timeline = with_communication(timeline, kernels)
    doubts = tuple(doubts_about(timeline))
    spans = timeline.columns
    if step is not None:
        with _naming(file, "cannot be cut"):
            window = numbered_step(timeline, step)
        cases: tuple[CaseSpans, ...] = (only_step(timeline, window),)
        spans = spans.select(launched_in(spans, window))
        timeline = replace(timeline, spans=spans, begin=window.start, annotations=(window,))
    else:
        cases = cases_of(timeline)
    rank, world_size = job_of(trace)
    base = trace.properties.get("baseTimeNanoseconds")
    begin = trace.begin + (base if isinstance(base, int) else 0)
    is_own = OWN_KEY in trace.properties
    # Of another format than PyTorch's the timeline is all that is known.
    only_spans = is_own or not trace.slices
    # Cases begin at zero, wherever they are in the trace.
    has_clock = not (only_spans or timeline.cases)
    if only_spans:
        collectives = tuple(_own_collectives(spans))
    else:
        is_cut = len(timeline.spans) < len(whole_timeline.spans)
        collectives = tuple(_collectives(trace, spans, begin, is_cut))
    zero = 0 if only_spans else begin
    collective_at = {
        (collective.start - zero, collective.end - zero): collective for collective in collectives
    }
    origin = trace.begin if has_clock else None
    if is_own:
        origin = 0
    waited_for_core = core_wait_share(trace)
    # The arguments of a million events would take room from the figures.
    del trace
    return RankTrace(
        file=file,
        rank=rank,
        world_size=world_size,
        timeline=timeline,
        spans=len(timeline.spans),
        figures=tuple(CaseFigures(case, collective_at) for case in cases),
        collectives=collectives,
        begin=begin if has_clock else None,
        prices=interference(cases),
        doubts=doubts,
        origin=origin,
        core_wait_share=waited_for_core,
    )


def _collectives(trace: Trace, spans: Spans, begin: int, is_cut: bool) -> Iterator[Collective]:
    """Yield the collectives of a trace whose spans are in the timeline, by the clock of the file.

    `begin` is when the trace begins by that clock. If the timeline was cut, the trace has more.
    """
    exchanges = spans.select(spans.of_kind("exchange"))
    names = {exchanges.operators[place] for place in np.unique(exchanges.operator_of).tolist()}
    kept = set(zip(exchanges.starts.tolist(), exchanges.ends.tolist(), strict=True))
    for collective in collectives_of(trace, names):
        start, end = collective.start, collective.end
        if not is_cut or (start, end) in kept:
            yield collective._replace(start=begin + start, end=begin + end)


def _own_collectives(spans: Spans) -> Iterator[Collective]:
    """Yield the exchanges of a timeline of which nothing else is known, as collectives."""
    for span in spans:
        if span.kind == "exchange" and span.device != HOST_DEVICE:
            yield Collective(span.name, "", None, span.queue, span.start, span.end)


def _rank_of(trace: RankTrace) -> int | None:
    """Return the rank that a trace says itself, or else its file's name, if they say one."""
    match = RANK_IN_NAME.search(trace.file.name)
    if trace.rank is None and match is not None:
        return int(match[1])
    return trace.rank


def _by_rank(traces: Sequence[RankTrace]) -> dict[int, RankTrace]:
    """Return the traces by what they say, or their files' names; by their order if none says it.

    Raises RequestError if only some of them say it, and if two are of the same rank.
    """
    ranks = [_rank_of(trace) for trace in traces]
    if all(rank is None for rank in ranks):
        return dict(enumerate(traces))
    by_rank: dict[int, RankTrace] = {}
    for trace, rank in zip(traces, ranks, strict=True):
        if rank is None:
            raise RequestError(
                f"{trace.file} does not say its rank, unlike other files: name it such as "
                "rank-0.json"
            )
        if rank in by_rank:
            raise RequestError(
                f"{by_rank[rank].file} and {trace.file} are both of rank {rank}: give one trace of "
                "each rank"
            )
        by_rank[rank] = trace
    return by_rank
