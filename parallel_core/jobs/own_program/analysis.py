"""What the traces of a program's processes say: the figures of each, who waited for whom, and the answer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from backends.profiling import Timeline
from parallel_core.jobs.own_program.answer import Answer, Waiting, answer
from parallel_core.jobs.own_program.running import Recorded
from parallel_core.jobs.own_program.step_figures import StepFigures, step_figures
from parallel_core.trace_analysis.case_spans import ALL
from parallel_core.trace_analysis.ranks import Ranks, summary_of
from parallel_core.trace_analysis.trace_files import read_ranks, side_by_side

__all__ = ["Analysis", "analyse"]

MAX_DRAWN = 8
"""So many processes are drawn, the first."""


@dataclass(frozen=True)
class Analysis:
    """The answer, the figures of each trace, and one timeline of all processes."""

    answer: Answer
    figures: Mapping[Path, StepFigures]
    timeline: Timeline
    notes: tuple[str, ...]
    """What a reader must know of the traces."""


def analyse(traces: Mapping[Path, Recorded], taken: float = 0.0) -> Analysis:
    """Read the traces of a program's processes; `taken` is the share of the cores' time that others took.

    Raises RequestError, which names the file, for a trace that is damaged.
    """
    ranks = read_ranks(traces, keep_spans=True)
    figures = {one.file: step_figures(one.timeline, traces[one.file].steps_recorded) for one in ranks.values()}
    summary = summary_of(ranks) if len(ranks) > 1 else None
    alone = {file: seconds for file, one in traces.items() if (seconds := one.unprofiled_step_seconds)}
    slowdown = median([figures[file].step_seconds / seconds for file, seconds in alone.items()] or [1.0])
    drawn = dict(list(ranks.items())[:MAX_DRAWN])
    timelines = [one.timeline for one in ranks.values()]
    timeline = timelines[0] if summary is None else side_by_side(drawn, bool(summary.clocks_agree))
    timed = {ALL: max(alone[file] * figures[file].steps for file in alone)} if alone else {}
    return Analysis(
        answer(tuple(figures.values()), None if summary is None else _waiting(summary), taken, slowdown),
        figures,
        replace(timeline, timed=timed),
        tuple(dict.fromkeys(note for timeline in timelines for note in timeline.notes)),
    )


def _waiting(summary: Ranks) -> Waiting | None:
    exchanged = sum(one.matched_collective_seconds for one in summary.by_rank)
    if not exchanged:
        return None
    last = max(summary.by_rank, key=lambda one: one.arrived_last)
    return Waiting(summary.waited_seconds / exchanged, last.rank, last.arrived_last, summary.matched_collectives)
