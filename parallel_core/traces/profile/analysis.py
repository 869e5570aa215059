"""The traces of a program's processes become an answer, figures and notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from backends.profiling import HOST_DEVICE, Timeline
from parallel_core.traces.account import Parts, mean_of
from parallel_core.traces.bounds.answer import Answer, answer_of
from parallel_core.traces.bounds.recording import Recording, Waiting
from parallel_core.traces.case_spans import ALL
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.profile.running import Recorded
from parallel_core.traces.ranks import Ranks, summary_of
from parallel_core.traces.ranks.jobs import of_processes
from parallel_core.traces.ranks.reading import RankTrace, read_ranks, side_by_side
from parallel_core.traces.reasons import Unhidden

MAX_DRAWN = 8
"""So many processes are drawn, the first."""


@dataclass(frozen=True)
class Analysis:
    """The answer, what was read of each trace, and one timeline of all processes."""

    answer: Answer
    traces: Mapping[Path, RankTrace]
    timeline: Timeline
    unhidden: tuple[Unhidden, ...]
    """The exchanges and copies that were not hidden, by name, and why."""


def analyse(traces: Mapping[Path, Recorded], taken: float = 0.0) -> Analysis:
    """Read the traces of a program's processes; `taken` is the share of the cores' time that other
    processes took.

    Raises RequestError, which names the file, for a trace that is damaged.
    """
    ranks = read_ranks(traces, keep_spans=True)
    cases = {trace.file: trace.figures[0] for trace in ranks.values()}
    summary = summary_of(ranks) if len(ranks) > 1 else None
    unprofiled = {
        file: process.unprofiled_step_seconds
        for file, process in traces.items()
        if process.unprofiled_step_seconds
    }
    slowdowns = [_step_seconds(cases[file]) / alone for file, alone in unprofiled.items()]
    steps_of_processes = []
    is_without_profiler = False
    for file, case in cases.items():
        alone = without_profiler(case, unprofiled[file]) if file in unprofiled else None
        is_without_profiler |= alone is not None
        steps_of_processes.append(alone or case.accounted)
    recording = Recording(
        processes=list(cases.values()),
        steps=[mean_of(alike) for alike in zip(*steps_of_processes, strict=False)],
        waiting=None if summary is None else _waiting(summary),
        taken=taken,
        # All wait for the slowest.
        core_wait=max(process.core_wait_share or 0.0 for process in traces.values()),
        slowdown=median(slowdowns or [1.0]),
        is_without_profiler=is_without_profiler,
    )
    drawn = dict(list(ranks.items())[:MAX_DRAWN])
    if summary is None:
        (trace,) = ranks.values()
        timeline = trace.timeline
    else:
        timeline = side_by_side(drawn, bool(summary.clocks_agree))
    recorded_seconds = [alone * len(cases[file].accounted) for file, alone in unprofiled.items()]
    timed = {ALL: max(recorded_seconds)} if recorded_seconds else {}
    return Analysis(
        answer_of(recording),
        {trace.file: trace for trace in ranks.values()},
        replace(timeline, timed=timed),
        of_processes(cases.values(), taken),
    )


def _step_seconds(case: CaseFigures) -> float:
    """Return how long the median step took under the profiler."""
    return median(step.seconds for step in case.accounted)


def without_profiler(case: CaseFigures, seconds: float) -> Sequence[Parts] | None:
    """Return steps that take some seconds without the profiler, if a GPU did their work.

    The profiler stretches what the host does, and hardly a kernel: the work stays as it was, and
    the waiting becomes less. A CPU's operators are stretched themselves: then it is None.
    """
    steps = case.accounted
    devices = {queue.device for queue in case.queues} - {HOST_DEVICE}
    works = [step.seconds - step.idle_seconds for step in steps]
    on_gpus = bool(devices) and not any(device.startswith("cpu") for device in devices)
    if not on_gpus or not max(works) < seconds < _step_seconds(case):
        return None
    return [
        replace(step, seconds=seconds, idle_seconds=seconds - work)
        for step, work in zip(steps, works, strict=True)
    ]


def _waiting(summary: Ranks) -> Waiting | None:
    """Return how the processes waited for each other; None if no exchange of all was found."""
    exchanged = sum(rank.matched_collective_seconds for rank in summary.by_rank)
    if not exchanged:
        return None
    last = max(summary.by_rank, key=lambda rank: rank.arrived_last)
    return Waiting(
        summary.waited_seconds / exchanged,
        last.rank,
        last.arrived_last,
        summary.matched_collectives,
    )
