"""The traces of a program's processes become an answer, figures and notes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from backends.profiling import Timeline
from parallel_core.traces.case_spans import ALL
from parallel_core.traces.profile.answer import Answer, answer
from parallel_core.traces.profile.bounds import Waiting
from parallel_core.traces.profile.running import Recorded
from parallel_core.traces.profile.step_figures import StepFigures, step_figures, without_profiler
from parallel_core.traces.ranks import Ranks, summary_of
from parallel_core.traces.ranks.jobs import of_processes
from parallel_core.traces.reasons import Unhidden
from parallel_core.traces.trace_files import read_ranks, side_by_side

MAX_DRAWN = 8
"""So many processes are drawn, the first."""


@dataclass(frozen=True)
class Analysis:
    """The answer, the figures of each trace, and one timeline of all processes."""

    answer: Answer
    figures: Mapping[Path, StepFigures]
    timeline: Timeline
    unhidden: tuple[Unhidden, ...]
    """The exchanges and copies that were not hidden, by name, and why."""
    notes: tuple[str, ...]
    """What a reader must know of the traces."""


def analyse(traces: Mapping[Path, Recorded], taken: float = 0.0) -> Analysis:
    """Read the traces of a program's processes; `taken` is the share of the cores' time that other
    processes took.

    Raises RequestError, which names the file, for a trace that is damaged.
    """
    ranks = read_ranks(traces, keep_spans=True)
    figures = {
        one.file: step_figures(one.timeline, traces[one.file].steps_recorded)
        for one in ranks.values()
    }
    summary = summary_of(ranks) if len(ranks) > 1 else None
    alone = {
        file: alone_seconds
        for file, one in traces.items()
        if (alone_seconds := one.unprofiled_step_seconds)
    }
    slowdown = median([figures[file].step_seconds / own for file, own in alone.items()] or [1.0])
    as_alone = [
        without_profiler(process, alone.get(file, process.step_seconds))
        for file, process in figures.items()
    ]
    drawn = dict(list(ranks.items())[:MAX_DRAWN])
    timelines = [one.timeline for one in ranks.values()]
    timeline = timelines[0] if summary is None else side_by_side(drawn, bool(summary.clocks_agree))
    timed = {ALL: max(alone[file] * figures[file].steps for file in alone)} if alone else {}
    return Analysis(
        answer(
            as_alone,
            None if summary is None else _waiting(summary),
            taken,
            slowdown,
            # All wait for the slowest.
            max(one.core_wait_share or 0.0 for one in traces.values()),
        ),
        figures,
        replace(timeline, timed=timed),
        of_processes((case for one in ranks.values() for case in one.figures), taken),
        (*_pauses(figures.values()), *_notes(timelines)),
    )


def _pauses(processes: Iterable[StepFigures]) -> Iterator[str]:
    """Give the longest time in which a process did nothing, which the median step hides."""
    pauses = [process.pause for process in processes if process.pause]
    if pauses:
        yield max(pauses, key=lambda pause: pause.share).in_words


def _notes(timelines: Sequence[Timeline]) -> Iterator[str]:
    yield from dict.fromkeys(note for timeline in timelines for note in timeline.notes)


def _waiting(summary: Ranks) -> Waiting | None:
    exchanged = sum(one.matched_collective_seconds for one in summary.by_rank)
    if not exchanged:
        return None
    last = max(summary.by_rank, key=lambda one: one.arrived_last)
    return Waiting(
        summary.waited_seconds / exchanged,
        last.rank,
        last.arrived_last,
        summary.matched_collectives,
    )
